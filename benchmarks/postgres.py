"""PostgreSQL for the contenders that need one: a server for each, which flushes, and a new database for each turn."""

from __future__ import annotations

import os
from contextlib import ExitStack
from typing import Any

import psycopg

from benchmarks.contender import Contender
from tests.support.servers import postgresql_programs, postgresql_server


def postgres_programs() -> str | None:
    """Return the folder of the server's programs, None when it is not installed."""
    return postgresql_programs()


class OnPostgres(Contender):
    """Has a server of its own."""

    url: str
    """Of the database of this turn."""

    def start(self) -> None:
        """Start the server."""
        super().start()
        self._stack = ExitStack()
        self._server = self._stack.enter_context(postgresql_server("fsync = on")).url
        self._turns = 0

    def make_database(self) -> None:
        """Make an empty database."""
        self._turns += 1
        name = f"turn_{os.getpid()}_{self._turns}"
        self.ask(f"CREATE DATABASE {name}", self._server)
        self.url = f"{self._server.removesuffix('/postgres')}/{name}"

    def ask(self, statement: str, url: str | None = None) -> list[tuple[Any, ...]]:
        """Carry out a statement, and return what it found."""
        with psycopg.connect(url or self.url, autocommit=True) as connection:
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []

    def finish(self) -> None:
        """Drop the database."""
        self.ask(f"DROP DATABASE {self.url.rpartition('/')[2]} WITH (FORCE)", self._server)

    def close(self) -> None:
        """Stop the server."""
        super().close()
        self._stack.close()

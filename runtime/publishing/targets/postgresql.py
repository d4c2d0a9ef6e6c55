"""PostgreSQL as a target: exactly once, by one transaction a slice."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict

from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.publishing.publisher import CommittedOutput, Promise, Record, SliceName
from runtime.publishing.targets.sql import Dialect, Tables

_DIALECT = Dialect(parameter="%s", number="BIGINT", time="TIMESTAMPTZ", json="JSON")
_LOCK = 0x636F6E73
"""The advisory lock under which tables are made: two that make the same one at once would fail."""

_NO_TEXT = "\x00"
_NOT_TEXT = "PostgreSQL has no text with the character NUL, which stands in its business id or message id."


class PostgresTarget:
    """A PostgreSQL database."""

    promise: Promise = Promise.EXACTLY_ONCE
    chunk = 1_000
    publishers: int | None = None
    window: timedelta | None = None

    def __init__(self, url: str, names: Mapping[str, str], batch_id: str) -> None:
        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError as error:
            raise UsageError(f"The url of the PostgreSQL database cannot be read: {error}") from error
        place = ":".join(str(parts[name]) for name in ("host", "port") if name in parts)
        self.name = f"postgresql://{place}/{parts.get('dbname', '')}"
        self.identity = f"{self.name} {sorted(names.items())}"
        self._url = url
        self._tables = Tables(_DIALECT, names, batch_id)

    async def prepare(self, types: Collection[str]) -> None:
        """Make the tables that are not there."""
        statements = list(self._tables.creations(types))
        with _explained(self.name):
            async with await AsyncConnection.connect(self._url) as connection:
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                for statement in statements:
                    await connection.execute(statement.encode())

    def publisher(self) -> PostgresPublisher:
        """Return a publisher, with a connection of its own."""
        return PostgresPublisher(self._url, self.name, self._tables)


class PostgresPublisher:
    """Sends slices to a PostgreSQL database."""

    def __init__(self, url: str, name: str, tables: Tables) -> None:
        self._url = url
        self._name = name
        self._tables = tables
        self._connection: AsyncConnection | None = None

    async def open(self, name: SliceName) -> bool:
        """Begin a transaction, and insert the marker of the slice in it.

        Waits for a transaction that has inserted the same marker; the server ends one whose client died.
        """
        with _explained(self._name):
            cursor = await (await self._connected()).execute(self._tables.marking().encode(), name[:2])
            if cursor.rowcount != 1:
                await self.roll_back()
            return cursor.rowcount == 1

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        """Insert outputs, or update them by their ids; in one round trip for each table."""
        good = [each for each in outputs if _NO_TEXT not in each.business_id + each.message_id]
        with _explained(self._name):
            async with (await self._connected()).cursor() as cursor:
                for statement, rows in self._tables.upserts(good):
                    await cursor.executemany(statement.encode(), rows)
        bad = [each for each in outputs if _NO_TEXT in each.business_id + each.message_id]
        return [Record.of(each, _NOT_TEXT) for each in bad]

    async def commit(self) -> None:
        """Commit the outputs with the marker."""
        with _explained(self._name):
            await (await self._connected()).commit()

    async def roll_back(self) -> None:
        """Roll the transaction back; without a connection the server does so by itself."""
        if self._connection is not None:
            try:
                await self._connection.rollback()
            except psycopg.Error:
                await self.close()

    async def close(self) -> None:
        """Close the connection."""
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(psycopg.Error):
                await connection.close()

    async def _connected(self) -> AsyncConnection:
        if self._connection is None:
            self._connection = await AsyncConnection.connect(self._url)
        return self._connection


@contextmanager
def _explained(name: str) -> Iterator[None]:
    try:
        yield
    except psycopg.OperationalError as error:
        raise TargetUnavailableError(f"{name}: {_first_line(error)}") from error
    except psycopg.Error as error:
        raise TargetError(f"{name}: {_first_line(error)}") from error


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]

"""PostgreSQL as a target: exactly once, with a transaction for each slice."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from itertools import groupby
from math import ceil
from operator import attrgetter

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.publishing.publisher import CommittedOutput, Publisher, Record, SliceName, TargetOptions
from runtime.publishing.targets.sql import HINT, SqlTarget

logging.getLogger("psycopg").addHandler(logging.NullHandler())  # warnings are raised as errors too

_OF_ROW = ("22", "23", "44", "54000", "P0")
"""Prefixes of SQLSTATEs of invalid rows: data, constraints, views, index rows that are too large, and triggers."""

_FORM = (
    "The URL of the PostgreSQL database is invalid. Write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %25 for "
    "%, %40 for @, %2F for / and %20 for a blank in the user or password."
)


class PostgresTarget(SqlTarget):
    """A PostgreSQL database as a target."""

    parameter = "%s"
    number = "BIGINT"
    time = "TIMESTAMPTZ"
    json = "JSON"

    def __init__(self, url: str, options: TargetOptions) -> None:
        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # the error's text may contain the password
            raise UsageError(_FORM) from None
        # An unescaped `/`, `#` or `@` moves parts of the password into one of these.
        places = [str(parts.get(each, "")) for each in ("host", "port", "dbname")]
        if any("@" in each for each in places) or re.search("[^0-9,]", places[1]):
            raise UsageError(_FORM)
        place = ":".join(str(parts[name]) for name in ("host", "port") if name in parts)
        super().__init__(f"postgresql://{place}/{parts.get('dbname', '')}", options)
        parts.setdefault("connect_timeout", max(2, ceil(self.seconds)))  # libpq's minimum is 2
        self._conninfo = make_conninfo("", **parts)

    async def prepare(self, types: Collection[str]) -> None:
        statements = self.creations(types)
        with self.translated_errors():
            async with await self.connected() as connection:
                # Creating the same table concurrently would fail.
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (0x636F6E73,))
                for statement in statements:
                    await connection.execute(statement.encode())

    async def connected(self) -> psycopg.AsyncConnection:
        return await psycopg.AsyncConnection.connect(self._conninfo)

    def publisher(self) -> PostgresPublisher:
        return PostgresPublisher(self)

    @contextmanager
    def translated_errors(self) -> Iterator[None]:
        """Context manager that converts `OperationalError` to `TargetUnavailableError`, and others to `TargetError`."""
        try:
            yield
        except psycopg.Error as error:
            kind = TargetUnavailableError if isinstance(error, psycopg.OperationalError) else TargetError
            hint = HINT if (error.sqlstate or "").startswith(("42", "3F")) else ""
            raise kind(f"{self.name}: {str(error).partition(chr(10))[0]}.{hint}") from error


class PostgresPublisher(Publisher):
    """Sends slices to a PostgreSQL database."""

    def __init__(self, target: PostgresTarget) -> None:
        self._target = target
        self._connection: psycopg.AsyncConnection | None = None

    async def open(self, name: SliceName) -> bool:
        """Begin a transaction and insert the slice's marker. Return False if the marker exists.

        Waits for another transaction with the same marker.
        """
        async with self._answering():
            cursor = await (await self._connected()).execute(self._target.marking().encode(), name[:2])
            if cursor.rowcount != 1:
                await self.roll_back()
            return cursor.rowcount == 1

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        """Upsert outputs in three round trips, and one more per table. Bisects to find rejected rows."""
        try:
            async with self._answering():
                connection = await self._connected()
                async with connection.transaction(), connection.cursor() as cursor:  # a savepoint
                    for type_, some in groupby(outputs, attrgetter("type")):
                        statement = self._target.upsert(type_).encode()
                        await cursor.executemany(statement, [self._target.row(each) for each in some])
            return ()
        except TargetError as error:
            cause = error.__cause__
            is_of_row = isinstance(cause, psycopg.DataError) or (
                isinstance(cause, psycopg.Error) and (cause.sqlstate or "").startswith(_OF_ROW)
            )
            if not is_of_row:
                raise
            if len(outputs) == 1:
                return [Record.of(outputs[0], str(cause).partition("\n")[0])]
        middle = len(outputs) // 2
        return [*await self.send(outputs[:middle]), *await self.send(outputs[middle:])]

    async def commit(self) -> None:
        async with self._answering():
            await (await self._connected()).commit()

    async def roll_back(self) -> None:
        if self._connection is not None:
            try:
                await self._connection.rollback()
            except psycopg.Error:
                await self.close()

    async def close(self) -> None:
        if self._connection is not None:
            connection, self._connection = self._connection, None
            with suppress(psycopg.Error):
                await connection.close()

    @asynccontextmanager
    async def _answering(self) -> AsyncIterator[None]:
        """Context manager that converts errors as the target does, and raises `TargetUnavailableError` after a time."""
        try:
            async with asyncio.timeout(self._target.seconds):
                with self._target.translated_errors():
                    yield
        except TimeoutError as error:
            await self.close()
            why = f"{self._target.name} did not answer within {self._target.seconds:g} s."
            raise TargetUnavailableError(why) from error

    async def _connected(self) -> psycopg.AsyncConnection:
        if self._connection is None:
            self._connection = await self._target.connected()
        return self._connection

"""PostgreSQL as a target: exactly once, by one transaction a slice."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress

import psycopg
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict

from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.publishing.publisher import CommittedOutput, Publisher, Record, SliceName
from runtime.publishing.targets.sql import SqlTarget

_LOCK = 0x636F6E73
"""The advisory lock under which tables are made: two that make the same one at once would fail."""

_NO_TEXT = "\x00"
_NOT_TEXT = "PostgreSQL has no text with the character NUL, which stands in its business id or message id."


_FORM = (
    "The url of the PostgreSQL database cannot be read: it is written postgresql://USER:PASSWORD@HOST:PORT/DATABASE, "
    "with %25 for %, %40 for @, %2F for / and %20 for a blank in a user or password."
)


class PostgresTarget(SqlTarget):
    """A PostgreSQL database."""

    parameter = "%s"
    number = "BIGINT"
    time = "TIMESTAMPTZ"
    json = "JSON"

    def __init__(self, url: str, names: Mapping[str, str], batch_id: str) -> None:
        try:
            parts = conninfo_to_dict(url)
        except psycopg.ProgrammingError:  # whose text may hold the password
            raise UsageError(_FORM) from None
        # A password with `/`, `#` or `@` that is not encoded ends up in one of these.
        places = [str(parts.get(each, "")) for each in ("host", "port", "dbname")]
        if any("@" in each for each in places) or re.search("[^0-9,]", places[1]):
            raise UsageError(_FORM)
        place = ":".join(str(parts[name]) for name in ("host", "port") if name in parts)
        super().__init__(f"postgresql://{place}/{parts.get('dbname', '')}", names, batch_id)
        self.url = url

    async def prepare(self, types: Collection[str]) -> None:
        """Make the tables that are not there."""
        statements = self.creations(types)
        with self.explained():
            async with await AsyncConnection.connect(self.url) as connection:
                await connection.execute("SELECT pg_advisory_xact_lock(%s)", (_LOCK,))
                for statement in statements:
                    await connection.execute(statement.encode())

    def publisher(self) -> PostgresPublisher:
        """Return a publisher, with a connection of its own."""
        return PostgresPublisher(self)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """Raise `TargetError` for errors of PostgreSQL."""
        try:
            yield
        except psycopg.Error as error:
            kind = TargetUnavailableError if isinstance(error, psycopg.OperationalError) else TargetError
            raise kind(f"{self.name}: {str(error).partition(chr(10))[0]}") from error


class PostgresPublisher(Publisher):
    """Sends slices to a PostgreSQL database."""

    def __init__(self, target: PostgresTarget) -> None:
        self._target = target
        self._connection: AsyncConnection | None = None

    async def open(self, name: SliceName) -> bool:
        """Begin a transaction, and insert the marker of the slice in it.

        Waits for a transaction that has inserted the same marker; the server ends one whose client died.
        """
        with self._target.explained():
            cursor = await (await self._connected()).execute(self._target.marking().encode(), name[:2])
            if cursor.rowcount != 1:
                await self.roll_back()
            return cursor.rowcount == 1

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        """Insert outputs, or update them by their ids; in one round trip for each table."""
        bad = [each for each in outputs if _NO_TEXT in each.business_id + each.message_id]
        good = [each for each in outputs if each not in bad] if bad else outputs
        with self._target.explained():
            async with (await self._connected()).cursor() as cursor:
                for statement, rows in self._target.upserts(good):
                    await cursor.executemany(statement.encode(), rows)
        return [Record.of(each, _NOT_TEXT) for each in bad]

    async def commit(self) -> None:
        """Commit the outputs with the marker."""
        with self._target.explained():
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
            self._connection = await AsyncConnection.connect(self._target.url)
        return self._connection

"""Tables in a PostgreSQL database: one round trip per call, safe for any number of machines.

Each table is one SQL table, whose rows have two keys that are compared bytewise. A transaction is one pipeline. Each of
its statements fails unless it changes its row, so the server rolls back a refused transaction. Transactions that start
during a commit are committed together by the next one. Reads of selected properties that start in the same step of the
event loop are one statement.

Each event loop has its own connections, which are not used after a fork. Errors show only host and database of a URL.
"""

from __future__ import annotations

import asyncio
import os
import re
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, nullcontext, suppress
from copy import copy
from functools import partial
from typing import Any, LiteralString
from urllib.parse import unquote, urlsplit

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Composed, Identifier

from eventstore import errors, port
from eventstore.backends import rows as row_format
from eventstore.backends.rows import PAGE_BYTES, StoredRow, read_page, read_row
from eventstore.errors import EventStoreError, StoreUnavailableError, StoreUrlError
from eventstore.keys import BETWEEN_KEYS, escape, table_name
from eventstore.limits import merge, refusal
from eventstore.port import Bounds, Operation, Page, PageKind, Row, Verb

FORMAT = "consistent-messaging rows, format 1"
"""The comment of each SQL table of a store, which identifies such tables."""

MAX_CONNECTIONS = 8  # the maximum number of connections of an event loop; further calls wait
_COMMITTED_TOGETHER = 64
_READ_TOGETHER = 16
_ANSWER_SECONDS = 60
_LOOKS = 12
_ROLLBACK_SECONDS = 5
_ATTEMPTS = 5
_PAUSE_SECONDS = 0.1
_ALONG_BYTES = 16 * 2**10
"""The number of bytes of the large part that a projection reads first. The shortest properties come first."""

# Division by zero (see `_Statements`), unique violation, serialisation failure, deadlock.
_NOT_COMMITTED = frozenset({"22012", "23505", "40001", "40P01"})
# A row that is locked for longer than `lock_timeout`.
_LOCKED = "55P03"
# The server has undone the transaction: locked, cancelled, or sent to a server that only reads.
_UNDONE = frozenset({_LOCKED, "57014", "25006"})
_URL_CLASSES = frozenset({"28", "3D", "3F"})
_WRONG_URL = re.compile(
    "does not exist|authentication failed|no pg_hba.conf entry|permission denied|no password|"
    "unsupported startup parameter|configuration parameter|value for parameter"
)
_UNAVAILABLE_CLASSES = frozenset({"08", "25", "40", "53", "55", "57", "58", "XX"})


class _Statements:
    """The SQL of one table. An update or deletion that finds no row divides by zero, to abort its transaction."""

    def __init__(self, schema: str | None, name: str) -> None:
        self.name = Identifier(schema, name) if schema else Identifier(name)
        in_range = 'WHERE "partition" = %s AND "row" BETWEEN %s AND %s'
        asked = in_range.replace("%s", '({} COLLATE "C")').format("asked", "low", "high")
        in_partitions = 'WHERE "row" = %s AND "partition" BETWEEN %s AND %s'
        in_order = 'WHERE "partition" <= %s AND ("partition", "row") >= (%s, %s)'
        row, both = '"row"', f'"partition" || E\'{BETWEEN_KEYS}\' || "row"'
        part = f"substring(large FROM 1 FOR {_ALONG_BYTES})"
        # Includes the row after the one that fills a page, as its key is the continuation.
        before = 'ORDER BY "partition", "row" ROWS BETWEEN UNBOUNDED PRECEDING AND 2 PRECEDING'

        def page(key: str, where: str, large: str = "large") -> str:
            size = f"sum(octet_length(small) + coalesce(octet_length({large}), 0)) OVER ({before})"
            return (
                f'SELECT "key", etag, "time", small, large FROM (SELECT {key} AS "key", etag, "time", small, '
                f"{large} AS large, {size} AS before FROM {{table}} {where} "
                f'ORDER BY "partition", "row" LIMIT {port.PAGE_SIZE + 1}) AS found '
                f'WHERE before IS NULL OR before < {PAGE_BYTES} ORDER BY "key"'
            )

        one = 'SELECT "row", etag, "time", small, large FROM {table} WHERE "partition" = %s AND "row" = '
        self.get, self.some = self._sql(f"{one}%s"), self._sql(f"{one}ANY(%s)")
        keys = {"query": (row, in_range), "scan": (both, in_partitions), "scan_all": (both, in_order)}
        self.pages = {kind: self._sql(page(*each)) for kind, each in keys.items()}
        self.projections = {kind: self._sql(page(*each, part)) for kind, each in keys.items()}
        self.project = self._sql(
            "SELECT number, found.* FROM unnest(%s::text[], %s::text[], %s::text[]) WITH ORDINALITY AS "
            f'reads(asked, low, high, number), LATERAL ({page(row, asked, part)}) AS found ORDER BY number, "key"'
        )

        columns = '("partition", "row", etag, "time", small, large) VALUES (%s, %s, %s, %s, %s, %s)'
        again = (
            'etag = excluded.etag, "time" = excluded."time", small = excluded.small, large = excluded.large'
        )
        this_row = '"partition" = %s AND "row" = %s AND etag = coalesce(%s::bigint, etag)'
        changed = "WITH changed AS ({change} RETURNING 1) SELECT 1 / count(*) FROM changed"
        update = f'UPDATE {{table}} SET etag = %s, "time" = %s, small = %s, large = %s WHERE {this_row}'
        self.insert = self._sql(f"INSERT INTO {{table}} {columns}")
        self.upsert = self._sql(
            f'INSERT INTO {{table}} {columns} ON CONFLICT ("partition", "row") DO UPDATE SET {again}'
        )
        self.update = self._sql(changed.replace("{change}", update))
        self.delete = self._sql(changed.replace("{change}", f"DELETE FROM {{table}} WHERE {this_row}"))
        self.rewrite = self._sql("VACUUM (FULL, VERBOSE) {table}")
        self.make = [
            self._sql(
                'CREATE TABLE IF NOT EXISTS {table} ("partition" text COLLATE "C" NOT NULL, '
                '"row" text COLLATE "C" NOT NULL, etag bigint NOT NULL, "time" bigint NOT NULL, '
                'small bytea NOT NULL, large bytea, PRIMARY KEY ("partition", "row")) WITH (fillfactor = 80)'
            ),
            # Values are already compressed, and are read in parts, which compression would prevent.
            self._sql(
                "ALTER TABLE {table} ALTER small SET STORAGE EXTERNAL, ALTER large SET STORAGE EXTERNAL"
            ),
            self._sql(f"COMMENT ON TABLE {{table}} IS '{FORMAT}'"),
        ]

    def ddl(self) -> str:
        return "; ".join(each.as_string() for each in self.make) + ";"

    def _sql(self, text: str) -> Composed:
        return SQL(text).format(table=self.name)


class _Changes(row_format.Changes):
    """A validated transaction. All rows that the transaction writes get the same new ETag and time."""

    def __init__(self, sql: _Statements, partition_key: str, operations: Sequence[Operation]) -> None:
        super().__init__(partition_key, operations)
        self.sql = sql
        self.etag = secrets.randbits(63)
        self.time = time.time_ns() // 1000

    @property
    def merges(self) -> bool:
        """Whether the transaction merges rows. If so, the stored rows are needed first."""
        return any(each.verb in (Verb.MERGE, Verb.INSERT_OR_MERGE) for each in self.operations)

    @property
    def etags(self) -> tuple[str, ...]:
        return tuple("" if each.verb is Verb.DELETE else str(self.etag) for each in self.operations)

    def statements(self, found: Mapping[str, StoredRow]) -> Iterator[tuple[Composed, Sequence[object]]]:
        """Yield the statements with their parameters. `found` has the stored rows to merge into, by escaped key."""
        pack_ = partial(row_format.pack, row_format.packer())
        for operation, row, properties in zip(self.operations, self.rows, self.properties, strict=True):
            verb, key, etag = operation.verb, (self.partition, row), row_format.etag_number(operation.etag)
            if verb is Verb.DELETE:
                yield self.sql.delete, (*key, etag)
                continue
            if verb in (Verb.MERGE, Verb.INSERT_OR_MERGE):
                before = found.get(row)
                if before is not None:
                    there = read_row((self.partition,), before)
                    properties, etag = merge(there.properties, properties), before[1]  # noqa: PLW2901
                verb = Verb.INSERT if before is None else Verb.REPLACE
            values = self.etag, self.time, *pack_(properties)
            if verb is Verb.REPLACE:
                yield self.sql.update, (*values, *key, etag)
            else:
                yield self.sql.insert if verb is Verb.INSERT else self.sql.upsert, (*key, *values)

    def refusal(self, rows: Mapping[str, StoredRow]) -> errors.RowError | None:
        for index, (operation, key) in enumerate(zip(self.operations, self.rows, strict=True)):
            row = rows.get(key)
            if refused := refusal(operation, index, None if row is None else str(row[1])):
                return refused
        return None


_Read = tuple[Sequence[str], asyncio.Future[list[StoredRow]]]
_Waiting = tuple[_Changes, asyncio.Future[tuple[str, ...]]]  # a transaction, and the future for its new ETags


class _NotCommittedError(Exception):
    """Raised when the server rolled back a transaction: it refused an operation, or another transaction conflicted."""


class _LoopPool:
    """The connections of one event loop, and its transactions that wait to be committed."""

    def __init__(self, store: PostgresStore) -> None:
        self._store = store
        self._idle: list[psycopg.AsyncConnection[Any]] = []
        self._places = asyncio.Semaphore(MAX_CONNECTIONS)
        self._waiting: deque[_Waiting] = deque()
        self._committing: asyncio.Task[None] | None = None
        self._reads: dict[_Statements, list[_Read]] = {}
        self._reading: set[asyncio.Task[None]] = set()
        self._is_closed = False

    async def project(self, sql: _Statements, bounds: Sequence[str]) -> list[StoredRow]:
        """Read rows with only the first bytes of large parts. Concurrent reads are combined into one statement."""
        read: _Read = bounds, asyncio.get_running_loop().create_future()
        reads = self._reads.setdefault(sql, [])
        reads.append(read)
        if len(reads) == 1:
            task = asyncio.ensure_future(self._project_all(sql))
            self._reading.add(task)
            task.add_done_callback(self._reading.discard)
        return await read[1]

    async def fetch(self, sql: Composed | SQL, parameters: Sequence[object]) -> list[Any]:
        end = time.monotonic() + _ANSWER_SECONDS
        for attempt in range(1, _ATTEMPTS):
            try:
                return await self._fetch(sql, parameters)
            except StoreUnavailableError:
                if time.monotonic() > end:
                    raise
                await asyncio.sleep(port.pause_seconds(attempt, _PAUSE_SECONDS, port.LONGEST_SECONDS))
        return await self._fetch(sql, parameters)

    async def _project_all(self, sql: _Statements) -> None:
        reads = self._reads.pop(sql)
        while reads:
            some, reads = reads[:_READ_TOGETHER], reads[_READ_TOGETHER:]
            found: list[list[Any]] = [[] for _ in some]
            try:
                bounds = [[bounds[n] for bounds, _ in some] for n in range(3)]
                for number, *row in await self.fetch(sql.project, bounds):
                    found[number - 1].append(tuple(row))
            except Exception as error:  # noqa: BLE001 - raised by the waiting call
                for _, future in some:
                    _settle(future, copy(error))
            for (_, future), rows in zip(some, found, strict=True):
                _settle(future, rows)

    async def execute(self, *statements: Composed) -> None:
        async with self._connection(writes=True) as connection, connection.transaction():
            for statement in statements:
                await connection.execute(statement)

    async def rewrite(self, sql: Composed, name: str) -> str:
        """Rewrite a table, without a time limit. Return why it may still hold deleted rows, or "" if it holds none."""
        notices: list[str] = []
        connection = await self._connect()
        connection.add_notice_handler(
            lambda each: notices.append(f"{each.message_primary} {each.message_detail}")
        )
        try:
            await connection.execute("SET lock_timeout = '10s'")
            before = await (await connection.execute(_FILE, (name,))).fetchone()
            await connection.execute(sql)
            after = await (await connection.execute(_FILE, (name,))).fetchone()
        except psycopg.Error as error:
            raise self._store.translate_error(error, writes=False) from error
        finally:
            await connection.close()
        if before == after:
            return "only its owner can rewrite it"
        kept = re.search(r"([1-9]\d*) dead row versions cannot be removed", " ".join(notices))
        return f"an open transaction may still read {kept[1]} of them" if kept else ""

    async def commit(self, changes: _Changes) -> tuple[str, ...]:
        """Commit a transaction and return its new ETags. Transactions that arrive meanwhile share the next commit."""
        future = asyncio.get_running_loop().create_future()
        self._waiting.append((changes, future))
        if self._committing is None or self._committing.done():
            self._committing = asyncio.ensure_future(self._commit_all())
        etags: tuple[str, ...] = await future
        return etags

    async def close(self) -> None:
        self._is_closed = True
        await self._close_idle()

    async def _fetch(self, sql: Composed | SQL, parameters: Sequence[object]) -> list[Any]:
        try:
            async with self._connection() as connection:
                cursor = await connection.execute(sql, parameters, binary=True)
                return await cursor.fetchall()
        except _NotCommittedError as error:  # if sessions are serialisable by default
            raise StoreUnavailableError(f"{self._store.url}: a read conflicted with a write.") from error

    @asynccontextmanager
    async def _connection(self, *, writes: bool = False) -> AsyncIterator[psycopg.AsyncConnection[Any]]:
        """Context manager that yields a connection, and closes it after a failure. Converts errors of psycopg."""
        async with self._places:
            connection = self._idle.pop() if self._idle else await self._connect()
            is_usable = False
            try:
                async with _answered_in(_ANSWER_SECONDS):
                    yield connection
                is_usable = not self._is_closed
            except psycopg.Error as error:
                if error.sqlstate in _NOT_COMMITTED or isinstance(error, psycopg.errors.PipelineAborted):
                    with suppress(psycopg.Error, TimeoutError):
                        async with asyncio.timeout(_ROLLBACK_SECONDS):
                            await connection.rollback()
                        is_usable = not self._is_closed
                    raise _NotCommittedError from error
                raise self._store.translate_error(error, writes=writes) from error
            except TimeoutError:
                what = f"{self._store.url} did not answer in {_ANSWER_SECONDS} seconds."
                raise StoreUnavailableError(what, writes) from None
            finally:
                if is_usable:
                    self._idle.append(connection)
                else:
                    await connection.close()
                    await self._close_idle()  # after a restart of the server, all are broken

    async def _connect(self) -> psycopg.AsyncConnection[Any]:
        store = self._store
        try:
            connection = await psycopg.AsyncConnection.connect(store.conninfo, autocommit=True)
        except psycopg.Error as error:
            if store.begin != _BEGIN or "unsupported startup parameter" not in str(error):
                raise store.not_connected(error) from error
            store.conninfo, store.begin = store.plain_conninfo, (*_BEGIN, _SET_LOCAL)
            return await self._connect()
        if not self._store.prepares:
            connection.prepare_threshold = None
        return connection

    async def _close_idle(self) -> None:
        while self._idle:
            await self._idle.pop().close()

    async def _commit_all(self) -> None:
        while self._waiting:
            waiting = [self._waiting.popleft() for _ in range(min(len(self._waiting), _COMMITTED_TOGETHER))]
            group = [each for each in waiting if not each[1].done()]  # without cancelled ones
            # At most one transaction of each partition, since it may cause the next one to be refused. They are
            # sorted, so that processes do not deadlock.
            first = {each[0].partition: each for each in reversed(group) if not each[0].merges}
            together = sorted(first.values(), key=lambda each: each[0].partition)
            if len(together) > 1:
                await self._commit_together(together)
            alone: dict[str, list[_Waiting]] = {}
            for each in group:
                if not each[1].done():
                    alone.setdefault(each[0].partition, []).append(each)
            await asyncio.gather(*map(self._commit_in_turn, alone.values()))

    async def _commit_together(self, group: Sequence[_Waiting]) -> None:
        """Commit transactions together. If they are rolled back, their futures stay pending: commit each one alone."""
        try:
            await self._send([(changes, {}) for changes, _ in group])
        except StoreUnavailableError as error:
            if not isinstance(error.__cause__, psycopg.errors.LockNotAvailable):
                for _, future in group:
                    _settle(future, copy(error))
        except Exception:  # noqa: BLE001, S110 - all were rolled back
            pass
        else:
            for changes, future in group:
                _settle(future, changes.etags)

    async def _commit_in_turn(self, group: Sequence[_Waiting]) -> None:
        for changes, future in group:
            try:
                _settle(future, await self._commit_alone(changes))
            except Exception as error:  # noqa: BLE001 - raised by the waiting call
                _settle(future, error)

    async def _commit_alone(self, changes: _Changes) -> tuple[str, ...]:
        for attempt in range(1, _ATTEMPTS + 1):
            rows = await self._rows(changes) if changes.merges else {}
            refusal = changes.refusal(rows) if changes.merges else None
            try:
                if refusal is None:
                    await self._send([(changes, rows)])
                    return changes.etags
            except _NotCommittedError:
                refusal = changes.refusal(await self._rows(changes))
            if refusal is not None:
                raise refusal
            await asyncio.sleep(port.pause_seconds(attempt, port.FIRST_SECONDS, port.LONGEST_SECONDS))
        raise StoreUnavailableError(
            f"{self._store.url}: the transaction conflicted {_ATTEMPTS} times in a row."
        )

    async def _rows(self, changes: _Changes) -> dict[str, StoredRow]:
        rows = await self.fetch(changes.sql.some, (changes.partition, changes.rows))
        return {each[0]: each for each in rows}

    async def _send(self, group: Sequence[tuple[_Changes, Mapping[str, StoredRow]]]) -> None:
        """Commit a group in one SQL transaction. Raises `_NotCommittedError` if an operation is refused."""
        statements = [each for changes, found in group for each in changes.statements(found)]
        async with self._connection(writes=True) as connection:
            if len(statements) == 1 and self._store.begin == _BEGIN:
                await connection.execute(*statements[0])
                return
            cause: psycopg.Error | None = None
            try:
                # pgbouncer 1.18 sometimes never answers a pipeline.
                async with connection.pipeline() if self._store.begin == _BEGIN else nullcontext():
                    try:
                        for begin in self._store.begin:
                            await connection.execute(begin)
                        for statement in statements:
                            await connection.execute(*statement)
                        await connection.execute("COMMIT")
                    except psycopg.Error as error:  # leaving the block would log a warning
                        cause = error
            except psycopg.errors.PipelineAborted as aborted:
                raise cause or aborted from None
            if cause is not None:
                raise cause


@asynccontextmanager
async def _answered_in(seconds: float) -> AsyncIterator[None]:
    """Context manager that raises `TimeoutError` after `seconds`, not counting time when the event loop is blocked."""
    loop = asyncio.get_running_loop()
    timer: asyncio.TimerHandle
    async with asyncio.timeout(None) as limit:

        def look(left: int) -> None:
            nonlocal timer
            if left:
                timer = loop.call_later(seconds / _LOOKS, look, left - 1)
            else:
                limit.reschedule(loop.time())

        timer = loop.call_later(seconds / _LOOKS, look, _LOOKS - 1)
        try:
            yield
        finally:
            timer.cancel()


def _settle(future: asyncio.Future[Any], result: object) -> None:
    if future.done():
        return
    if isinstance(result, Exception):
        future.set_exception(result)
    else:
        future.set_result(result)


class PostgresTable(row_format.SqlTable):
    scope: port.Scope = "network"

    def __init__(self, store: PostgresStore, name: str) -> None:
        self.name = name
        self.store_url = store.url
        self._store = store
        self._sql = _Statements(store.schema, name)

    async def get(self, partition_key: str, row_key: str) -> Row | None:
        bounds = escape(partition_key), escape(row_key)
        rows = await self._store.session().fetch(self._sql.get, bounds)
        return read_row(bounds, rows[0]) if rows else None

    async def read(self, kind: PageKind, bounds: Bounds, select: Sequence[str] | None) -> Page:
        whole, session = self._sql.pages[kind], self._store.session()
        if select is None:
            return read_page(bounds, await session.fetch(whole, bounds), most=PAGE_BYTES)
        with suppress(EOFError):
            if kind == "query":
                found = await session.project(self._sql, bounds)
            else:
                found = await session.fetch(self._sql.projections[kind], bounds)
            return read_page(
                bounds, found, partial(row_format.unpack_some, select, _read_part), most=PAGE_BYTES
            )
        decode = partial(row_format.unpack_some, select, _read_whole)
        return read_page(bounds, await session.fetch(whole, bounds), decode, most=PAGE_BYTES)

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        return await self._store.session().commit(_Changes(self._sql, partition_key, operations))

    async def barrier(self) -> None:
        """No-op: a commit is durable when the server answers. `open` rejects a server that answers earlier."""

    async def scrub(self) -> None:
        """Rewrite the table without deleted rows. They stay in backups, and in the write-ahead log until recycling."""
        left = await self._store.session().rewrite(self._sql.rewrite, self._sql.name.as_string())
        if left:
            raise StoreUnavailableError(f"{self.store_url}: {self.name} may still hold deleted rows: {left}.")

    async def open(self, *, make: bool) -> None:
        """Check server and table. Costs one round trip, and five more to create a missing table.

        Raises `TableNotFoundError` for a missing table unless `make` is set, and `StoreUrlError` if either is unusable.
        """
        if await self._is_there():
            return
        if not make:
            raise errors.TableNotFoundError(self.name, self.store_url)
        try:
            await self._store.session().execute(*self._sql.make)
        except (StoreUrlError, _NotCommittedError) as error:
            if "3F000" in str(error):  # the schema does not exist
                raise
            if not await self._is_there():  # no concurrent process has created it
                raise StoreUrlError(
                    f"{self.store_url}: the table {self.name} cannot be created by this role. Have the schema's owner "
                    f"run: {self._sql.ddl()}"
                ) from error

    async def _is_there(self) -> bool:
        name = self._sql.name.as_string()
        ((encoding, commits, oid, comment),) = await self._store.session().fetch(_LOOK, (name, name))
        if encoding != "UTF8":
            raise StoreUrlError(f"{self.store_url} has the encoding {encoding}; a store needs UTF8.")
        if commits == "off":
            raise StoreUrlError(
                f"{self.store_url} answers before a commit is durable (synchronous_commit=off). Run `ALTER ROLE ... "
                f"SET synchronous_commit = on` for the role of the store."
            )
        if oid is not None and comment != FORMAT:
            raise StoreUrlError(
                f"{self.store_url} has a table {name} that does not belong to a store, or has another format: "
                f"use another name or schema."
            )
        return oid is not None


def _read_whole(large: bytes | None, length: int) -> bytes:
    return (large or b"")[:length]


def _read_part(large: bytes | None, length: int) -> bytes:
    if length > _ALONG_BYTES:
        raise EOFError
    return _read_whole(large, length)


_FILE = SQL("SELECT pg_relation_filenode(%s::regclass)")
_LOOK = SQL(
    "SELECT current_setting('server_encoding'), current_setting('synchronous_commit'), to_regclass(%s)::oid::bigint, "
    "obj_description(to_regclass(%s), 'pg_class')"
)

_BEGIN: tuple[LiteralString, ...] = ("BEGIN",)
_LIMITS = "-c lock_timeout=10s -c idle_in_transaction_session_timeout=60s"
"""The settings of each connection. A `statement_timeout` could end a COMMIT that waits for a replica as if done."""
_SET_LOCAL: LiteralString = "SET LOCAL lock_timeout = '10s'"
"""Sent with each transaction if a pooler accepts no settings for a connection."""

_FORM = (
    "The store URL is not valid for PostgreSQL; its form is "
    "postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME."
)
_DEFAULTS = {
    "application_name": "consistent-messaging",
    "connect_timeout": "10",
    "keepalives_idle": "30",
    "target_session_attrs": "read-write",
    "tcp_user_timeout": "30000",
}


class PostgresStore(port.Store):
    """The tables in one schema of a database: `postgresql://USER:PASSWORD@HOST:PORT/DATABASE?schema=NAME`.

    The default schema is the first of the search path. `prepare=true` prepares statements. Omit it behind a pooler that
    switches connections between transactions. All other parameters are libpq's.
    """

    scope: port.Scope = "network"

    def __init__(self, url: str) -> None:
        try:
            parts = urlsplit(url)
            own = dict(re.findall(r"(?:^|&)(schema|prepare)=([^&]*)", parts.query))
            rest = re.sub(r"(?:^|&)(?:schema|prepare)=[^&]*", "", parts.query).lstrip("&")
            parameters = conninfo_to_dict(parts._replace(query=rest).geturl())
        except (psycopg.Error, ValueError):
            raise StoreUrlError(_FORM) from None
        host = str(parameters.get("host") or "localhost")
        database = str(parameters.get("dbname") or parameters.get("user") or "")
        port_ = str(parameters.get("port") or "5432")
        self.schema = unquote(own["schema"]) if own.get("schema") else None
        if "@" in host + database or not re.fullmatch(r"[\d,]+", port_) or "%" in (self.schema or ""):
            # The shown part of the URL would contain a part of the password.
            raise StoreUrlError(f"{_FORM} In a password write / as %2F and @ as %40; a schema has no %.")
        chosen = {**_DEFAULTS, **parameters, "client_encoding": "utf8"}
        options = parameters.get("options") or os.environ.get("PGOPTIONS", "")
        self.plain_conninfo = make_conninfo(**chosen)  # type: ignore[arg-type]  # libpq's texts
        self.conninfo = make_conninfo(self.plain_conninfo, options=f"{_LIMITS} {options}")
        self.begin = _BEGIN
        self.url = f"postgresql://{host}:{port_}/{database}"
        self.prepares = own.get("prepare") == "true"
        self._pools = port.PerLoop(partial(_LoopPool, self))

    async def table(self, name: str, *, make: bool = True) -> PostgresTable:
        table = PostgresTable(self, table_name(name))
        await table.open(make=make)
        return table

    async def close(self) -> None:
        """Close the connections of this event loop."""
        await self._pools.close()

    def session(self) -> _LoopPool:
        """Return the pool of this event loop and process."""
        return self._pools.get()

    def not_connected(self, error: psycopg.Error) -> EventStoreError:
        """Return the error for a failed connection attempt. The reason is parsed from libpq's message."""
        _, _, reason = str(error).partition("FATAL:")
        reason = reason.splitlines()[0].strip() if reason else ""
        if _WRONG_URL.search(reason):
            return StoreUrlError(f"{self.url} refused the connection: {reason}.")
        return StoreUnavailableError(f"{self.url} did not answer{reason and f' ({reason})'}.")

    def translate_error(self, error: psycopg.Error, *, writes: bool) -> EventStoreError:
        """Return the `EventStoreError` for a psycopg error of a read, or of a write (`writes`)."""
        state = error.sqlstate or ""
        if state == "42P01":
            name = re.search(r'"([^"]+)"', error.diag.message_primary or "")
            return errors.TableNotFoundError(name[1] if name else "of the store", self.url)
        if state == "54000":  # the index row is too large
            return errors.InvalidKeyError(f"{self.url} takes at most 2,704 bytes for both keys of a row.")
        if state == "42501" or state[:2] in _URL_CLASSES:
            return StoreUrlError(f"{self.url} refused: {error.diag.message_primary} ({state}).")
        if state and state[:2] not in _UNAVAILABLE_CLASSES:
            return EventStoreError(f"{self.url} refused a statement: {error.diag.message_primary} ({state}).")
        if not state and not isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return EventStoreError(f"{self.url}: psycopg refused a statement ({type(error).__name__}).")
        what = f"failed ({state})" if state else "did not answer"
        if state == _LOCKED:
            what = f"has a row or table that another session keeps locked ({state})"
        return StoreUnavailableError(f"{self.url} {what}.", writes and state not in _UNDONE)

"""Peers that send to PostgreSQL what a batch sends: recorded at psycopg and at the table port, once for each log.

- `bare-fold-psycopg` is the bare fold, whose workers send the statements of 16 streams when they are folded: one query,
  and one transaction. It is what a careful user of psycopg writes.
- `bare-psycopg` sends the same round trips as the batch, with as many connections as a worker has, and folds nothing.
- `store-postgres` makes the calls of the table port from which those statements came.
"""

from __future__ import annotations

import asyncio
import os
import pickle
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, ClassVar, LiteralString, NamedTuple, cast

import psycopg
import pyarrow as pa
from pyarrow import parquet

from benchmarks.contender import Setting
from benchmarks.contenders.bare_fold import SCHEMA, BareFold, fold, ordered
from benchmarks.contenders.consistent_network import ConsistentPostgres
from benchmarks.contenders.stored import stored_states
from benchmarks.logs import Log
from benchmarks.peers.bare import load, make_table
from benchmarks.peers.recording import Recorder, record_once, requests_in
from benchmarks.peers.store_only import replay
from benchmarks.postgres import OnPostgres
from benchmarks.processes import own_process
from benchmarks.shooting import HANDLER, States
from eventstore import Table
from eventstore.backends.postgres import MAX_CONNECTIONS

Statement = tuple[LiteralString, Any]
"""A text and its parameters."""

RoundTrip = list[Statement]
"""One statement, or those of a transaction."""

_STREAMS_AT_ONCE = 16
_loaded: list[RoundTrip] = []


class Sender(OnPostgres):
    """Sends from processes of its own what a batch sent."""

    def start(self) -> None:
        """Start the processes that will send."""
        super().start()
        self._processes = [own_process() for _ in range(self.setting.cores)]

    def work(self) -> None:
        """Send everything."""
        ends = [self.send_from(process) for process in self._processes]
        for end in ends:
            end.result()

    def send_from(self, process: Any) -> Any:  # noqa: ANN401 - a pool of processes, a future
        """Begin to send from a process."""
        raise NotImplementedError

    def states(self) -> States:
        """Read the states from the database."""
        return stored_states(self.url)

    def close(self) -> None:
        """End the processes and the server."""
        for process in self._processes:
            process.shutdown()
        super().close()


class BarePsycopg(Sender):
    """Sends the statements of a batch."""

    durability = "the same rows in PostgreSQL, fsync of each commit; no handlers, no fold"
    _facts: Mapping[str, float]

    def prepare(self, log: Log, folder: Path) -> None:  # noqa: ARG002 - it keeps none
        """Make a database with an empty table, and give each process what a worker of the batch sent."""
        self.make_database()
        asyncio.run(make_table(self.url))
        files = sorted(recorded(log, self.setting).glob("*.statements"))
        for number, process in enumerate(self._processes):
            process.submit(_load, files[number :: len(self._processes)]).result()
        trips = [trip for file in files for trip in round_trips(file)]
        streams = sum(len(trip[0][1][0]) for trip in trips if is_load(trip))
        statements = sum(map(len, trips))
        self._facts = {
            "round_trips_per_stream": len(trips) / streams,
            "statements_per_stream": statements / streams,
        }

    def send_from(self, process: Any) -> Any:  # noqa: ANN401 - as above
        """Begin to send from a process."""
        return process.submit(_send_loaded, self.url)

    def facts(self) -> Mapping[str, float]:
        """Return the round trips and the statements for each stream."""
        return self._facts


class StorePostgres(Sender):
    """Makes the calls of the table port."""

    durability = "the same rows in PostgreSQL, fsync of each commit; no handlers, no fold"

    def prepare(self, log: Log, folder: Path) -> None:  # noqa: ARG002 - it keeps none
        """Make a database with an empty table, and deal the streams out to the processes."""
        self.make_database()
        asyncio.run(make_table(self.url))
        streams = requests_in(recorded(log, self.setting))
        for number, process in enumerate(self._processes):
            process.submit(load, streams[number :: len(self._processes)]).result()

    def send_from(self, process: Any) -> Any:  # noqa: ANN401 - as above
        """Begin to send from a process."""
        return process.submit(_replay_requests, self.url, self.setting.in_flight)


class BareFoldPsycopg(OnPostgres, BareFold):
    """Folds a log; the workers send the statements of the batch, and write the outcomes."""

    durability = "the same rows in PostgreSQL, fsync of each commit; outcomes as Parquet, by the workers"
    partitions_that_load: ClassVar[int] = 8

    def prepare(self, log: Log, folder: Path) -> None:
        """Make a database with an empty table, and have the workers load what they will send."""
        super().prepare(log, folder)
        self.make_database()
        asyncio.run(make_table(self.url))
        self._statements = recorded(log, self.setting)
        fold_ = _FoldAndSend(self.url, str(self._statements), str(folder))
        frame = self.spark.range(0, self.partitions_that_load, 1, self.partitions_that_load)
        frame.mapInArrow(fold_.load, "rows long").collect()

    def work(self) -> None:
        """Fold the log, a file for each partition."""
        out = self.folder / "out"
        out.mkdir()
        fold_ = _FoldAndSend(self.url, str(self._statements), str(out))
        messages = ordered(self.spark, self.log.path, self.partitions)
        messages.mapInArrow(fold_.run, "rows long").write.format("noop").mode("overwrite").save()

    def states(self) -> States:
        """Read the states from the database."""
        return stored_states(self.url)


class _FoldAndSend(NamedTuple):
    url: str
    statements: str
    folder: str

    def load(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read what this process will send."""
        _by_stream(self.statements)
        yield from batches

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Fold a partition, and send the statements of each stream."""
        statements, rows = _by_stream(self.statements), 0
        waiting: list[RoundTrip] = []
        path = f"{self.folder}/{uuid.uuid4().hex}.parquet"
        with (
            psycopg.connect(self.url, autocommit=True) as connection,
            parquet.ParquetWriter(path, SCHEMA, compression="zstd") as writer,
        ):
            for outcomes in fold(batches):
                rows += outcomes.num_rows
                writer.write_batch(outcomes)
                for row in outcomes.filter(outcomes["final_state"].is_valid()).to_pylist():
                    waiting.append(statements[f"{HANDLER.name}-{row['business_id']}"])
                    if len(waiting) == _STREAMS_AT_ONCE:
                        _send(connection, waiting)
            _send(connection, waiting)
        yield pa.RecordBatch.from_pydict({"rows": pa.array([rows], pa.int64())})


def _send(connection: psycopg.Connection[Any], waiting: list[RoundTrip]) -> None:
    """Send the query and the rows of some streams: one query for all of them, and one transaction."""
    if not waiting:
        return
    text, bounds = waiting[0][0][0], [trip[0][1] for trip in waiting]
    connection.execute(text, [list(each) for each in zip(*bounds, strict=True)], binary=True).fetchall()
    with connection.pipeline(), connection.transaction():
        for _, *inserts in waiting:
            for statement in inserts:
                connection.execute(*statement)
    waiting.clear()


@cache
def _by_stream(folder: str) -> Mapping[str, RoundTrip]:
    """Return the query of each stream with the bounds of its rows, and the other statements, by its key."""
    queries: dict[str, Statement] = {}
    others: dict[str, RoundTrip] = {}
    for file in Path(folder).glob("*.statements"):
        for trip in round_trips(file):
            if is_load(trip):
                text, bounds = trip[0]
                queries.update({each[0]: (text, each) for each in zip(*bounds, strict=True)})
            for statement in trip:  # a single row is written without BEGIN and COMMIT
                if statement[0].startswith("INSERT"):
                    others.setdefault(statement[1][0], []).append(statement)
    return {key: [queries[key], *others[key]] for key in others if key in queries}


def is_load(trip: RoundTrip) -> bool:
    """Return whether streams are loaded, several at once."""
    return isinstance((trip[0][1] or ("",))[0], list)


def recorded(log: Log, setting: Setting) -> Path:
    """Return the folder with what the workers of a batch sent to PostgreSQL."""
    return record_once("statements", ConsistentPostgres, StatementRecorder, log, setting)


@dataclass(frozen=True)
class StatementRecorder:
    """Records what psycopg sends in each worker, in a file of the process, and the calls of the port in another."""

    folder: Path

    def __call__(self, table: Table) -> Table:
        """Begin to record in this process, unless that was begun; return the table."""
        path = self.folder / f"{os.getpid()}.statements"
        if not path.exists():
            file = path.open("ab", buffering=0)
            execute = psycopg.AsyncConnection.execute

            async def recording(connection: Any, query: Any, parameters: Any = None, **options: Any) -> Any:  # noqa: ANN401
                text = query if isinstance(query, str) else query.as_string()
                file.write(pickle.dumps((id(connection), text, parameters)))
                return await execute(connection, query, parameters, **options)

            psycopg.AsyncConnection.execute = recording  # type: ignore[assignment,method-assign]
        return Recorder(self.folder)(table)


def round_trips(file: Path) -> Iterator[RoundTrip]:
    """Yield the statements of a worker, those of a transaction together."""
    open_: dict[int, RoundTrip] = {}
    with file.open("rb") as source:
        while source.peek(1):
            connection, text, parameters = pickle.load(source)  # noqa: S301 - written by this run
            statements = open_.setdefault(connection, [])
            statements.append((cast("LiteralString", text), parameters))
            if statements[0][0] != "BEGIN" or text == "COMMIT":
                yield open_.pop(connection)


def _load(files: list[Path]) -> None:
    _loaded[:] = [trip for file in files for trip in round_trips(file)]


def _replay_requests(url: str, in_flight: int) -> None:
    asyncio.run(replay(url, in_flight))


def _send_loaded(url: str) -> None:
    asyncio.run(_send_all(url))


async def _send_all(url: str) -> None:
    left = iter(_loaded)

    async def work() -> None:
        async with await psycopg.AsyncConnection.connect(url, autocommit=True) as connection:
            connection.prepare_threshold = None
            for statements in left:
                if len(statements) == 1:
                    cursor = await connection.execute(*statements[0], binary=True)
                    if cursor.description:
                        await cursor.fetchall()
                    continue
                async with connection.pipeline():
                    for statement in statements:
                        await connection.execute(*statement)

    await asyncio.gather(*(work() for _ in range(MAX_CONNECTIONS)))

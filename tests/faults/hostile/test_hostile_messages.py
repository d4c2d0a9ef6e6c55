"""Each hostile message ends as the corpus says, with each algorithm, and costs no other its outcome."""

import asyncio
import json
import signal
from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from eventstore import Table, connect
from runtime import Outcome, Output, Processor
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.outbox.stores import TokenStore, first_name, first_tokens, with_token
from runtime.batch_options import BatchOptions, TablePlace
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import canonical
from runtime.messages.parsing import business_id_of
from runtime.spark.worker import job as supervision
from runtime.spark.worker.connection import Connection
from runtime.spark.worker.job import FoldJob
from runtime.versions.stream import summaries
from tests.faults.hostile.app import app
from tests.faults.hostile.corpus import End, HostileMessage, messages, packed_messages
from tests.support.names import new_name
from tests.support.routed import fold_schema

ALGORITHMS: tuple[AlgorithmName, ...] = ("state-based", "outbox", "deduplication-store", "tokens")
ONE_QUICKLY = ["state-based", *[pytest.param(each, marks=pytest.mark.thorough) for each in ALGORITHMS[1:]]]
QUICK = timedelta(seconds=0.8)
"""How long a handler may take here."""

TEXT, PACKED = pa.string(), pa.binary()


def rows(given: Sequence[HostileMessage]) -> Iterator[dict[str, Any]]:
    """Give a row for each message, routed as in the JVM, the streams one after another."""
    for message in given:
        columns = message.columns
        for route in app.routes(columns["type"]):
            envelope = message.envelope()._replace(business_id=columns.get("business_id"))
            yield {
                **columns,
                "message_id": canonical(columns["message_id"]),
                "handler": route.handler,
                "business_id": business_id_of(route, envelope),
                "given": columns.get("business_id"),
            }


def fold(place, algorithm, given, body) -> Counter[End]:
    routed = sorted(rows(given), key=lambda row: (row["handler"], row["business_id"] or ""))
    connection = Connection(place)
    for row in routed:
        headers = row.get("headers") or {}
        if algorithm == "tokens":
            token = first_tokens(row["message_id"], [row["handler"]])
            connection.run(TokenStore(connection.table).issue(token))
            headers = with_token(headers, first_name(row["message_id"]))
        row["headers"] = json.dumps(headers) if headers else None
    connection.close()
    table = pa.Table.from_pylist(routed, fold_schema(body))
    job = FoldJob(
        app,
        place.store,
        place.table,
        BatchContext("night"),
        BatchOptions(algorithm=algorithm, handler_timeout=QUICK, worker_memory=None),
        is_supervised=True,
    )
    found = [row for batch in job.fold(table.to_batches()) for row in batch.to_pylist()]
    return Counter((row["message_id"], row["reason"] or row["status"]) for row in found)


def expected(given: Sequence[HostileMessage]) -> Counter[End]:
    return Counter(end for message in given for end in message.ends)


@pytest.fixture(autouse=True)
def a_retried_task(monkeypatch):
    """Run tasks as if a worker had died before: calls are made in a copy of the process first."""
    context = SimpleNamespace(attemptNumber=lambda: 1)
    monkeypatch.setattr(supervision, "TaskContext", SimpleNamespace(get=lambda: context))


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize(("store", "body"), [("sqlite", TEXT), ("sqlite", PACKED), ("azurite", TEXT)])
def test_in_a_partition_of_a_batch(tmp_path, request, algorithm, store, body):
    """Those that are processed make a version each, and the others none."""
    given = messages() if body is TEXT else packed_messages()
    url = f"sqlite:///{tmp_path}/store.db" if store == "sqlite" else request.getfixturevalue("azurite_url")
    place = TablePlace(url, new_name())

    assert fold(place, algorithm, given, body) == expected(given)

    async def count(table: Table) -> int:
        return sum([each.head.versions async for each in summaries(table)])

    if algorithm == "state-based":
        connection = Connection(place)
        assert connection.run(count(connection.table)) == [each.end for each in given].count("processed")
        connection.close()


@pytest.fixture
def _own_alarm() -> Iterator[None]:
    """Give the signal to the test, which whoever bounds the time of tests may use."""
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.usefixtures("_own_alarm")
@pytest.mark.parametrize("algorithm", ONE_QUICKLY)
def test_one_at_a_time(algorithm):
    # a consumer that is killed is not one that goes on
    given = [message for message in messages() if message.end != "handler_crashed"]

    async def publish(_: Output) -> None: ...

    async def process() -> list[Outcome]:
        async with connect("memory:") as store:
            processor = Processor(
                app, await store.table("games"), publish, algorithm=algorithm, handler_timeout=QUICK
            )
            sent = [await processor.issue(message.envelope()) for message in given]
            return [outcome for message in sent for outcome in await processor.process(message)]

    outcomes = asyncio.run(process())

    found = Counter((each.envelope.message_id, str(each.reason or each.status)) for each in outcomes)
    assert found == expected(given)

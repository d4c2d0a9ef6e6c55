"""A batch whose handlers store documents, some of whose workers are killed: what is announced is there, and no more."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path

import pytest
from pyspark.sql import DataFrame

from eventstore import Operation, connect
from eventstore.port import Verb
from runtime import Output, Processor, UsageError
from runtime.documents.registrations import PREFIX
from runtime.spark import run_batch, run_stream
from runtime.spark.streaming.source import open_source
from samples.invoices import app
from samples.invoices.messages import InvoiceIssued
from tests.support.faults import DieOnceAfter
from tests.support.outcomes import by_status

ORDERS, CUSTOMERS = 12, 3


@dataclass(frozen=True)
class KillOnceAfter(DieOnceAfter):
    """Kills the worker, by SIGKILL, after the first transaction of a kind."""

    def after(self, partition_key: str, operations: Sequence[Operation]) -> None:
        if self.sign(partition_key, operations) and not Path(self.marker).exists():
            Path(self.marker).touch()
            os.kill(os.getpid(), signal.SIGKILL)


def registers(_: str, operations: Sequence[Operation]) -> bool:
    return any(each.verb is Verb.INSERT and each.row_key.startswith(PREFIX) for each in operations)


def commits(_: str, operations: Sequence[Operation]) -> bool:
    return any(each.verb is Verb.DELETE and each.row_key.startswith(PREFIX) for each in operations)


def orders(folder: Path) -> str:
    """Write a log in which every third order comes twice."""
    rows = [
        {
            "message_id": f"o-{number}",
            "type": "PlaceOrder",
            "body": json.dumps({"customer": f"c-{number % CUSTOMERS}", "item": "A book", "price": "9.90"}),
        }
        for number in range(ORDERS)
    ]
    log = folder / "orders.jsonl"
    log.write_text("".join(f"{json.dumps(row)}\n" for row in [*rows, *rows[::3]]))
    return str(log)


def announced(outcomes: DataFrame) -> list[InvoiceIssued]:
    outputs = [output for row in outcomes.collect() for output in row.outputs]
    return [InvoiceIssued.model_validate_json(output.body) for output in outputs]


def files(folder: Path) -> dict[str, str]:
    """Return the SHA-256 of each document by its name."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): sha256(path.read_bytes()).hexdigest() for path in found}


def counted(**statuses: int) -> dict[tuple[str, str], int]:
    return {("Invoices", status): count for status, count in statuses.items()}


def sweep(place, documents: Path) -> int:
    async def nothing(_: Output) -> None:
        """Publish nothing."""

    async def work() -> int:
        async with connect(place.store) as store:
            processor = Processor(app, await store.table(place.table), nothing, documents=str(documents))
            return await processor.sweep(timedelta())

    return asyncio.run(work())


@pytest.mark.thorough
@pytest.mark.parametrize(("sign", "least"), [(registers, 1), (commits, 0)])
def test_a_killed_worker_leaves_nothing_wrong_and_a_sweep_leaves_nothing_over(place, sign, least):
    documents, log = place.folder / "documents", orders(place.folder)
    marker = place.folder / "died"

    outcomes = place.run(log, app=app, documents=str(documents), wrap=KillOnceAfter(str(marker), sign))

    assert marker.exists()
    assert by_status(outcomes) == counted(processed=ORDERS, duplicate=ORDERS // 3)
    assert sweep(place, documents) >= least
    told = {issued.document.name: issued.document.sha256 for issued in announced(outcomes)}
    assert len(told) == ORDERS
    assert files(documents) == told


@pytest.mark.thorough
def test_another_batch_with_the_same_messages_announces_the_same_documents(place):
    documents, log = place.folder / "documents", orders(place.folder)
    first = place.run(log, app=app, documents=str(documents))
    before = files(documents)

    again = place.run(log, app=app, documents=str(documents))

    assert by_status(again) == counted(duplicate=ORDERS + ORDERS // 3)
    assert announced(again) == announced(first)
    assert files(documents) == before


@pytest.mark.thorough
def test_the_micro_batches_of_a_stream_store_documents_too(place):
    documents, incoming = place.folder / "documents", place.folder / "incoming"
    incoming.mkdir()
    lines = Path(orders(place.folder)).read_text().splitlines(keepends=True)
    for number in range(2):
        (incoming / f"{number}.jsonl").write_text("".join(lines[number::2]))

    query = run_stream(
        open_source(place.spark, str(incoming), "json", max_files=1), app=app, store=place.store, table=place.table,
        out=place.out, query="orders", checkpoint=str(place.folder / "checkpoint"), trigger="available-now",
        partitions=2, documents=str(documents),
    )  # fmt: skip
    query.awaitTermination()

    told = {
        each.document.name: each.document.sha256 for each in announced(place.spark.read.parquet(place.out))
    }
    assert len(told) == ORDERS
    assert files(documents) == told


def test_an_outbox_takes_no_store_of_documents(place):
    with pytest.raises(UsageError, match="Only the algorithm state-based stores documents"):
        run_batch(
            place.spark, "log", app, store=place.store, table=place.table, out=place.out, algorithm="outbox",
            documents="documents",
        )  # fmt: skip

"""A batch whose handlers store documents, some of whose workers are killed: what is announced is there, and no more."""

from __future__ import annotations

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyarrow import dataset, fs
from pyspark.sql import DataFrame

from eventstore import Operation, connect
from eventstore.port import Verb
from runtime import Output, Processor, UsageError
from runtime.documents.protocol import PREFIX
from runtime.file_systems import open_folder, within
from runtime.spark import run_batch, run_stream
from runtime.spark.streaming.query import open_source
from samples.invoices import app
from samples.invoices.handlers import InvoiceIssued
from tests.support.faults import DieOnceAfter
from tests.support.outcomes import by_status
from tests.support.streaming import put, stream

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


@pytest.mark.thorough
def test_a_stream_stores_documents_beside_its_outcomes_on_an_object_store(place, object_store):
    # Given two files of orders, and a query whose OUT and documents are on an object store
    incoming, out, documents = (
        place.folder / "incoming",
        within(object_store, "out"),
        within(object_store, "docs"),
    )
    incoming.mkdir()
    lines = Path(orders(place.folder)).read_text().splitlines(keepends=True)
    for number in range(2):
        put(incoming, number, "".join(lines[number::2]))

    # When it has run both, and is started again without anything new
    options: dict[str, Any] = {"app": app, "out": out, "documents": documents}
    assert stream(place, incoming, **options) == [0, 1]
    assert stream(place, incoming, **options) == []

    # Then each epoch is there, and each document that is announced, and no other one
    folder = open_folder(out)
    rows = dataset.dataset(folder.path, filesystem=folder.files, partitioning="hive").to_table().to_pylist()
    assert {row["batch_id"] for row in rows} == {"shots-0", "shots-1"}
    assert Counter(row["status"] for row in rows) == {"processed": ORDERS, "duplicate": ORDERS // 3}
    bodies = (output["body"] for row in rows for output in row["outputs"])
    told = {each.document for each in map(InvoiceIssued.model_validate_json, bodies)}
    assert len(told) == ORDERS
    assert stored(documents) == {each.name: each.sha256 for each in told}


def stored(documents: str) -> dict[str, str]:
    """Return the SHA-256 of each document in a folder of any store by its name."""
    found = open_folder(documents)
    all_of_it = fs.FileSelector(found.path, recursive=True)
    files = [each for each in found.files.get_file_info(all_of_it) if each.type is fs.FileType.File]
    return {
        each.path.removeprefix(f"{found.path}/"): sha256(
            found.files.open_input_file(each.path).read()
        ).hexdigest()
        for each in files
    }


def test_an_outbox_takes_no_store_of_documents(place):
    with pytest.raises(UsageError, match="Only the algorithm state-based stores documents"):
        run_batch(
            place.spark, "log", app, store=place.store, table=place.table, out=place.out, algorithm="outbox",
            documents="documents",
        )  # fmt: skip

"""A batch whose handlers store documents, some of whose workers are killed: what is announced is there, and no more."""

import asyncio
import json
import os
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
from pyarrow import dataset, fs

from eventstore import Operation, connect
from eventstore.port import Verb
from runtime import Output, Processor
from runtime.documents import PREFIX
from runtime.file_systems import open_folder, within
from samples.invoices import InvoiceIssued, app
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


def announced(bodies: Iterable[str]) -> dict[str, str]:
    """Return the SHA-256 of each document that is told of, by its name."""
    issued = map(InvoiceIssued.model_validate_json, bodies)
    return {each.document.name: each.document.sha256 for each in issued}


def stored(documents: str) -> dict[str, str]:
    """Return the SHA-256 of each document in a folder of any store by its name."""
    folder = open_folder(documents)
    found = folder.files.get_file_info(fs.FileSelector(folder.path, recursive=True))
    return {
        each.path.removeprefix(f"{folder.path}/"): sha256(
            folder.files.open_input_file(each.path).read()
        ).hexdigest()
        for each in found
        if each.is_file
    }


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
    assert by_status(outcomes) == {("Invoices", "processed"): ORDERS, ("Invoices", "duplicate"): ORDERS // 3}
    assert sweep(place, documents) >= least
    bodies = [output.body for row in outcomes.collect() for output in row.outputs]
    assert len(bodies) == ORDERS
    assert stored(str(documents)) == announced(bodies)


@pytest.mark.thorough
def test_a_stream_stores_documents_beside_its_outcomes_on_an_object_store(place, object_store):
    # Given two files of orders, and a query whose OUT and documents are on an object store
    out, documents = within(object_store, "out"), within(object_store, "docs")
    (incoming := place.folder / "incoming").mkdir()
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
    told = announced(output["body"] for row in rows for output in row["outputs"])
    assert len(told) == ORDERS
    assert stored(documents) == told

"""What there is when a batch has ended, in a form that can be compared with that of an undisturbed one."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pyarrow import parquet

from eventstore import Row, connect, drive
from eventstore.port import pages
from runtime.algorithms.outbox.stores import HEADER
from runtime.batch_options import TablePlace
from runtime.ledger.ledger import PARTITION as BATCHES
from runtime.versions.index import PREFIX

_DRAWN = re.compile(r"[0-9a-f]{32}")
"""What an attempt draws: names of files and of folders, tokens of outputs."""

_PART = re.compile(r"(part-|_batch-)[0-9a-f-]+")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Found:
    """The rows of the table, the outcomes of each delivery, and the files that are there."""

    rows: Mapping[tuple[str, str], str]
    outcomes: list[str]
    files: list[str]

    def differences(self, expected: Found) -> list[str]:
        return [
            *_of_rows(self.rows, expected.rows),
            *_of_lists("outcome", self.outcomes, expected.outcomes),
            *_of_lists("file", self.files, expected.files),
        ]


def look(place: TablePlace, folder: Path, out: Path) -> Found:
    """Look at the table, at the outcomes, and at all files of the folder in which they are."""
    return Found(
        dict(wait_for(place.store, _rows(place, folder))),
        sorted(_outcomes(out)),
        sorted(_PART.sub(r"\1*", str(path.relative_to(folder))) for path in folder.rglob("*")),
    )


def wait_for(url: str, work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that reads a store of this machine or of the network."""
    return drive(work) if url.startswith("sqlite") else asyncio.run(work)


async def _rows(place: TablePlace, folder: Path) -> list[tuple[tuple[str, str], str]]:
    async with connect(place.store) as store:
        table = await store.table(place.table)
        found = pages(lambda **given: table.scan(None, **given))
        return [_shown(row, folder) async for page in found for row in page.rows]


def _shown(row: Row, folder: Path) -> tuple[tuple[str, str], str]:
    values = dict(row.properties)
    if row.partition_key == BATCHES:
        values.pop("Token", None)
    if row.row_key.startswith(PREFIX):  # hashes have a key that is drawn
        values = {name: value for name, value in values.items() if name != "Key" and "Hashes" not in name}
    text = repr(sorted(values.items())).replace(str(folder), "")
    keys = (_without_drawn(row.partition_key), _without_drawn(row.row_key))
    return keys, _without_drawn(text)


def _without_drawn(text: str) -> str:
    return _DRAWN.sub("*", text)


def _outcomes(out: Path) -> Iterator[str]:
    for path in out.glob("batch_id=*/round=*/*.parquet"):
        for row in parquet.ParquetFile(path).read().to_pylist():
            for output in row["outputs"]:
                output["headers"] = [each for each in output["headers"] or () if each[0] != HEADER]
            yield repr((path.parent.name, row))


def _of_rows(found: Mapping[Any, str], expected: Mapping[Any, str]) -> Iterator[str]:
    for key in sorted({*found, *expected}):
        if found.get(key) != expected.get(key):
            yield f"row {key}: {found.get(key, 'is not there')}, expected {expected.get(key, 'none')}"


def _of_lists(what: str, found: list[str], expected: list[str]) -> Iterator[str]:
    yield from (
        f"{what} that should not be there: {each}" for each in (Counter(found) - Counter(expected)).elements()
    )
    yield from (
        f"{what} that is not there: {each}" for each in (Counter(expected) - Counter(found)).elements()
    )

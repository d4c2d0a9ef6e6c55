"""The logs that the contenders work on: made by the sample's generator, and kept until its code changes.

A log is shuffled, and stands as a few Parquet files in a folder, with the states that it must lead to beside it.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.shooting import Delivery, States, final_states
from samples.shooting_range import handlers as shooting_range
from samples.shooting_range import log as generator

CACHE = Path(__file__).parent / ".cache"
_FILES = 4
SCHEMA = pa.schema(
    [
        ("message_id", pa.string()),
        ("type", pa.string()),
        ("body", pa.string()),
        ("sequence", pa.int64()),
        ("enqueued_at", pa.timestamp("us", tz="UTC")),
    ]
)


@dataclass(frozen=True, slots=True)
class Log:
    """A log on disk. `messages` counts different messages, `deliveries` also their copies."""

    folder: Path
    messages: int
    streams: int
    deliveries: int

    @property
    def path(self) -> str:
        """The folder of Parquet files."""
        return str(self.folder / "messages")

    def expected(self) -> States:
        """Return the states that the log must lead to."""
        states: States = json.loads((self.folder / "states.json").read_text())
        return states

    def in_order(self) -> Sequence[Delivery]:
        """Return all deliveries in the order in which they were sent, as a queue without trouble gives them."""
        rows = pq.read_table(self.path).sort_by("sequence")
        columns = [rows.column(name).to_pylist() for name in Delivery._fields]
        return [Delivery(*values) for values in zip(*columns, strict=True)]


def open_log(messages: int, streams: int, duplicates: float = 0.0, cache: Path = CACHE) -> Log:
    """Return a log of this size, with a share of `duplicates`; it is made when it is not in the cache."""
    name = f"{messages}-messages-{streams}-streams-{duplicates:g}-duplicates-{_code()}"
    log = Log(cache / "logs" / name, messages, streams, messages + round(messages * duplicates))
    if not log.folder.is_dir():
        _make(log, duplicates)
    return log


def _make(log: Log, duplicates: float) -> None:
    making = log.folder.with_suffix(".part")
    shutil.rmtree(making, ignore_errors=True)
    (making / "messages").mkdir(parents=True)
    rows = list(generator.generate(log.streams, log.messages, duplicates=duplicates, shuffle=True))
    for number in range(_FILES):
        table = pa.Table.from_pylist(rows[number::_FILES], SCHEMA)
        pq.write_table(table, making / "messages" / f"part-{number}.parquet")
    rows.sort(key=lambda row: row["sequence"])
    states = final_states(Delivery(row["message_id"], row["type"], row["body"]) for row in rows)
    (making / "states.json").write_text(json.dumps(states))
    making.rename(log.folder)


def _code() -> str:
    """Return a digest of the code that a log comes from."""
    files = (Path(module.__file__ or "") for module in (generator, shooting_range))
    return sha256(b"".join(file.read_bytes() for file in files)).hexdigest()[:8]

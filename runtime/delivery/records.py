"""Records of deliveries: what became of each message, in Parquet files that are only ever added.

A record is `final`, or it says that the next delivery tries the message again: then the newest record counts. What a
process had not written when it was killed is told by the keys, and written by the delivery that goes on.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from uuid import uuid4

import pyarrow as pa
import pyarrow.parquet as pq

from runtime.delivery.outgoing import OutgoingMessage
from runtime.file_systems import Folder, open_folder

SCHEMA = pa.schema(
    [
        pa.field("message_id", pa.string(), nullable=False),
        ("batch_id", pa.string()),
        pa.field("type", pa.string(), nullable=False),
        pa.field("customer", pa.string(), nullable=False),
        pa.field("result", pa.string(), nullable=False),
        ("reason", pa.string()),
        pa.field("sends", pa.int32(), nullable=False),
        pa.field("is_final", pa.bool_(), nullable=False),
        pa.field("at", pa.timestamp("us", tz="UTC"), nullable=False),
    ]
)

_SUFFIX = ".parquet"
_STAGING = "_writing"  # readers of Parquet pass over names that begin like this
_LONGEST_SECONDS = 10.0


class Result(StrEnum):
    """What became of a message."""

    SENT = "sent"
    NOT_SENT = "not_sent"
    UNKNOWN = "unknown"
    FILTERED = "filtered"


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """What became of a message, why, how often this delivery tried to send it, and when that was decided."""

    message_id: str
    batch_id: str | None
    type: str
    customer: str
    result: Result
    reason: str | None
    sends: int
    is_final: bool
    at: datetime

    @classmethod
    def of(
        cls, message: OutgoingMessage, result: Result, reason: str | None, sends: int, *, is_final: bool
    ) -> DeliveryRecord:
        """Return the record of a message that was decided now."""
        return cls(
            message.message_id,
            message.batch_id,
            message.type,
            message.customer,
            result,
            reason,
            sends,
            is_final,
            datetime.now(UTC),
        )


class RecordFiles:
    """The records in a folder. Those that are added are written when they are `most`, after ten seconds, by `flush`."""

    def __init__(
        self, folder: Folder, *, most: int = 10_000, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._folder = folder
        self._most = most
        self._clock = clock
        self._waiting: list[DeliveryRecord] = []
        self._written_at = clock()

    @classmethod
    def open(cls, place: str | Path, *, most: int = 10_000) -> RecordFiles:
        """Return the records in a folder or behind a url, whether they are there or not. Raises `UsageError`."""
        url = str(place)
        return cls(open_folder(url.rstrip("/") if ":" in url else str(Path(url).absolute())), most=most)

    @property
    def name(self) -> str:
        """What tells this folder from others."""
        return str(self._folder.path)

    def finals(self) -> set[str]:
        """Return the ids of the messages that are done."""
        done: set[str] = set()
        for part in self._parts():
            with self._folder.read(part) as opened:
                table = pq.read_table(opened, columns=["message_id", "is_final"])
            done.update(table.filter(table["is_final"])["message_id"].to_pylist())
        return done

    def counts(self) -> Counter[str]:
        """Count the messages by result, each by its newest record."""
        newest: dict[str, tuple[datetime, str]] = {}
        for part in self._parts():
            with self._folder.read(part) as opened:
                for row in pq.read_table(opened, columns=["message_id", "result", "at"]).to_pylist():
                    found = (row["at"], row["result"])
                    newest[row["message_id"]] = max(found, newest.get(row["message_id"], found))
        return Counter(result for _, result in newest.values())

    def add(self, record: DeliveryRecord) -> None:
        """Add a record, and write those that wait if they are many or wait for long."""
        self._waiting.append(record)
        if len(self._waiting) >= self._most or self._clock() - self._written_at >= _LONGEST_SECONDS:
            self.flush()

    def flush(self) -> None:
        """Write the records that wait, so that they survive a crash. Readers see the file whole or not at all."""
        waiting, self._waiting = self._waiting, []
        self._written_at = self._clock()
        if waiting:
            self._write(waiting)

    def _write(self, records: Sequence[DeliveryRecord]) -> None:
        name = f"records-{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid4().hex}{_SUFFIX}"
        staging = self._folder.sub(_STAGING)
        staging.create()
        with staging.write(name) as opened:
            pq.write_table(pa.Table.from_pylist([asdict(each) for each in records], SCHEMA), opened)
        staging.flush(name)
        staging.move_file(name, self._folder)
        staging.delete_if_empty()
        self._folder.flush()

    def _parts(self) -> Sequence[str]:
        return sorted(name for name in self._folder.sizes() if name.endswith(_SUFFIX))

"""A batch as the ledger has it, and the row that holds it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from eventstore import Int64, Row, Value
from runtime.batches.open_batches import BatchKey
from runtime.errors import BatchRefusedError
from runtime.storage.damage import reading_row
from runtime.storage.properties import INT32, number, text, time

STATE_BASED = "state-based"

EPOCH = "epoch "
"""Begins what describes the input of a micro-batch."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_COUNT = "Count_"


class BatchStatus(StrEnum):
    """How far a batch has come."""

    STARTED = "started"
    PUBLISHED = "published"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class BatchRecord:
    """A batch as the ledger has it.

    `input` describes log, app and options: the same id with another one is refused. `rounds` counts the rounds
    whose outcomes are committed, `last_routable` the outputs of the last one that a handler takes. `token` is
    drawn when the batch begins, and marks its folders. `algorithm` names the algorithm, and the place of its
    de-duplication store or token store. `number` counts the batches of the table, from 1 on. `attempt` names the
    attempt at the next round that counts, once that is decided: where folders are not moved as a whole.
    """

    batch_id: str
    input: str
    out: str
    token: str
    status: BatchStatus
    rounds: int
    started_at: datetime
    updated_at: datetime
    counts: Mapping[str, int]
    last_routable: int = 0
    algorithm: str = STATE_BASED
    etag: str = ""
    number: int = 0
    attempt: str = ""

    @property
    def key(self) -> BatchKey:
        """What versions and entries of the batch record."""
        return BatchKey(self.batch_id, self.number)

    @property
    def is_epoch(self) -> bool:
        """Whether it is a micro-batch of a stream."""
        return self.input.startswith(EPOCH)

    @property
    def is_finished(self) -> bool:
        """Whether nothing more will be published under this id."""
        return self.status is not BatchStatus.STARTED


def check_id(batch_id: str) -> None:
    """Raise `BatchRefusedError` for an id that is not usable."""
    if not _ID.fullmatch(batch_id):
        message = f"The batch id {batch_id!r} is not usable: up to 64 letters, digits, '.', '_' and '-'."
        raise BatchRefusedError(message)


def record_properties(record: BatchRecord) -> dict[str, Value]:
    """Return the properties of a batch's row."""
    return {
        "Input": record.input,
        "Out": record.out,
        "Token": record.token,
        "Status": record.status.value,
        "Rounds": record.rounds,
        "LastRoutable": Int64(record.last_routable),
        "Algorithm": record.algorithm,
        "StartedAt": record.started_at,
        "UpdatedAt": record.updated_at,
        "Number": Int64(record.number),
        **({"Attempt": record.attempt} if record.attempt else {}),
        **{f"{_COUNT}{name}": Int64(count) for name, count in record.counts.items()},
    }


def read_record(row: Row) -> BatchRecord:
    """Return the batch that a row holds. Raises `StoredDataError`."""
    with reading_row(f"The batch {row.row_key}", row):
        values = row.properties
        return BatchRecord(
            batch_id=row.row_key,
            input=text(values, "Input"),
            out=text(values, "Out"),
            token=text(values, "Token"),
            status=BatchStatus(text(values, "Status")),
            rounds=number(values, "Rounds", most=INT32),
            started_at=time(values, "StartedAt"),
            updated_at=time(values, "UpdatedAt"),
            counts={
                name.removeprefix(_COUNT): number(values, name) for name in values if name.startswith(_COUNT)
            },
            last_routable=number(values, "LastRoutable"),
            algorithm=text(values, "Algorithm"),
            etag=row.etag,
            number=number(values, "Number"),
            attempt=text(values, "Attempt") if "Attempt" in values else "",
        )

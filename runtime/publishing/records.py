"""What the table of a batch knows of its publications: which slices are sent, and who is sending the others.

All rows are in one partition. A publication is one batch, sent to one target; it keeps the number of its slices. Each
slice that was begun has a row: its lease, how many of its outputs are noted as sent, and whether all are. An output
that a target refused has a row of its own, a dead letter.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from eventstore import (
    Int64,
    Operation,
    Row,
    RowChangedError,
    RowExistsError,
    RowNotFoundError,
    Table,
    Value,
    pages,
)
from runtime.batches.record import BatchRecord
from runtime.clock import Clock, to_datetime, to_microseconds
from runtime.errors import UsageError
from runtime.publishing.publisher import Refused, Target
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage.damage import expect, reading_row
from runtime.storage.properties import number, text, time

PARTITION = "_publishing"
PUBLICATION, SLICE, REFUSED = "p:", "s:", "r:"
LAST = "\U0010ffff"


@dataclass(frozen=True, slots=True)
class Publication:
    """A batch that is published to a target. `key` names its rows, and its markers in the target."""

    key: str
    target: str
    slices: int
    started_at: datetime

    @property
    def marker(self) -> str:
        """What its slices are called in the target. Cut otherwise, they are other slices."""
        return f"{self.key}-{self.slices}"

    @property
    def batch_id(self) -> str:
        """The batch that is published."""
        return self.key.rpartition("-")[0]

    def check_slices(self, asked: int | None) -> None:
        """Raise `UsageError` when it was begun with another number of slices than is asked for."""
        if asked not in (None, self.slices):
            message = (
                f"This publication was begun with {self.slices} slices, and goes on with as many: leave out --slices, "
                f"or write --slices {self.slices}."
            )
            raise UsageError(message)


@dataclass(frozen=True, slots=True)
class SliceRecord:
    """A slice that was begun.

    `position` counts the outputs that are noted as sent, `in_doubt` those at its end of which only that is known: they
    were noted before. `first_at` is when the slice was first begun; times in microseconds since 1970 UTC.
    """

    holder: str
    token: str
    expires_at: int
    first_at: int
    position: int = 0
    in_doubt: int = 0
    is_sent: bool = False
    etag: str = ""


class Letter(NamedTuple):
    """An output that a target refused, as it is kept."""

    refused: Refused
    etag: str


def key_of(record: BatchRecord, target: Target, types: Collection[str]) -> str:
    """Return the key of a publication: the same for the same batch, target, and types that are published."""
    described = json.dumps([record.token, target.identity, sorted(types)])
    return f"{record.batch_id}-{sha256(described.encode()).hexdigest()[:12]}"


class Publications:
    """The publications of one table."""

    def __init__(self, table: Table, clock: Clock, retries: RetryPolicy | None = None) -> None:
        self._table = table
        self._clock = clock
        self._retries = (retries or RetryPolicy()).beside(table)

    async def find(self, key: str) -> Publication | None:
        """Return the publication of a key, None when it was not begun. One request."""
        row = await self._table.get(PARTITION, publication_key(key))
        return None if row is None else read_publication(row)

    async def every(self) -> AsyncIterator[Publication]:
        """Give all publications. A request for each 1,000."""
        async for row in self._rows(PUBLICATION):
            yield read_publication(row)

    async def begin(self, key: str, target: str, slices: int | None, default_slices: int) -> Publication:
        """Begin a publication, or return the one that was begun. One or two requests.

        Raises `UsageError` when it was begun with another number of slices than is asked for.
        """
        found = await until_undisturbed(
            self._retries, partial(self._begin, key, target, slices or default_slices)
        )
        found.check_slices(slices)
        return found

    async def _begin(self, key: str, target: str, slices: int) -> Publication:
        found = await self.find(key)
        if found is not None:
            return found
        asked = Publication(key, target, slices, to_datetime(self._clock()))
        properties: dict[str, Value] = {"Target": target, "Slices": slices, "StartedAt": asked.started_at}
        try:
            await self._table.transact(PARTITION, [Operation.insert(publication_key(key), properties)])
        except RowExistsError:
            return await self._begin(key, target, slices)
        return asked

    async def slices(self, publication: Publication) -> dict[int, SliceRecord]:
        """Return the slices that were begun, by number. A request for each 1,000."""
        prefix = slice_prefix(publication.key)
        return {number_of_slice(row): read_slice(row) async for row in self._rows(prefix)}

    async def refused(self, publication: Publication) -> list[Refused]:
        """Return the outputs that the target refused. A request for each 1,000."""
        return [letter.refused for letter in await self.letters(publication)]

    async def letters(self, publication: Publication) -> list[Letter]:
        """Return the outputs that the target refused, as they are kept. A request for each 1,000."""
        return [read_refused(row) async for row in self._rows(refusal_prefix(publication.key))]

    async def keep(self, publication: Publication, letter: Letter, why: str) -> Letter | None:
        """Give a letter another reason; None when somebody else has changed it since it was read. One request."""
        refused = letter.refused._replace(why=why)
        change = Operation.replace(refusal_key(publication, refused), _kept(refused), letter.etag)
        try:
            (etag,) = await self._table.transact(PARTITION, [change])
        except (RowChangedError, RowNotFoundError):
            return None
        return Letter(refused, etag)

    async def drop(self, publication: Publication, letter: Letter) -> None:
        """Delete a letter, which is sent now, unless somebody else has. One request."""
        with suppress(RowNotFoundError):
            key = refusal_key(publication, letter.refused)
            await self._table.transact(PARTITION, [Operation.delete(key)])

    async def _rows(self, prefix: str) -> AsyncIterator[Row]:
        async for page in pages(partial(self._table.query, PARTITION, prefix, prefix + LAST)):
            for row in page.rows:
                yield row


def publication_key(key: str) -> str:
    """Return the row key of a publication."""
    return f"{PUBLICATION}{key}"


def slice_prefix(key: str) -> str:
    """Return what the row keys of the slices of a publication begin with."""
    return f"{SLICE}{key}:"


def slice_key(publication: Publication, number_: int) -> str:
    """Return the row key of a slice."""
    return f"{slice_prefix(publication.key)}{number_:06}"


def number_of_slice(row: Row) -> int:
    """Return the number in the key of the row of a slice. Raises `StoredDataError`."""
    with reading_row("The key of a slice", row):
        return int(row.row_key.rpartition(":")[2])


def refusal_prefix(key: str | None = None) -> str:
    """Return what the row keys of the outputs begin with that were refused in a publication, or in any."""
    return REFUSED if key is None else f"{REFUSED}{key}:"


def slice_properties(record: SliceRecord) -> dict[str, Value]:
    """Return the properties of the row of a slice."""
    return {
        "Holder": record.holder,
        "Token": record.token,
        "ExpiresAt": to_datetime(record.expires_at),
        "FirstAt": to_datetime(record.first_at),
        "Position": Int64(record.position),
        "InDoubt": record.in_doubt,
        "IsSent": record.is_sent,
    }


def read_slice(row: Row) -> SliceRecord:
    """Return the slice that a row holds. Raises `StoredDataError`."""
    values = row.properties
    with reading_row("The slice of a publication", row):
        return SliceRecord(
            holder=text(values, "Holder"),
            token=text(values, "Token"),
            expires_at=to_microseconds(time(values, "ExpiresAt")),
            first_at=to_microseconds(time(values, "FirstAt")),
            position=number(values, "Position"),
            in_doubt=number(values, "InDoubt"),
            is_sent=expect(values["IsSent"], bool),
            etag=row.etag,
        )


def refusals(publication: Publication, refused: Sequence[Refused]) -> list[Operation]:
    """Return what keeps the outputs that a target refused. Repeated, it changes nothing."""
    return [Operation.insert_or_replace(refusal_key(publication, each), _kept(each)) for each in refused]


def refusal_key(publication: Publication, refused: Refused) -> str:
    """Return the row key of an output that a target refused."""
    return f"{refusal_prefix(publication.key)}{refused.message_id}"


def _kept(refused: Refused) -> dict[str, Value]:
    return {
        "Type": refused.type,
        "BusinessId": refused.business_id,
        "Handler": refused.handler,
        "Why": refused.why[:1000],
    }


def read_publication(row: Row) -> Publication:
    """Return the publication that a row holds. Raises `StoredDataError`."""
    values = row.properties
    with reading_row("A publication", row):
        target, started_at = text(values, "Target"), time(values, "StartedAt")
        return Publication(
            row.row_key.removeprefix(PUBLICATION), target, number(values, "Slices"), started_at
        )


def read_refused(row: Row) -> Letter:
    """Return the output that a target refused, as a row holds it. Raises `StoredDataError`."""
    values = row.properties
    with reading_row("An output that was refused", row):
        type_, business_id, why = (text(values, name) for name in ("Type", "BusinessId", "Why"))
        handler = text(values, "Handler")
        return Letter(Refused(row.row_key.split(":", 2)[2], type_, business_id, why, handler), row.etag)

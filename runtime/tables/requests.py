"""What is read of a store, as one value: a kind of table, its options, and the batches that they give."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from enum import StrEnum

import pyarrow as pa

from eventstore import KeyRange, Table
from handlers import App
from runtime.batches.settings import TableSettings
from runtime.clock import to_microseconds
from runtime.errors import UsageError
from runtime.tables.as_of import AsOf, AsOfTime, end_of_batch
from runtime.tables.change_feed import ChangeFeed, change_feed
from runtime.tables.columns import Columns, chosen
from runtime.tables.ledger import BATCH_COLUMNS, batches
from runtime.tables.letters import LETTER_COLUMNS, letters
from runtime.tables.models import StateColumns, model_of
from runtime.tables.outputs import Outputs
from runtime.tables.states import columns_of_states, states
from runtime.tables.versions import columns_of_versions, versions
from runtime.tables.wanted import ALL, Wanted


class Kind(StrEnum):
    """The tables as which a store can be read."""

    STATE = "state"
    VERSIONS = "versions"
    BATCHES = "batches"
    LETTERS = "letters"


_OF_STREAMS = {"handler": "handler", "business_id": "business_id", "now": "time"}
_FIELDS: Mapping[Kind, Mapping[str, str]] = {
    Kind.STATE: _OF_STREAMS,
    Kind.VERSIONS: _OF_STREAMS,
    Kind.BATCHES: {},
    Kind.LETTERS: {"handler": "handler", "stream": "business_id", "refused_at": "time"},
}
"""Which columns narrow what is read."""


@dataclass(frozen=True, slots=True)
class Request:
    """What is read: one kind of table, with the options that it has.

    `as_of`, a time in microseconds since 1970 UTC, and `batch_id` are options of states; those of the change feed, of
    versions, like `outputs`. With an `app` states are structs with the fields of the handler's model.
    """

    kind: Kind
    wanted: Wanted = field(default_factory=Wanted)
    as_of: int | None = None
    batch_id: str | None = None
    change_feed: bool = False
    change_start: str | None = None
    change_end: str | None = None
    app: App | None = None
    outputs: Outputs | None = None

    def __post_init__(self) -> None:
        if self.app is not None and not isinstance(self.app, App):
            raise UsageError(f"The app is to be an App, not {self.app!r}.")
        if self.as_of is not None and self.batch_id is not None:
            raise UsageError("Give a time or a batch to read states as of, not both.")
        if not self.change_feed and (self.change_start, self.change_end) != (None, None):
            raise UsageError("The start and the end of a change feed go with the change feed itself.")

    @property
    def columns(self) -> Columns:
        """The columns that are asked for. Raises `UsageError` for one that is not there."""
        return chosen(self._all_columns, self.wanted.columns)

    @property
    def schema(self) -> pa.Schema:
        """The columns that are asked for, as Arrow has them."""
        return pa.schema(list(self.columns.items()))

    def with_columns(self, names: Sequence[str]) -> Request:
        """Return the same request for some columns. Raises `UsageError` for one that is not there."""
        chosen(self._all_columns, names)
        return replace(self, wanted=replace(self.wanted, columns=tuple(names)))

    def narrowed(self, column: str, relation: str, value: object) -> Request:
        """Return what remains to be read for rows that meet a condition, and perhaps for others.

        `relation` is one of `==`, `>`, `>=`, `<`, `<=`. Conditions on other columns than those of the stream and the
        time change nothing, nor does a second one on the same column.
        """
        wanted = self.wanted
        match _FIELDS[self.kind].get(column), relation, value:
            case "handler", "==", str() if wanted.handler is None:
                wanted = replace(wanted, handler=value)
            case "business_id", "==", str() if wanted.business_id is None:
                wanted = replace(wanted, business_id=value)
            case "time", (">" | ">=" | "=="), datetime() if wanted.since is None:
                wanted = replace(wanted, since=moment(value))
            case "time", ("<" | "<="), datetime() if wanted.until is None:
                wanted = replace(wanted, until=moment(value))
        return replace(self, wanted=wanted)

    async def batches(self, table: Table, keys: KeyRange = ALL) -> AsyncIterator[pa.RecordBatch]:
        """Give what is asked for of a range of streams."""
        async for batch in await self._source(table, keys):
            yield batch

    async def _source(self, table: Table, keys: KeyRange) -> AsyncIterator[pa.RecordBatch]:
        match self.kind:
            case Kind.STATE:
                return states(table, self.wanted, await self._point(table), keys, self._model)
            case Kind.VERSIONS:
                feed, outputs = await self._feed(table), await self._outputs(table)
                return versions(table, self.wanted, keys, feed=feed, model=self._model, outputs=outputs)
            case Kind.BATCHES:
                return batches(table, self.wanted)
            case Kind.LETTERS:
                return letters(table, self.wanted)

    @property
    def _model(self) -> StateColumns:
        return model_of(self.app, self.wanted.handler)

    @property
    def _all_columns(self) -> Columns:
        match self.kind:
            case Kind.STATE:
                return columns_of_states(self._model)
            case Kind.VERSIONS:
                feed = ChangeFeed() if self.change_feed else None
                return columns_of_versions(self._model, feed, self.outputs)
            case Kind.BATCHES:
                return BATCH_COLUMNS
            case Kind.LETTERS:
                return LETTER_COLUMNS

    async def _point(self, table: Table) -> AsOf | None:
        if self.batch_id is not None:
            return await end_of_batch(table, self.batch_id)
        return None if self.as_of is None else AsOfTime(self.as_of)

    async def _outputs(self, table: Table) -> Outputs | None:
        if self.outputs is None:
            return None
        return self.outputs.keyed((await TableSettings.of(table)).draw_key)

    async def _feed(self, table: Table) -> ChangeFeed | None:
        return await change_feed(table, self.change_start, self.change_end) if self.change_feed else None


def moment(value: datetime | str | None) -> int | None:
    """Return a time in microseconds since 1970 UTC; text is ISO 8601, and a time without a zone is in UTC.

    Raises `UsageError`.
    """
    if value is None:
        return None
    if not isinstance(value, str | datetime):
        raise UsageError(f"{value!r} is no time: give a datetime, or text as 2026-03-01T12:00:00Z.")
    try:
        read = datetime.fromisoformat(value) if isinstance(value, str) else value
    except ValueError as error:
        raise UsageError(f"{value!r} is no time: write it as 2026-03-01T12:00:00Z.") from error
    return to_microseconds(read.replace(tzinfo=UTC) if read.tzinfo is None else read)

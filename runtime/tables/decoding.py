"""Versions column by column: each column of a run is decoded when it is asked for, and then once."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from runtime.messages.message_ids import IdKey
from runtime.storage.readable_captures import readable
from runtime.storage.run import ID_PROPERTIES, INDEX_PROPERTIES, Commit, Run, RunIndex, read_ids, read_index
from runtime.tables.columns import TEXT, TIME, Makers
from runtime.tables.id_texts import id_texts
from runtime.tables.models import StateColumns
from runtime.tables.streams import RUN, Part, run_of

_IDS = [*INDEX_PROPERTIES, *ID_PROPERTIES]


class Decoded:
    """The versions of a run, or of the tail."""

    def __init__(self, part: Part, model: StateColumns) -> None:
        self.stream, self._event = part
        self._model = model

    @cached_property
    def _indexes(self) -> Sequence[RunIndex]:
        if self._event is not None:
            return [read_index(self._event)]
        tail = self.stream.head.tail
        return [] if tail is None else tail.indexes()

    @property
    def first(self) -> int:
        """The number of the first version."""
        return self._indexes[0].first

    @cached_property
    def count(self) -> int:
        """How many versions there are."""
        return sum(index.count for index in self._indexes)

    @cached_property
    def commits(self) -> Sequence[Commit]:
        """The commit of each version."""
        commits = (commit for index in self._indexes for commit in index.commits)
        return [commit for commit in commits for _ in range(commit.length)]

    @cached_property
    def ids(self) -> Sequence[IdKey]:
        """The id of the message that made each version."""
        if "run" in self.__dict__:
            return self.run.ids
        if self._event is not None:
            return read_ids(self._event)
        tail = self.stream.head.tail
        return [] if tail is None else tail.ids()

    @cached_property
    def run(self) -> Run:
        """All that is stored."""
        return run_of(self.stream, self._event)

    @cached_property
    def states(self) -> Sequence[Any]:
        """The state before the first version and that after each, as values of their columns."""
        return self.read([*self.run.states_before(), self.run.after])

    @property
    def largest_state(self) -> int:
        """How many bytes the largest of these states takes."""
        return max(map(len, (self.run.before, *filter(None, self.run.versions.afters))))

    def read(self, encoded: Sequence[bytes]) -> Sequence[Any]:
        """Return encoded states as values of their columns."""
        return self._model.read(self.run.schema, encoded)


class Column(NamedTuple):
    """A column: its type, the properties of a run that tell it, and what gives its values."""

    type: pa.DataType
    needs: Sequence[str]
    values: Callable[[Decoded], Sequence[Any]]


COLUMNS = {
    "handler": Column(TEXT, INDEX_PROPERTIES, lambda some: [some.stream.handler] * some.count),
    "business_id": Column(TEXT, INDEX_PROPERTIES, lambda some: [some.stream.business_id] * some.count),
    "version": Column(pa.int64(), INDEX_PROPERTIES, lambda some: range(some.first, some.first + some.count)),
    "message_id": Column(TEXT, _IDS, lambda some: some.ids),
    "type": Column(TEXT, RUN, lambda some: some.run.versions.types),
    "now": Column(TIME, RUN, lambda some: some.run.versions.nows),
    "enqueued_at": Column(TIME, RUN, lambda some: some.run.versions.enqueued_at),
    "written_at": Column(TIME, INDEX_PROPERTIES, lambda some: [each.written_at for each in some.commits]),
    "batch": Column(TEXT, INDEX_PROPERTIES, lambda some: [each.batch for each in some.commits]),
    "batch_number": Column(pa.int64(), INDEX_PROPERTIES, lambda some: [each.number for each in some.commits]),
    "headers": Column(pa.map_(TEXT, TEXT), RUN, lambda some: _maps(some.run.versions.headers, str)),
    "captured": Column(pa.map_(TEXT, TEXT), RUN, lambda some: _maps(some.run.versions.captured, _captured)),
    "revision": Column(pa.int32(), RUN, lambda some: some.run.versions.revisions),
    "schema": Column(pa.int32(), RUN, lambda some: [some.run.schema] * some.count),
    "fingerprint": Column(pa.binary(), RUN, lambda some: some.run.versions.fingerprints),
    "outputs_digest": Column(pa.binary(), RUN, lambda some: some.run.versions.outputs_digests),
    "state_digest": Column(pa.binary(), RUN, lambda some: some.run.versions.state_digests),
    "changed": Column(
        pa.bool_(), RUN, lambda some: [after is not None for after in some.run.versions.afters]
    ),
    "before": Column(TEXT, RUN, lambda some: some.states[:-1]),
    "after": Column(TEXT, RUN, lambda some: some.states[1:]),
}
"""The columns of a version: those of an export, with states and captured values as JSON."""

STATES = {"before", "after"}

MAKERS: Makers = {"message_id": id_texts}
"""Columns whose values become an array many at a time: ids are kept as bytes until then."""


def _maps(values: Iterable[Any], read: Callable[[Any], str]) -> list[list[tuple[str, str]] | None]:
    return [
        None if each is None else [(name, read(value)) for name, value in each.items()] for each in values
    ]


def _captured(packed: bytes) -> str:
    return json.dumps(readable(packed), ensure_ascii=False)

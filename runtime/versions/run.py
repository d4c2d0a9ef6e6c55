"""Runs: consecutive versions of a state, stored together in one event.

A run contains the state before its first version. So it can be read and replayed without other runs, and older runs can
be deleted. Its versions may come from several commits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import msgpack

from eventstore import EventData, Int64, RecordedEvent, Value
from eventstore.header import EVENT
from handlers.codec import unpack
from runtime.clock import to_datetime
from runtime.messages.envelope import IdKey, id_text, pack_ids, unpack_ids
from runtime.versions.columns import (
    StateVersion,
    VersionColumns,
    compress,
    decompress,
    pack_columns,
    unpack_columns,
)
from runtime.versions.limits import ID_CHUNKS
from runtime.versions.properties import INT32, chunk_names, expect, join, microseconds, number, reading, split

ID_PROPERTIES = chunk_names("Ids", ID_CHUNKS)
DATA_PROPERTIES = chunk_names("Data", 14)
INDEX_PROPERTIES = ["First", "Count", "Commits", "Newest", "Undated"]
"""The properties of a run without message ids and states."""


class Commit(NamedTuple):
    """The versions that one transaction stored. `written_at` is in microseconds since 1970 UTC."""

    length: int
    batch: str | None  # None: single messages
    written_at: int
    number: int | None = None  # of the batch, or of the consumer batch of single messages, if any


@dataclass(frozen=True, slots=True)
class RunIndex:
    """The description of a stored run, without ids and states. Times are in microseconds since 1970 UTC."""

    event: int  # its number in the stream
    first: int  # the number of the first version
    count: int
    commits: Sequence[Commit]
    newest: int | None  # the newest `enqueued_at`
    undated: bool  # whether any message has no `enqueued_at`

    @property
    def last(self) -> int:
        """The number of the last version."""
        return self.first + self.count - 1

    @property
    def written_at(self) -> int:
        """The time when the newest version was written."""
        return max(commit.written_at for commit in self.commits)


@dataclass(frozen=True, slots=True)
class Run:
    """Consecutive versions in one schema version, with the state before them."""

    first: int
    schema: int
    before: bytes
    versions: VersionColumns
    commits: Sequence[Commit]

    @property
    def last(self) -> int:
        """The number of the last version."""
        return self.first + len(self.versions) - 1

    @property
    def ids(self) -> list[IdKey]:
        """The message ids of the versions, in order."""
        return self.versions.message_ids

    @property
    def after(self) -> bytes:
        """The encoded state after the last version."""
        return self.versions.after(self.before)

    def states_before(self) -> list[bytes]:
        """Return the encoded state before each version."""
        return self.versions.states_before(self.before)

    def data(self) -> bytes:
        """Encode and compress the columns of the run."""
        return compress(pack_columns(self.schema, self.before, self.versions))

    def event(self, data: bytes | None = None) -> EventData:
        """Encode the run as an event. Raises `ValueError` if the event does not fit a row.

        `data`: its compressed columns, if the caller already has them.
        """
        newest, undated = dates(self.versions.enqueued_at)
        properties: dict[str, Value] = {
            "First": Int64(self.first),
            "Count": len(self.versions),
            # A missing number is left out, to save space.
            "Commits": msgpack.packb([each[:3] if each.number is None else each for each in self.commits]),
            "Undated": undated,
        }
        if newest is not None:
            properties["Newest"] = to_datetime(newest)
        split(properties, ID_PROPERTIES, pack_ids(self.ids))
        split(properties, DATA_PROPERTIES, self.data() if data is None else data)
        return EventData(properties)


def dates(enqueued_at: Sequence[int | None]) -> tuple[int | None, bool]:
    """Return the latest of these times, and whether any is missing."""
    dated = [moment for moment in enqueued_at if moment is not None]
    return max(dated, default=None), len(dated) < len(enqueued_at)


def read_index(event: RecordedEvent) -> RunIndex:
    """Decode a run without its ids and states. Raises `StoredDataError`."""
    properties = event.properties
    with _reading(event):
        commits = [Commit(*fields) for fields in unpack(expect(properties["Commits"], bytes))]
        for each in commits:
            expect(each.length, int), expect(each.batch, str, None)
            expect(each.written_at, int), expect(each.number, int, None)
        index = RunIndex(
            event=event.version,
            first=number(properties, "First"),
            count=number(properties, "Count", most=INT32),
            commits=commits,
            newest=microseconds(properties, "Newest"),
            undated=expect(properties["Undated"], bool),
        )
        if index.first < 1 or any(commit.length < 1 for commit in commits):
            raise ValueError(f"its first version is {index.first}, and its commits have {commits}")
        counted = sum(commit.length for commit in commits)
        if counted != index.count:
            raise ValueError(f"its commits have {counted} versions instead of {index.count}")
    return index


def read_ids(event: RecordedEvent) -> list[IdKey]:
    """Decode the message ids of a run. Raises `StoredDataError`."""
    index = read_index(event)
    with _reading(event):
        ids = unpack_ids(join(event.properties, ID_PROPERTIES))
        if len(ids) != index.count:
            raise ValueError(f"it holds {len(ids)} message ids for {index.count} versions")
    return ids


def read_run(event: RecordedEvent) -> Run:
    """Decode a run. Raises `StoredDataError`."""
    index, ids = read_index(event), read_ids(event)
    with _reading(event):
        columns = unpack_columns(decompress(join(event.properties, DATA_PROPERTIES)), ids)
    return Run(index.first, columns.schema, columns.before or b"", columns.versions, index.commits)


def _reading(event: RecordedEvent) -> reading:
    return reading(f"The run in event {event.version}", f"{EVENT}{event.version:010d}")


class Version(NamedTuple):
    """One version of a stream."""

    number: int
    record: StateVersion
    before: bytes  # the encoded state before it, in schema version `schema`
    after: bytes
    schema: int
    batch: str | None  # None: a single message
    written_at: int | None = None  # in microseconds since 1970 UTC; None: appended since the load
    batch_number: int | None = None  # see `Commit`

    @property
    def message_id(self) -> str:
        """The id of the message that made the version."""
        return id_text(self.record.message_id)


class RunVersions:
    """The versions of one run, created on demand."""

    __slots__ = ("_commits", "_records", "_run", "_states")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._records = list(run.versions)
        self._states = run.states_before()
        self._commits = [commit for commit in run.commits for _ in range(commit.length)]

    def __iter__(self) -> Iterator[Version]:
        return map(self.at, range(len(self._states)))

    def at(self, position: int) -> Version:
        """Return the version at an index of the run."""
        run, record, before = self._run, self._records[position], self._states[position]
        after, commit = before if record.after is None else record.after, self._commits[position]
        number = run.first + position
        written = commit.batch, commit.written_at, commit.number
        return Version(number, record, before, after, run.schema, *written)

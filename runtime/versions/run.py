"""Runs: consecutive state versions that are stored together in one event.

A run starts with the state before its first version, so that it can be read and replayed, and older runs deleted,
without the others. Its versions may come from several commits. Message ids have a property of their own; the rest is
msgpack, column by column, compressed with zstandard.
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
"""What a projected read asks for: everything but the message ids and the states."""


class Commit(NamedTuple):
    """Versions that were stored together: how many, by which batch, and when, in microseconds since 1970 UTC.

    `number` is that of the batch, or of the epoch in which a consumer handled single messages (`batch` is None then).
    Single messages of consumers without epochs have none.
    """

    length: int
    batch: str | None
    written_at: int
    number: int | None = None


@dataclass(frozen=True, slots=True)
class RunIndex:
    """What is known of a stored run without its ids and states.

    `event` is the version of its event in the stream, `first` the number of its first state version. `newest` is the
    newest `enqueued_at` among them, `undated` says that one had none. Times as in `StateVersion`.
    """

    event: int
    first: int
    count: int
    commits: Sequence[Commit]
    newest: int | None
    undated: bool

    @property
    def last(self) -> int:
        """The number of the last state version."""
        return self.first + self.count - 1

    @property
    def written_at(self) -> int:
        """When the newest of the versions was written."""
        return max(commit.written_at for commit in self.commits)


@dataclass(frozen=True, slots=True)
class Run:
    """State versions with the state before them, in one schema version."""

    first: int
    schema: int
    before: bytes
    versions: VersionColumns
    commits: Sequence[Commit]

    @property
    def last(self) -> int:
        """The number of the last state version."""
        return self.first + len(self.versions) - 1

    @property
    def ids(self) -> list[IdKey]:
        """The ids of the messages that made the versions, in order."""
        return self.versions.message_ids

    @property
    def after(self) -> bytes:
        """The encoded state after the last version."""
        return self.versions.after(self.before)

    def states_before(self) -> list[bytes]:
        """Return, for each version, the encoded state on which it was made."""
        return self.versions.states_before(self.before)

    def data(self) -> bytes:
        """Return the compressed columns of the run."""
        return compress(pack_columns(self.schema, self.before, self.versions))

    def event(self, data: bytes | None = None) -> EventData:
        """Return the run as an event to write; `data` are its compressed columns, when the caller has them.

        Raises `ValueError` when a row cannot hold it.
        """
        newest, undated = dates(self.versions.enqueued_at)
        properties: dict[str, Value] = {
            "First": Int64(self.first),
            "Count": len(self.versions),
            # Without a number that is None.
            "Commits": msgpack.packb([each[:3] if each.number is None else each for each in self.commits]),
            "Undated": undated,
        }
        if newest is not None:
            properties["Newest"] = to_datetime(newest)
        split(properties, ID_PROPERTIES, pack_ids(self.ids))
        split(properties, DATA_PROPERTIES, self.data() if data is None else data)
        return EventData(properties)


def dates(enqueued_at: Sequence[int | None]) -> tuple[int | None, bool]:
    """Return the newest `enqueued_at` of some versions, and whether one has none."""
    dated = [moment for moment in enqueued_at if moment is not None]
    return max(dated, default=None), len(dated) < len(enqueued_at)


def read_index(event: RecordedEvent) -> RunIndex:
    """Return what a run's row says without its ids and states. Raises `StoredDataError`."""
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
            raise ValueError(f"its commits have {counted} versions and it has {index.count}")
    return index


def read_ids(event: RecordedEvent) -> list[IdKey]:
    """Return the message ids of a run. Raises `StoredDataError`."""
    index = read_index(event)
    with _reading(event):
        ids = unpack_ids(join(event.properties, ID_PROPERTIES))
        if len(ids) != index.count:
            raise ValueError(f"it holds {len(ids)} message ids for {index.count} versions")
    return ids


def read_run(event: RecordedEvent) -> Run:
    """Return a run with its states. Raises `StoredDataError`."""
    index, ids = read_index(event), read_ids(event)
    with _reading(event):
        columns = unpack_columns(decompress(join(event.properties, DATA_PROPERTIES)), ids)
    return Run(index.first, columns.schema, columns.before or b"", columns.versions, index.commits)


def _reading(event: RecordedEvent) -> reading:
    return reading(f"The run in event {event.version}", f"{EVENT}{event.version:010d}")


class Version(NamedTuple):
    """One version of a stream.

    `before` and `after` are the encoded states around it, in schema version `schema`. `batch` wrote it, None for a
    single message, at `written_at`, in microseconds since 1970 UTC; None for one that was appended since the load.
    `batch_number` is the number of that batch, as in `Commit`.
    """

    number: int
    record: StateVersion
    before: bytes
    after: bytes
    schema: int
    batch: str | None
    written_at: int | None = None
    batch_number: int | None = None

    @property
    def message_id(self) -> str:
        """The id of the message that made the version."""
        return id_text(self.record.message_id)


class RunVersions:
    """The versions of one run, each made when it is asked for."""

    __slots__ = ("_commits", "_records", "_run", "_states")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._records = list(run.versions)
        self._states = run.states_before()
        self._commits = [commit for commit in run.commits for _ in range(commit.length)]

    def __iter__(self) -> Iterator[Version]:
        return map(self.at, range(len(self._states)))

    def at(self, position: int) -> Version:
        """Return the version at a position of the run, from 0."""
        run, record, before = self._run, self._records[position], self._states[position]
        after, commit = before if record.after is None else record.after, self._commits[position]
        number = run.first + position
        written = commit.batch, commit.written_at, commit.number
        return Version(number, record, before, after, run.schema, *written)

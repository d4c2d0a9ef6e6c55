"""Checking a stream: every row decodes, and header, index, runs, tail and letters agree with each other.

Rows are taken one after another, in the order of their keys, so that one run is in memory at a time.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from eventstore import Include, RecordedEvent, Row, Stream
from eventstore.header import versions_of
from eventstore.partition import EVENT, HEADER
from runtime.errors import StoredDataError
from runtime.messages.digests import digest_state
from runtime.storage import id_index, letters
from runtime.storage.damage import reading_row
from runtime.storage.head import Head, read_head
from runtime.storage.id_index import IndexRow, index_changes, key_after, read_index_row
from runtime.storage.run import Run, read_run


@dataclass(frozen=True, slots=True)
class Fault:
    """What is wrong with a row. `repair` says that it can be made anew from others."""

    stream: str
    row: str
    problem: str
    repair: bool = False


class StreamCheck:
    """Checks one stream, whose rows are added in the order of their keys, the header first."""

    def __init__(self, header: Row) -> None:
        self.key = header.partition_key
        self.faults: list[Fault] = []
        self._head: Head | None = None
        self._version = self._first_event = 0
        with self._telling(header):
            self._version, self._first_event = versions_of(header)
            self._head = read_head(header.properties)
        self._next_event = self._first_event
        self._next: int | None = None
        self._state: bytes | None = None
        self._schema = 0
        self._index: list[IndexRow] = []
        self._indexed: list[IndexRow] = []
        self._is_indexed = True
        self._waiting = 0
        self._is_whole = self._head is not None

    def add(self, row: Row) -> None:
        """Check a row, and remember what later ones must agree with."""
        if row.row_key.startswith(id_index.PREFIX):
            with self._telling(row, repair=True):
                self._index.append(read_index_row(row))
        elif row.row_key.startswith(letters.PREFIX):
            with self._telling(row):
                self._waiting += len(letters.read_letters([row]).waiting)
        elif row.row_key.startswith(EVENT):
            self._add_event(row)

    def end(self) -> list[Fault]:
        """Check what only all rows together tell, and return all faults."""
        head = self._head
        if head is None or not self._is_whole:
            return self.faults
        if self._next_event <= self._version:
            self._tell(f"{EVENT}{self._next_event:010d}", "is gone, and the header promises it")
            return self.faults
        self._check_index(head)
        self._check_tail(head)
        if head.waiting.count != self._waiting:
            problem = f"counts {head.waiting.count} letters that wait, and there are {self._waiting}"
            self._tell(HEADER, problem)
        return self.faults

    def rebuilt_index(self) -> list[IndexRow] | None:
        """Return the index that the runs amount to, None when they cannot be read."""
        if self._head is None or any(not fault.repair for fault in self.faults):
            return None
        if not self._indexed:
            return []
        return index_changes([], self._indexed, 0)[0]

    def _add_event(self, row: Row) -> None:
        event = None
        with self._telling(row), reading_row("The key of an event", row):
            event = RecordedEvent(int(row.row_key.removeprefix(EVENT)), row.properties)
        if event is None or event.version < self._first_event:
            if event is not None and self._head is not None:
                self._tell(row.row_key, "is below the watermark of its stream: a truncation will delete it")
            return
        if event.version > self._version and self._head is not None:
            self._tell(row.row_key, f"is beyond the last event of its stream, {self._version}")
            return
        if event.version != self._next_event and self._is_whole:
            self._is_whole = False
            self._tell(f"{EVENT}{self._next_event:010d}", "is gone, and the header promises it")
        self._next_event = event.version + 1
        with self._telling(row):
            run = read_run(event)
            self._check_run(row.row_key, run)
            self._add_to_index(event.version, run)
            return
        self._is_whole = False

    def _check_run(self, row_key: str, run: Run) -> None:
        if self._next is not None and run.first != self._next:
            self._tell(
                row_key, f"begins with version {run.first}, and version {self._next} follows the run before"
            )
        if self._state is not None and run.schema == self._schema and run.before != self._state:
            self._tell(row_key, "begins with another state than the run before it ends with")
        for position, problem in _differing(run):
            self._tell(row_key, f"has another state of version {run.first + position} than {problem}")
        self._next, self._state, self._schema = run.last + 1, run.after, run.schema

    def _add_to_index(self, event: int, run: Run) -> None:
        key = key_after(self._indexed or self._index)
        self._indexed.append(IndexRow.of(run.first, event, run.ids, key))
        self._is_indexed &= any(row.holds(run.first, event, run.ids) for row in self._index)

    def _check_index(self, head: Head) -> None:
        first = self._indexed[0].first if self._indexed else head.kept_from
        kept = [row for row in self._index if row.last >= first]
        if not self._agrees(first, kept) and not any(fault.repair for fault in self.faults):
            self._tell(id_index.PREFIX, "do not agree with the runs of the stream", repair=True)

    def _agrees(self, first: int, index: list[IndexRow]) -> bool:
        """Say whether index rows have all runs, from version `first` on, each at its place, and nothing else."""
        if not index or not self._indexed:
            return not index and not self._indexed
        is_whole = index[0].first <= first and index[-1].last == self._indexed[-1].last
        has_no_gap = all(before.last + 1 == after.first for before, after in pairwise(index))
        return is_whole and has_no_gap and self._is_indexed

    def _check_tail(self, head: Head) -> None:
        if head.tail is not None:
            run = None
            try:
                run = head.tail.run()
            except StoredDataError as error:
                self._tell(HEADER, error.problem)
            if run is not None:
                self._check_run(HEADER, run)
        if self._next is not None and self._next != head.versions + 1:
            self._tell(HEADER, f"counts {head.versions} versions, and the last is {self._next - 1}")
        elif self._next is None and head.versions and head.kept_from <= head.versions:
            self._tell(HEADER, f"counts {head.versions} versions, and there are none")
        if head.state is not None and self._schema == head.schema and head.state != self._state:
            self._tell(HEADER, "has another state than the newest version")

    def _tell(self, row_key: str, problem: str, *, repair: bool = False) -> None:
        self.faults.append(Fault(self.key, row_key, problem, repair))

    def _telling(self, row: Row, *, repair: bool = False) -> _Telling:
        return _Telling(self, row.row_key, repair)


class _Telling:
    """Makes a fault of the error of a row that cannot be read."""

    def __init__(self, check: StreamCheck, row_key: str, repair: bool) -> None:  # noqa: FBT001 - one of its kind
        self._check = check
        self._row_key = row_key
        self._repair = repair

    def __enter__(self) -> None: ...

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> bool:
        problem = getattr(error, "problem", None)
        if problem is None or isinstance(error, KeyboardInterrupt):
            return False
        self._check._tell(self._row_key, problem, repair=self._repair)  # noqa: SLF001 - a part of it
        return True


def _differing(run: Run) -> Iterator[tuple[int, str]]:
    """Give the versions whose state is not the one that was stored, by its digest."""
    state, digest = run.before, b""
    for position, (after, stored) in enumerate(
        zip(run.versions.afters, run.versions.state_digests, strict=True)
    ):
        if after is not None or not digest:
            state = state if after is None else after
            digest = digest_state(state)
        if digest != stored:
            yield position, "its digest says"


async def repair_index(stream: Stream, old: list[str], index: list[IndexRow]) -> None:
    """Replace the index rows of a stream, unless it was changed since it was read. One transaction."""
    new = {row.row_key: row.properties() for row in index}
    changes = [Include.delete(key, "*") for key in old if key not in new]
    changes += [Include.insert_or_replace(key, properties) for key, properties in new.items()]
    await Stream.set_properties(stream, stream.properties or {}, changes)

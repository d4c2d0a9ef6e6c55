"""Check a stream: every row decodes, and header, index, runs, tail and dead letters agree.

The header is read first. Each run is compared with the header and the run before it, so two runs are in memory at a
time. Only derived data can be rebuilt: the index of message ids, and the counts of dead letters. Other contradictions
are only reported, because the code cannot know which of two values is right.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import pairwise
from operator import ne

from eventstore import DamagedRowError, Properties, RecordedEvent, Row, Value
from eventstore.header import EVENT, FIRST_VERSION, HEADER, VERSION
from runtime.errors import BatchRefusedError, StoredDataError
from runtime.messages.envelope import digest_state, pieces
from runtime.versions import dead_letter_rows, index, limits
from runtime.versions.dead_letter_rows import LAST_LETTER, NONE_WAIT, WAITING_PROPERTIES, Letter
from runtime.versions.head import Head, read_head
from runtime.versions.index import IndexRow, id_hashes_of, index_changes, key_after, read_index_row
from runtime.versions.limits import HASH_BYTES
from runtime.versions.properties import INT32, number, reading, reading_row
from runtime.versions.run import Run, dates, read_index, read_run


@dataclass(frozen=True, slots=True)
class Fault:
    """A corrupt row."""

    stream: str
    row: str
    problem: str  # continues a sentence that begins with the row
    repair: bool = False  # whether the row can be rebuilt from others


@dataclass(frozen=True, slots=True)
class DamagedRow(Row):
    """A placeholder for a row that cannot be decoded."""

    problem: str = ""

    @classmethod
    def of(cls, error: DamagedRowError) -> DamagedRow:
        return cls(error.partition_key, error.row_key, "", {}, problem=error.problem)


class RowsCheck:
    """Checks the rows of one object, added in the order of their keys, and collects the faults.

    `guard` is a row that every writer changes. A repair is refused if the guard has changed since it was read.
    """

    def __init__(self, key: str, guard: Row | None = None) -> None:
        self.key = key
        self.guard = guard
        self.faults: list[Fault] = []
        self.unreadable: set[str] = set()
        self.rebuilt: dict[str, Mapping[str, Value] | None] = {}  # by row key; None: delete the row

    def add(self, row: Row) -> None:
        """Decode a row, and report a fault if that fails."""
        problem = row.problem if isinstance(row, DamagedRow) else ""
        try:
            if not problem:
                self.take(row)
        except (StoredDataError, BatchRefusedError) as error:
            problem = error.problem if isinstance(error, StoredDataError) else str(error)
        if problem:
            self.unreadable.add(row.row_key)
            self.report(row.row_key, problem)

    def take(self, row: Row) -> None:
        """Decode a row. Raises `StoredDataError` if the row is corrupt."""
        raise NotImplementedError

    def compare(self) -> None:
        """Report the faults that show only once all rows have been added."""

    def report(self, row_key: str, problem: str, *, repair: bool = False) -> None:
        self.faults.append(Fault(self.key, row_key, problem, repair))


class LettersCheck:
    """Checks the rows of dead letters of a stream or entity, and compares them with the counts in its header."""

    def __init__(self) -> None:
        self.rows = 0
        self._is_whole = True
        self._next = 0
        self._letters: list[Letter] = []

    def take(self, row: Row) -> None:
        """Decode a row of dead letters. Raises `StoredDataError` if the row is corrupt."""
        self.rows += 1
        try:
            letters = dead_letter_rows.read_letter_row(row)
            with reading_row(f"The row {row.row_key}", row):
                start = int(row.row_key.removeprefix(dead_letter_rows.PREFIX))
                numbers = [letter.number for letter in letters]
                if not self._next <= start <= numbers[0] or any(a >= b for a, b in pairwise(numbers)):
                    raise ValueError(f"its letters {numbers} do not follow those before {self._next}")
        except StoredDataError:
            self._is_whole = False
            raise
        self._next = numbers[-1] + 1
        self._letters += [letter._replace(envelope=None) for letter in letters]

    def recounted(self, stored: Properties) -> tuple[dict[str, Value | None], bool]:
        """Return changes that correct the header's counts (`None`: remove), and whether all counted letters exist."""
        try:
            counted = dead_letter_rows.read_waiting(stored)
        except (KeyError, TypeError, ValueError):
            counted = NONE_WAIT
        recounted = NONE_WAIT.after(self._letters, counted.beyond_limit, counted.last)
        right = recounted.properties()
        # Older code wrote no last number.
        names = [name for name in WAITING_PROPERTIES if name != LAST_LETTER or name in stored]
        wrong = {name: right.get(name) for name in names if _value(stored, name) != _value(right, name)}
        return wrong, self._is_whole and counted.count <= recounted.count


def _value(properties: Properties, name: str) -> tuple[bool, Value | None]:
    return isinstance(properties.get(name), bool), properties.get(name)  # True equals 1


class StreamCheck(RowsCheck):
    """Checks one stream. The header is given to the constructor, all other rows to `add`."""

    def __init__(self, header: Row) -> None:
        super().__init__(header.partition_key, header)
        self._header = header.properties
        self._head: Head | None = None
        self._first, self._last = 1, INT32
        self._event = self._next_version = 0
        self._newest: Run | None = None
        self._letters = LettersCheck()
        self._index = IndexCheck()
        try:
            with reading("The header of the stream", HEADER):
                self._last = number(self._header, VERSION, most=INT32)
                self._first = number(self._header, FIRST_VERSION, 1, most=INT32)
            # The counts of dead letters are compared at the end, so that a wrong count does not hide other faults.
            others = {name: self._header[name] for name in self._header if name not in WAITING_PROPERTIES}
            self._head = read_head(others)
        except StoredDataError as error:
            self.report(HEADER, error.problem)
        self._event = self._first - 1

    def add(self, row: Row) -> None:
        """Decode a row, and report a fault if that fails. Faults of index rows are reported by `compare`."""
        if row.row_key.startswith(index.PREFIX):
            self._index.add_row(row)
        else:
            super().add(row)

    def take(self, row: Row) -> None:
        """Decode an event or a row of dead letters. Raises `StoredDataError` if the row is corrupt."""
        if row.row_key.startswith(dead_letter_rows.PREFIX):
            self._letters.take(row)
        elif row.row_key.startswith(EVENT):
            with reading_row("The key of an event", row):
                event = int(row.row_key.removeprefix(EVENT))
            self._take_event(event, row)
        else:
            self.report(row.row_key, "is not a row of a stream")

    def _take_event(self, event: int, row: Row) -> None:
        if event < self._first:
            problem = "is below the first event: an interrupted truncation left it"
            self.report(row.row_key, problem, repair=True)
            self.rebuilt[row.row_key] = None
            return
        if event > self._last:
            self.report(row.row_key, f"is beyond the last event of its stream, {self._last}")
            return
        if event != self._event + 1:
            self._report_missing()
            self._newest = None
        before, self._newest, self._event = self._newest, None, event
        recorded = RecordedEvent(event, row.properties)
        run, run_index = read_run(recorded), read_index(recorded)
        for problem in _problems(run, before):
            self.report(row.row_key, problem)
        if (run_index.newest, run_index.undated) != dates(run.versions.enqueued_at):
            self.report(row.row_key, "has times that differ from those of its versions")
        if self._head is not None and event == self._first and run.first != self._head.kept_from:
            kept_from = self._head.kept_from
            self.report(HEADER, f"says that versions begin with {kept_from}, but the first is {run.first}")
        self._index.add_run(event, run)
        self._newest, self._next_version = run, run.last + 1

    def _report_missing(self) -> None:
        row_key = f"{EVENT}{self._event + 1:010d}"
        if row_key not in self.unreadable:
            self.report(row_key, "is missing, but the header counts it")

    def compare(self) -> None:
        """Report the faults that show only once all rows have been added."""
        if self._head is None:
            return
        if self._event < self._last:
            self._report_missing()
        else:
            self._compare_newest(self._head)
        wrong, is_certain = self._letters.recounted(self._header)
        if wrong:
            self.report(HEADER, f"has wrong counts of dead letters: {', '.join(wrong)}", repair=is_certain)
            self.rebuilt[HEADER] = with_changes(self._header, wrong)
        for row_key, problem, is_certain in self._index.faults(self._head.kept_from):
            self.report(row_key, problem, repair=is_certain)
        if any(fault.row.startswith(index.PREFIX) for fault in self.faults):
            self.rebuilt.update(self._index.rebuilt())

    def _compare_newest(self, head: Head) -> None:
        newest, expected = self._newest, self._next_version or head.kept_from
        if head.tail is not None:
            try:
                newest = head.tail.run()
            except StoredDataError as error:
                self.report(HEADER, error.problem)
                return
            if newest.first != expected:
                self.report(HEADER, f"has a tail from version {newest.first}, but {expected} is the next")
            for problem in _problems(newest, self._newest):
                self.report(HEADER, f"has a tail that {problem}")
        if newest is None:
            if head.versions:
                self.report(HEADER, f"counts {head.versions} versions, but none can be read")
            return
        fits = len(newest.after) <= limits.MAX_HEAD_STATE_BYTES
        compared = {
            "StateVersions": (head.versions, newest.last),
            "LastNow": (head.last_now, newest.versions.nows[-1]),
            "StateSchema": (head.schema, newest.schema),
            "State": (head.state, newest.after if fits else None),
        }
        wrong = [name for name, (stored, expected) in compared.items() if stored != expected]
        if wrong:
            self.report(HEADER, f"differs from its newest version: {', '.join(wrong)}")


def with_changes(stored: Properties, changes: Mapping[str, Value | None]) -> dict[str, Value]:
    """Return properties with changes applied. A change to `None` removes the property."""
    return {name: value for name, value in {**stored, **changes}.items() if value is not None}


def _problems(run: Run, before: Run | None) -> Iterator[str]:
    if before is not None and run.first != before.last + 1:
        yield f"begins with version {run.first} instead of {before.last + 1}"
    elif before is not None and run.schema == before.schema and run.before != before.after:
        yield "begins with a state that differs from the end of the run before"
    digest = digest_state(run.before)
    for position, version in enumerate(run.versions):
        digest = digest if version.after is None else digest_state(version.after)
        if digest != version.state_digest:
            yield f"has a state that does not match the digest of version {run.first + position}"


class IndexCheck:
    """Compares a stream's index of message ids with its runs."""

    def __init__(self) -> None:
        self._rows: list[IndexRow] = []
        self._row_keys: list[str] = []
        self._unreadable: dict[str, str] = {}
        self._key: bytes | None = None
        self._runs: list[IndexRow] = []
        self._is_misplaced = False
        self._compared: Counter[str] = Counter()
        self._differing: Counter[str] = Counter()

    def add_row(self, row: Row) -> None:
        self._row_keys.append(row.row_key)
        try:
            self._rows.append(read_index_row(row))
        except StoredDataError as error:
            self._unreadable[row.row_key] = row.problem if isinstance(row, DamagedRow) else error.problem

    def add_run(self, event: int, run: Run) -> None:
        """Compare the run in `event` with the index rows. All index rows must have been added before the first run."""
        self._key = self._key or key_after(self._rows)
        self._runs.append(IndexRow.of(run.first, event, run.ids, self._key))
        for row in self._rows:
            start = run.first - row.first
            end = start + len(run.ids)
            if start < 0 or end > row.count:
                continue
            if row.locate(start) != (event, 0) or row.locate(end) != (event + 1, 0):
                continue
            stored = pieces(row.id_hashes[start * HASH_BYTES : end * HASH_BYTES], HASH_BYTES)
            hashes = pieces(id_hashes_of(run.ids, row.key), HASH_BYTES)
            self._compared[row.row_key] += len(run.ids)
            self._differing[row.row_key] += sum(map(ne, stored, hashes))
            return
        self._is_misplaced = True

    def faults(self, kept_from: int) -> Iterator[tuple[str, str, bool]]:
        """Yield each fault: row key, problem, and whether a repair is safe. `kept_from` is the first kept version."""
        for row_key, count in self._differing.items():
            if count:
                # If one hash differs, the id in the run may be corrupt. If all differ, the index row is.
                is_certain = 1 < count == self._compared[row_key]
                yield row_key, "has hashes that do not match the ids of the runs", is_certain
        for row_key, problem in self._unreadable.items():
            yield row_key, problem, True
        rows = [row for row in self._rows if row.last >= kept_from]
        is_whole = (
            self._row_keys == [row.row_key for row in self._rows]
            and not self._is_misplaced
            and all(before.last + 1 == after.first for before, after in pairwise(rows))
            and (rows[-1].last if rows else 0) == (self._runs[-1].last if self._runs else 0)
        )
        if not is_whole and not self._unreadable:
            yield index.PREFIX, "do not agree with the runs of the stream", True

    def rebuilt(self) -> dict[str, Mapping[str, Value] | None]:
        """Return the index rebuilt from the runs: the properties by row key, or `None` for a row to delete."""
        rows = index_changes([], self._runs, 0)[0] if self._runs else []
        return {**dict.fromkeys(self._row_keys), **{row.row_key: row.properties() for row in rows}}

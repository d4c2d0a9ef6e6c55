"""Checking a stream: every row decodes, and header, index, runs, tail and letters agree with each other.

Rows are taken one after another, in the order of their keys, so that one run is in memory at a time.
"""

from __future__ import annotations

from eventstore import Row
from eventstore.partition import EVENT, HEADER
from runtime.errors import StoredDataError
from runtime.storage import id_index, letters
from runtime.storage.checking.fault import Fault, Repair
from runtime.storage.checking.header import LostRowsError, SoundHeader, is_certain, sound_header
from runtime.storage.checking.ids import IndexCheck
from runtime.storage.checking.letters import LettersCheck
from runtime.storage.checking.runs import StoredRuns
from runtime.storage.head import read_head
from runtime.storage.id_index import read_index_row

_BELOW = "is below the watermark of its stream: a truncation has left it"


class StreamCheck:
    """Checks one stream, whose rows are added in the order of their keys, the header first."""

    def __init__(self, header: Row) -> None:
        self.key = header.partition_key
        self.faults: list[Fault] = []
        self.repair = Repair()
        self.guard: Row | None = header
        self._header = header
        self._runs = StoredRuns()
        self._index = IndexCheck()
        self._letters = LettersCheck()

    def add(self, row: Row) -> None:
        """Check a row, and remember what later ones must agree with."""
        try:
            if row.row_key.startswith(id_index.PREFIX):
                self._add_index_row(row)
            elif row.row_key.startswith(letters.PREFIX):
                self._letters.add(row)
            elif row.row_key.startswith(EVENT):
                found = self._runs.add(row)
                if found is not None:
                    event, run = found
                    self._index.add_run(event, run.first, run.ids)
            else:
                self._tell(row.row_key, "is no row of a stream")
        except StoredDataError as error:
            self._tell(row.row_key, error.problem)

    def end(self) -> list[Fault]:
        """Check what only all rows together tell, and return all faults."""
        header = None
        try:
            header = sound_header(self._header.properties, self._runs)
        except (LostRowsError, StoredDataError) as error:
            if error.row not in self._runs.row_keys.values():
                self._tell(error.row, error.problem)
        if header is None:
            for problem in self._runs.problems:
                self._tell(problem.row_key, problem.text)
            return self.faults
        self._check_header(header)
        self._check_runs(header)
        self._check_index(header)
        return self.faults

    def _add_index_row(self, row: Row) -> None:
        self._index.row_keys.append(row.row_key)
        try:
            self._index.rows.append(read_index_row(row))
        except StoredDataError as error:
            self._index.unreadable[row.row_key] = error.problem

    def _check_header(self, header: SoundHeader) -> None:
        counts, is_counted = self._letters.wrong(self._header.properties)
        row = {name: value for name, value in {**header.properties, **counts}.items() if value is not None}
        try:
            read_head(row)
        except StoredDataError as error:
            self._tell(HEADER, error.problem)
            return
        if header.wrong:
            names = ", ".join(header.wrong)
            self._tell(HEADER, f"is not what its rows amount to: {names}", repair=is_certain(header))
        if counts:
            self._tell(HEADER, f"counts its letters otherwise: {', '.join(counts)}", repair=is_counted)
        if header.wrong or counts:
            self.repair.rows[HEADER] = row

    def _check_runs(self, header: SoundHeader) -> None:
        first, last = header.numbers.first_event or 1, header.numbers.version or 0
        for problem in self._runs.problems:
            is_kept = first <= problem.event <= last and not (problem.is_of_order and problem.event == first)
            if is_kept or not problem.event:
                self._tell(problem.row_key, problem.text, repair=problem.mended is not None)
            if is_kept and problem.mended is not None:
                self.repair.rows[problem.row_key] = problem.mended
        copied = {place.event for place in self._runs.places if place.last <= (header.numbers.versions or 0)}
        for event, row_key in self._runs.row_keys.items():
            if event < first:
                self._tell(row_key, _BELOW, repair=True)
            elif event > last:
                self._tell(row_key, f"is beyond the last event of its stream, {last}", repair=event in copied)
            else:
                continue
            self.repair.rows[row_key] = None

    def _check_index(self, header: SoundHeader) -> None:
        index = self._index
        if index.agrees(header.kept, header.numbers.kept_from or 1):
            return
        doubtful = index.doubtful(is_header_wrong=bool(header.wrong))
        for row_key in doubtful:
            text = "has another hash of an id than the run: one of both is damaged"
            self._tell(row_key, text)
        for row_key, problem in index.unreadable.items():
            self._tell(row_key, problem, repair=True)
        if not doubtful and not index.unreadable:
            self._tell(id_index.PREFIX, "do not agree with the runs of the stream", repair=True)
        rebuilt = {row.row_key: row.properties() for row in index.rebuilt(header.kept)}
        self.repair.rows.update({**dict.fromkeys(index.row_keys), **rebuilt})

    def _tell(self, row_key: str, problem: str, *, repair: bool = False) -> None:
        self.faults.append(Fault(self.key, row_key, problem, repair))

"""The letters of a stream or an entity compared with what its header counts."""

from __future__ import annotations

from dataclasses import replace

from eventstore import Properties, Row, Value
from runtime.errors import StoredDataError
from runtime.storage.damage import reading_row
from runtime.storage.letters import (
    NONE_WAIT,
    PREFIX,
    WAITING_PROPERTIES,
    Letter,
    Waiting,
    read_letter_row,
    read_waiting,
)


class LettersCheck:
    """Takes the rows of letters in their order. They are told nowhere else: what is damaged of them stays so."""

    def __init__(self) -> None:
        self.rows = 0
        self.is_whole = True
        self._next = 0
        self._waiting = NONE_WAIT

    def add(self, row: Row) -> None:
        """Take a row. Raises `StoredDataError`."""
        self.rows += 1
        try:
            letters = read_letter_row(row)
            with reading_row(f"The row {row.row_key}", row):
                self._follow(int(row.row_key.removeprefix(PREFIX)), letters)
        except StoredDataError:
            self.is_whole = False
            raise
        found = NONE_WAIT.after(letters, 0)
        times = [time for time in (self._waiting.oldest, found.oldest) if time is not None]
        self._waiting = Waiting(
            self._waiting.count + found.count,
            min(times, default=None),
            self._waiting.undated or found.undated,
        )

    def _follow(self, start: int, letters: list[Letter]) -> None:
        for number in (start, *(letter.number for letter in letters)):
            if number < self._next:
                message = f"letter {number} does not follow those before it"
                raise ValueError(message)
            self._next = number if number == start else number + 1

    def wrong(self, stored: Properties) -> tuple[dict[str, Value | None], bool]:
        """Return what a header should say of the letters otherwise than it does, and whether that is certain.

        It is not where a row cannot be read, or where the header counts more letters than there are: some may be lost.
        """
        try:
            counted = read_waiting(stored)
        except (KeyError, TypeError, ValueError):
            counted = NONE_WAIT
        should = replace(self._waiting, beyond_limit=counted.beyond_limit).properties()
        wrong = {
            name: should.get(name) for name in WAITING_PROPERTIES if stored.get(name) != should.get(name)
        }
        return wrong, self.is_whole and counted.count <= self._waiting.count

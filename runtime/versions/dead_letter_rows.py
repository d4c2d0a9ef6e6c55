"""Rows of dead letters: rejected deliveries, stored with their stream until they are redriven or discarded.

Several dead letters share a row. The rows sort between the header and the events, so one range query reads header and
dead letters. A changed row is rewritten as a whole. A stream stores up to 1,000 waiting dead letters.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgpack

from eventstore import Include, Int64, Partition, Properties, Row, Value
from eventstore.reading import read_rows
from handlers.codec import unpack
from runtime.clock import is_in_calendar, to_datetime
from runtime.messages.envelope import Envelope, IdKey, id_text, pack_envelope, unpack_envelope
from runtime.messages.outcome import Reason
from runtime.versions import limits
from runtime.versions import properties as typed
from runtime.versions.properties import expect
from runtime.versions.run import compress, decompress

PREFIX = "SS-LTR-"
LAST = PREFIX + "~"  # the upper bound of the row keys of dead letters
PROPERTIES = typed.chunk_names("Letters", limits.MAX_LETTER_ROW_BYTES // typed.CHUNK)
_INT: Final = (int,)
# fmt: off
_KINDS: Final = (
    _INT, None, (str, bytes), (bytes,), (int, None), (bytes, None), (str,), (str,), _INT, (str, None), (int, None),
    _INT, _INT, (bool,), (int, None),
)
# fmt: on
"""The types of the stored fields of a dead letter. `None` means that the field is checked elsewhere."""

_TEXT = "surrogatepass"  # the ids of invalid messages may contain lone surrogates


class LetterState(IntEnum):
    """The status of a dead letter."""

    WAITING = 0
    GIVEN_UP = 1  # discarded; its id is kept, so that the message stays rejected
    BEYOND_LIMIT = 2  # only the decision is kept, which all attempts at its batch must share


class Letter(NamedTuple):
    """A rejected delivery. Times are in microseconds since 1970 UTC."""

    number: int
    state: LetterState
    key: IdKey
    content: bytes  # a digest of the body, because several bodies may have the same id
    enqueued_at: int | None
    envelope: Envelope | None  # None unless it waits
    reason: Reason
    error: str
    version: int  # the newest version of the stream when it was rejected
    batch: str | None  # that last rejected it; None: a single message
    batch_number: int | None
    refused_at: int  # when it was last rejected
    tries: int = 1
    parks: bool = False  # no new message of the stream is handled while this waits
    first_at: int | None = None  # when it was first rejected; None: at `refused_at`

    @property
    def since(self) -> int:
        """The time of the first rejection, in microseconds since 1970 UTC."""
        return self.refused_at if self.first_at is None else self.first_at

    def again(self, own: Letter) -> Letter:
        """Return the dead letter `own` after this later rejection. Number, content, parking and first time stay."""
        return self._replace(
            number=own.number, content=own.content, tries=own.tries + 1, parks=own.parks, first_at=own.since
        )

    @property
    def waits(self) -> bool:
        """Whether the dead letter can be redriven."""
        return self.state is LetterState.WAITING

    @property
    def message_id(self) -> str:
        return id_text(self.key)

    @property
    def size(self) -> int:
        """The encoded size before compression, in bytes."""
        return len(_pack([self]))


@dataclass(frozen=True)
class Letters:
    """The dead letters of a stream, ordered by number."""

    all: tuple[Letter, ...] = ()
    rows: tuple[int, ...] = ()  # the number of the first dead letter in each stored row

    def __bool__(self) -> bool:
        return bool(self.all)

    @cached_property
    def waiting(self) -> Sequence[Letter]:
        """The dead letters that can be redriven."""
        return [letter for letter in self.all if letter.waits]

    @property
    def last(self) -> int:
        """The number of the last dead letter, or 0."""
        return self.all[-1].number if self.all else 0

    def portion(self, letters: Iterable[Letter]) -> list[Letter]:
        """Return those of `letters` that are in the first rows, as many as one transaction surely changes."""
        by_row: dict[int, list[Letter]] = {}
        for letter in letters:
            by_row.setdefault(bisect_right(self.rows, letter.number), []).append(letter)
        return [each for row in sorted(by_row)[: limits.MAX_TRANSACTION_LETTER_ROWS] for each in by_row[row]]

    def changed(self, letters: Sequence[Letter]) -> tuple[Letters, list[Include]]:
        """Return a copy that has only `letters`, which are ordered by number, and the changes to write."""
        before, after = _by_row(self.all, self.rows), _by_row(letters, self._starts(letters))
        changes = [Include.delete(_row_key(first), "*") for first in before if first not in after]
        changes += [
            Include.insert_or_replace(_row_key(first), letter_properties(row))
            for first, row in after.items()
            if before.get(first) != row
        ]
        return Letters(tuple(letters), tuple(after)), changes

    def _starts(self, letters: Sequence[Letter]) -> list[int]:
        """Return the number of each row's first dead letter. Existing rows are kept, or split if now too large."""
        starts: list[int] = []
        count = size = 0
        for letter in letters:
            place = bisect_right(self.rows, letter.number)
            if place and (not starts or self.rows[place - 1] > starts[-1]):
                starts.append(self.rows[place - 1])
                count = size = 0
            count, size = count + 1, size + letter.size
            is_full = count > limits.MAX_ROW_LETTERS or size > limits.MAX_LETTER_BYTES
            if not starts or (is_full and count > 1):
                starts.append(letter.number)
                count, size = 1, letter.size
        return starts


def _by_row(letters: Sequence[Letter], starts: Sequence[int]) -> dict[int, list[Letter]]:
    rows: dict[int, list[Letter]] = {}
    for letter in letters:
        first = starts[bisect_right(starts, letter.number) - 1]
        rows.setdefault(first, []).append(letter)
    return rows


def _row_key(first: int) -> str:
    return f"{PREFIX}{first:016d}"


NO_LETTERS = Letters()


@dataclass(frozen=True, slots=True)
class Waiting:
    """A summary of the dead letters of a stream or entity, stored in its header row."""

    count: int = 0  # the number of waiting dead letters
    oldest: int | None = None  # the oldest `enqueued_at` of the waiting dead letters
    undated: bool = False  # whether a waiting dead letter has no `enqueued_at`
    beyond_limit: int = 0  # the number of dead letters that were ever dropped because of the limit
    last: int = 0  # the highest number that a dead letter ever got; lower if older code wrote the summary

    def after(self, letters: Sequence[Letter], beyond_limit: int = 0, last: int = 0) -> Waiting:
        """Return the summary of all stored `letters`, which are ordered by number.

        `beyond_limit`: how many were dropped since this summary. `last`: the highest number that was given, if known.
        """
        times = [letter.enqueued_at for letter in letters if letter.waits]
        dated = [moment for moment in times if moment is not None and is_in_calendar(moment)]
        dropped = self.beyond_limit + beyond_limit
        last = max(self.last, last, letters[-1].number if letters else 0)
        return Waiting(len(times), min(dated, default=None), len(dated) < len(times), dropped, last)

    def properties(self) -> dict[str, Value]:
        oldest = None if self.oldest is None else to_datetime(self.oldest)
        values = (self.count, oldest, self.undated, self.beyond_limit, Int64(self.last))
        return {name: value for name, value in zip(WAITING_PROPERTIES, values, strict=True) if value}


NONE_WAIT = Waiting()
LAST_LETTER = "LastLetter"
WAITING_PROPERTIES = ["Letters", "LettersFrom", "LettersUndated", "LettersBeyondLimit", LAST_LETTER]


def read_waiting(properties: Properties) -> Waiting:
    return Waiting(
        typed.number(properties, "Letters", 0, most=typed.INT32),
        typed.microseconds(properties, "LettersFrom"),
        expect(properties.get("LettersUndated", False), bool),
        typed.number(properties, "LettersBeyondLimit", 0, most=typed.INT32),
        typed.number(properties, LAST_LETTER, 0),
    )


def given_up(letters: Letters, is_meant: Callable[[Letter], bool]) -> tuple[list[Letter], list[Letter]]:
    """Mark a portion of the waiting dead letters that `is_meant` selects as discarded.

    Return all letters, and the portion as it was: empty if none are left to be discarded.
    """
    portion = letters.portion(each for each in letters.waiting if is_meant(each))
    changed = {each.number: each._replace(state=LetterState.GIVEN_UP, envelope=None) for each in portion}
    return [changed.get(each.number, each) for each in letters.all], portion


async def letters_of(partition: Partition) -> Letters:
    """Read the dead letters of a stream or entity. Costs one request. Raises `StoredDataError` if a row is corrupt."""
    return read_letters(await read_rows(partition, PREFIX, LAST, PROPERTIES))


def read_letters(rows: Sequence[Row]) -> Letters:
    """Decode rows of dead letters. Raises `StoredDataError` if a row is corrupt."""
    if not rows:
        return NO_LETTERS
    letters, starts = list[Letter](), list[int]()
    for row in rows:
        letters += read_letter_row(row)
        with typed.reading_row(f"The key of the row {row.row_key}", row):
            starts.append(int(row.row_key.removeprefix(PREFIX)))
    return Letters(tuple(letters), tuple(starts))


def read_letter_row(row: Row) -> list[Letter]:
    """Decode one row of dead letters. Raises `StoredDataError` if the row is corrupt."""
    with typed.reading_row(f"The letters in the row {row.row_key}", row):
        packed = unpack(decompress(typed.join(row.properties, PROPERTIES)), unicode_errors=_TEXT)
        letters = [_letter(*fields) for fields in packed]
        if not letters:
            raise ValueError("there are none")
        return letters


def _letter(number: int, state: int, *fields: Any) -> Letter:  # noqa: ANN401 - `_KINDS` has their types
    letter = Letter(number, LetterState(state), *fields)
    for value, kinds in zip(letter, _KINDS, strict=True):
        if kinds is not None:
            expect(value, *kinds)
    envelope: Any = letter.envelope
    return letter._replace(
        envelope=None if envelope is None else unpack_envelope(envelope), reason=Reason(letter.reason)
    )


def letter_properties(letters: Sequence[Letter]) -> dict[str, Value]:
    properties: dict[str, Value] = {}
    typed.split(properties, PROPERTIES, compress(_pack(letters)))
    return properties


def _pack(letters: Sequence[Letter]) -> bytes:
    fields = [
        each._replace(envelope=None if each.envelope is None else pack_envelope(each.envelope))  # type: ignore[arg-type]
        for each in letters
    ]
    written = [each if each.first_at is not None else each[:-1] for each in fields]
    packed: bytes = msgpack.packb(written, unicode_errors=_TEXT)
    return packed

"""Letters: refused deliveries that are kept with their stream, until they are redriven or given up.

They are in rows between the header and the events, many in each, so that one range query reads them with the header.
Rows are few and rewritten as a whole: a stream keeps up to 1,000 letters that wait.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from functools import cached_property
from typing import Any, Final, NamedTuple

import msgpack

from eventstore import Include, Partition, Properties, Row, Value
from eventstore.reading import read_rows
from handlers.codec import unpack
from runtime.clock import is_in_calendar, to_datetime
from runtime.messages.envelope import Envelope, IdKey, id_text, pack_envelope, unpack_envelope
from runtime.messages.outcome import Reason
from runtime.versions import limits
from runtime.versions.columns import compress, decompress
from runtime.versions.properties import (
    CHUNK,
    INT32,
    chunk_names,
    expect,
    join,
    microseconds,
    number,
    reading_row,
    split,
)

PREFIX = "SS-LTR-"
LAST = PREFIX + "~"
"""The end of the letters' rows, for a range that begins with the header."""

PROPERTIES = chunk_names("Letters", limits.MAX_LETTER_ROW_BYTES // CHUNK)
_INT: Final = (int,)
# fmt: off
_KINDS: Final = (
    _INT, None, (str, bytes), (bytes,), (int, None), (bytes, None), (str,), (str,), _INT, (str, None), (int, None),
    _INT, _INT, (bool,), (int, None),
)
# fmt: on
"""The types of the fields of a letter as they are stored, None for what is checked otherwise."""

_TEXT = "surrogatepass"
"""How text is encoded: ids of what could not be read may hold halves of characters."""


class LetterState(IntEnum):
    """What became of a letter.

    One that was given up keeps its id, so that its message stays refused. Of one beyond the limit nothing is kept but
    what all attempts of its batch have to agree on.
    """

    WAITING = 0
    GIVEN_UP = 1
    BEYOND_LIMIT = 2


class Letter(NamedTuple):
    """A delivery that was refused.

    `content` tells its body from others under its id. `envelope` is the delivery as it was, None when it is no longer
    kept. `version` is the number of the newest version that it met. `batch`, with its number, refused it last, None for
    a single message, at `refused_at`, in microseconds since 1970 UTC; it was handled `tries` times, and refused first
    at `first_at` if that was another time. While a letter that `parks` waits, no new message of the stream is handled.
    """

    number: int
    state: LetterState
    key: IdKey
    content: bytes
    enqueued_at: int | None
    envelope: Envelope | None
    reason: Reason
    error: str
    version: int
    batch: str | None
    batch_number: int | None
    refused_at: int
    tries: int = 1
    parks: bool = False
    first_at: int | None = None

    @property
    def since(self) -> int:
        """When it was refused first, in microseconds since 1970 UTC."""
        return self.refused_at if self.first_at is None else self.first_at

    def again(self, own: Letter) -> Letter:
        """Return a letter with this refusal, which is one more of it."""
        return self._replace(
            number=own.number, content=own.content, tries=own.tries + 1, parks=own.parks, first_at=own.since
        )

    @property
    def waits(self) -> bool:
        """Whether it can be redriven."""
        return self.state is LetterState.WAITING

    @property
    def message_id(self) -> str:
        """The id of the message."""
        return id_text(self.key)

    @property
    def size(self) -> int:
        """How many bytes it takes before compression."""
        return len(_pack([self]))


@dataclass(frozen=True)
class Letters:
    """The letters of a stream, in the order in which they were refused first, and with which numbers rows begin."""

    all: tuple[Letter, ...] = ()
    rows: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.all)

    @cached_property
    def waiting(self) -> Sequence[Letter]:
        """The letters that can be redriven."""
        return [letter for letter in self.all if letter.waits]

    def changed(self, letters: Sequence[Letter]) -> tuple[Letters, list[Include]]:
        """Return other letters in place of these, in the order of their numbers, with the changes of rows to write."""
        before, after = _by_row(self.all, self.rows), _by_row(letters, self._starts(letters))
        changes = [Include.delete(_row_key(first), "*") for first in before if first not in after]
        changes += [
            Include.insert_or_replace(_row_key(first), letter_properties(row))
            for first, row in after.items()
            if before.get(first) != row
        ]
        return Letters(tuple(letters), tuple(after)), changes

    def _starts(self, letters: Sequence[Letter]) -> list[int]:
        """Return the numbers with which rows begin: those there are, and new ones where a row would be too large."""
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
    """Return letters by the number with which their row begins."""
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
    """What the header of a stream, or the row of an entity, says of its letters.

    `count` letters wait. `oldest` is the oldest `enqueued_at` among them, None when none has one, and `undated` says
    that one has none. `beyond_limit` letters in all were not kept, as there were too many.
    """

    count: int = 0
    oldest: int | None = None
    undated: bool = False
    beyond_limit: int = 0

    def after(self, letters: Sequence[Letter], beyond_limit: int) -> Waiting:
        """Return what is to be said after some letters were changed, when so many more were not kept."""
        times = [letter.enqueued_at for letter in letters if letter.waits]
        dated = [moment for moment in times if moment is not None and is_in_calendar(moment)]
        return Waiting(
            len(times), min(dated, default=None), len(dated) < len(times), self.beyond_limit + beyond_limit
        )

    def properties(self) -> dict[str, Value]:
        """Return the properties of the header."""
        oldest = None if self.oldest is None else to_datetime(self.oldest)
        values = (self.count, oldest, self.undated, self.beyond_limit)
        return {name: value for name, value in zip(WAITING_PROPERTIES, values, strict=True) if value}


NONE_WAIT = Waiting()
WAITING_PROPERTIES = ["Letters", "LettersFrom", "LettersUndated", "LettersBeyondLimit"]


def read_waiting(properties: Properties) -> Waiting:
    """Return what the properties of a header say of the letters."""
    return Waiting(
        number(properties, "Letters", 0, most=INT32),
        microseconds(properties, "LettersFrom"),
        expect(properties.get("LettersUndated", False), bool),
        number(properties, "LettersBeyondLimit", 0, most=INT32),
    )


def given_up(letters: Sequence[Letter], is_meant: Callable[[Letter], bool]) -> tuple[list[Letter], int]:
    """Return letters with those given up that wait and are meant, and how many these are."""
    meant = {letter.number for letter in letters if letter.waits and is_meant(letter)}
    changed = [
        letter._replace(state=LetterState.GIVEN_UP, envelope=None) if letter.number in meant else letter
        for letter in letters
    ]
    return changed, len(meant)


async def letters_of(partition: Partition) -> Letters:
    """Read the letters of a stream or an entity. One request. Raises `StoredDataError`."""
    return read_letters(await read_rows(partition, PREFIX, LAST, PROPERTIES))


def read_letters(rows: Sequence[Row]) -> Letters:
    """Return the letters that some rows hold, in their order. Raises `StoredDataError`."""
    if not rows:
        return NO_LETTERS
    letters = [letter for row in rows for letter in read_letter_row(row)]
    starts = []
    for row in rows:
        with reading_row(f"The key of the row {row.row_key}", row):
            starts.append(int(row.row_key.removeprefix(PREFIX)))
    return Letters(tuple(letters), tuple(starts))


def read_letter_row(row: Row) -> list[Letter]:
    """Return the letters in a row. Raises `StoredDataError`."""
    with reading_row(f"The letters in the row {row.row_key}", row):
        packed = unpack(decompress(join(row.properties, PROPERTIES)), unicode_errors=_TEXT)
        letters = [_letter(*fields) for fields in packed]
        if not letters:
            raise ValueError("there are none")
        return letters


def _letter(number: int, state: int, *fields: Any) -> Letter:  # noqa: ANN401 - they are checked by their number
    letter = Letter(number, LetterState(state), *fields)
    for value, kinds in zip(letter, _KINDS, strict=True):
        if kinds is not None:
            expect(value, *kinds)
    envelope: Any = letter.envelope
    return letter._replace(
        envelope=None if envelope is None else unpack_envelope(envelope), reason=Reason(letter.reason)
    )


def letter_properties(letters: Sequence[Letter]) -> dict[str, Value]:
    """Return the properties of a row of letters."""
    properties: dict[str, Value] = {}
    split(properties, PROPERTIES, compress(_pack(letters)))
    return properties


def _pack(letters: Sequence[Letter]) -> bytes:
    fields = [
        each._replace(envelope=None if each.envelope is None else pack_envelope(each.envelope))  # type: ignore[arg-type]
        for each in letters
    ]
    written = [each if each.first_at is not None else each[:-1] for each in fields]
    packed: bytes = msgpack.packb(written, unicode_errors=_TEXT)
    return packed

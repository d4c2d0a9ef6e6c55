"""The header of a stream compared with its rows: every number in it is told by another one too.

One number that is wrong is made anew. Where two are, rows may be lost: then the header is right, and stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from eventstore import Int64, Properties, Value
from eventstore.partition import EVENT, HEADER
from eventstore.properties import FIRST_VERSION, VERSION
from runtime.clock import to_datetime
from runtime.errors import StoredDataError
from runtime.storage import limits
from runtime.storage.checking.runs import End, Place, StoredRuns, differing
from runtime.storage.checking.tails import sound_tail
from runtime.storage.chunks import chunk_names, join, split
from runtime.storage.damage import reading
from runtime.storage.properties import INT32, INT64, number
from runtime.storage.tail import StoredTail, Tail, changed_tail, read_stored

_TAIL = chunk_names("Tail", 2)
_Expected = dict[str, Value | None]


class LostRowsError(Exception):
    """Raised where the rows do not tell what a header should say: some of them, such as this one, are gone."""

    def __init__(self, problem: str, row: str = HEADER) -> None:
        super().__init__(problem, row)
        self.problem = problem
        self.row = row

    @classmethod
    def of_event(cls, event: int | None) -> LostRowsError:
        """Return the error that names an event."""
        return cls("is gone, and the header promises it", f"{EVENT}{event or 0:010d}")


@dataclass(frozen=True, slots=True)
class Numbers:
    """What a header says of events and versions, None for what cannot be read."""

    version: int | None
    first_event: int | None
    versions: int | None
    kept_from: int | None

    @classmethod
    def of(cls, properties: Properties) -> Numbers:
        """Return the numbers in the properties of a header."""
        return cls(
            _number(properties, VERSION, most=INT32),
            _number(properties, FIRST_VERSION, 1, most=INT32),
            _number(properties, "StateVersions"),
            _number(properties, "KeptFrom", 1),
        )

    def properties(self) -> _Expected:
        """Return the properties that say so."""
        return {
            VERSION: self.version,
            FIRST_VERSION: self.first_event if self.first_event != 1 else None,
            "StateVersions": None if self.versions is None else Int64(self.versions),
            "KeptFrom": Int64(self.kept_from) if self.kept_from not in (None, 1) else None,
        }


@dataclass(frozen=True, slots=True)
class SoundHeader:
    """What a header says, or should: its numbers, the runs that are kept, and all properties of the row."""

    numbers: Numbers
    kept: tuple[Place, ...]
    properties: Properties
    wrong: tuple[str, ...] = ()
    """The properties that are not as they should be."""


def sound_header(stored: Properties, runs: StoredRuns) -> SoundHeader:
    """Return what the header of a stream should be by its rows.

    Raises `StoredDataError` for a tail that cannot be read, and `LostRowsError` when rows are gone.
    """
    numbers = Numbers.of(stored)
    if numbers.versions == 0 and not runs.places:
        return SoundHeader(numbers, (), stored)
    with reading("The tail of the stream", HEADER):
        found = read_stored(join(stored, _TAIL)) if _TAIL[0] in stored else None
    tail = None if found is None else found.tail
    numbers, kept = _kept(numbers, tail, runs.places)
    end = runs.end_of(kept[-1].event) if kept else None
    if kept and end is None:
        raise LostRowsError(f"{VERSION} names no event of the newest")
    expected: _Expected = {}
    newest = end
    if found is not None:
        first = kept[-1].last + 1 if kept else numbers.kept_from or found.tail.first
        sound = _sound(found, first, end)
        numbers = replace(numbers, versions=first + sound.count - 1)
        newest = _end_of(sound)
        expected = _tail_properties(sound) if _is_changed(found, sound) else {}
    if newest is None:
        raise LostRowsError(f"counts {numbers.versions} versions, and there are none")
    return _compared(stored, numbers, kept, {**expected, **numbers.properties(), **_newest(stored, newest)})


def _kept(numbers: Numbers, tail: Tail | None, places: list[Place]) -> tuple[Numbers, tuple[Place, ...]]:
    """Return the numbers as they should be, and the runs that are kept.

    Where the header and the tail do not agree on a number, the one is right that fits the rows.
    """
    if not places:
        return _without_runs(numbers, tail), ()
    last = _last(numbers, tail, places)
    first = _first(numbers, places, last)
    kept = tuple(place for place in places if first.event <= place.event <= last.event)
    if [place.event for place in kept] != list(range(first.event, last.event + 1)):
        missing = set(range(first.event, last.event + 1)).difference(place.event for place in kept)
        raise LostRowsError.of_event(min(missing))
    versions = last.last + (tail.count if tail else 0)
    return Numbers(last.event, first.event, versions, first.first), kept


def _without_runs(numbers: Numbers, tail: Tail | None) -> Numbers:
    """Return the numbers of a stream all of whose versions are in its tail."""
    version, first_event = numbers.version, numbers.first_event
    if tail is None:
        raise LostRowsError(f"counts {numbers.versions} versions, and there are none")
    first = _agreed(tail.first, numbers.kept_from, (numbers.versions or 0) + 1 - tail.count)
    if version is None:
        version = (first_event or 1) - 1
    if first_event is None or first_event <= version:
        first_event = version + 1
    return Numbers(first_event - 1, first_event, first + tail.count - 1, first)


def _agreed(*told: int | None) -> int:
    """Return the number that is told twice."""
    for one in told:
        if one is not None and told.count(one) > 1:
            return one
    raise LostRowsError("no two numbers of the header agree on its first version")


def _last(numbers: Numbers, tail: Tail | None, places: list[Place]) -> Place:
    """Return the last run: two of the number of events, that of versions and the beginning of the tail tell it."""
    count = tail.count if tail else 0
    told = {None if numbers.versions is None else numbers.versions - count, tail.first - 1 if tail else None}
    named = next((place for place in places if place.event == numbers.version), None)
    if named is not None and (named.last in told or named == places[-1]):
        return named
    followed = next((place for place in places if place.last in told), None)
    if followed is None or followed.last != max(filter(None, told)):
        raise LostRowsError.of_event(numbers.version)
    return followed


def _first(numbers: Numbers, places: list[Place], last: Place) -> Place:
    """Return the first run that is kept, by its event or by the number of its first version."""
    by_event = next((place for place in places if place.event == numbers.first_event), None)
    by_version = next((place for place in places if place.first == numbers.kept_from), None)
    is_told_twice = by_event is not None and by_event.first == numbers.kept_from
    first = by_event if is_told_twice else by_version or by_event
    if first is None or first.event > last.event:
        raise LostRowsError.of_event(numbers.first_event)
    return first


def _sound(found: StoredTail, first: int, end: End | None) -> Tail:
    """Return the tail as it should be, which by its checksum was stored. Raises `StoredDataError`."""
    if found.checksum == found.found:
        return sound_tail(found.tail, first, end)
    try:
        sound = sound_tail(found.tail, first, end)
    except StoredDataError as error:
        raise changed_tail() from error
    if read_stored(sound.pack()).checksum != found.checksum:
        raise changed_tail()
    return sound


def _is_changed(found: StoredTail, sound: Tail) -> bool:
    return found.checksum != found.found or found.tail != sound


def _end_of(tail: Tail) -> End:
    run = tail.run()
    for problem in differing(run):
        raise StoredDataError(f"The tail of the stream {problem}.", HEADER)
    return End.of(run)


def _newest(stored: Properties, end: End) -> _Expected:
    """Return what the newest version tells: when it was made, and the state.

    Earlier code stored the state in a later schema version than that of the newest version, which only its handler can
    tell, or left it out when it was too large then. What reads it takes that of the newest version.
    """
    expected: _Expected = {"LastNow": to_datetime(end.now)}
    schema, state = _number(stored, "StateSchema", most=INT32), stored.get("State")
    if schema is not None and schema > end.schema and isinstance(state, bytes | None):
        return expected
    fits = len(end.state) <= limits.MAX_HEAD_STATE_BYTES
    return {**expected, "StateSchema": end.schema, "State": end.state if fits else None}


def _tail_properties(tail: Tail) -> _Expected:
    written: dict[str, Value] = {}
    split(written, _TAIL, tail.pack())
    return {name: written.get(name) for name in _TAIL}


def _compared(
    stored: Properties, numbers: Numbers, kept: tuple[Place, ...], expected: Mapping[str, Value | None]
) -> SoundHeader:
    wrong = tuple(name for name, value in expected.items() if not _is_same(stored.get(name), value))
    properties = {name: value for name, value in {**stored, **expected}.items() if value is not None}
    return SoundHeader(numbers, kept, properties, wrong)


def _is_same(stored: Value | None, expected: Value | None) -> bool:
    return stored == expected and isinstance(stored, bool) == isinstance(expected, bool)


def _number(
    properties: Properties, name: str, default: int | None = None, *, most: int = INT64
) -> int | None:
    try:
        return number(properties, name, default, most=most)
    except (KeyError, TypeError, ValueError):
        return None


_ONE = frozenset({VERSION, FIRST_VERSION, "StateVersions", "KeptFrom", "LastNow", "State", "StateSchema"})


def is_certain(header: SoundHeader) -> bool:
    """Say whether what is wrong can be made anew: no more than one of what is told by the rows is."""
    tail = {name for name in header.wrong if name in _TAIL}
    return len(_ONE.intersection(header.wrong)) + bool(tail) <= 1

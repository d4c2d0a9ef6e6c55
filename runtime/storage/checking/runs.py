"""The runs of a stream as they are stored, one after another: whether each is sound, and follows the one before it."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from typing import NamedTuple

from eventstore import Properties, RecordedEvent, Row, Value
from eventstore.partition import EVENT
from runtime.clock import to_datetime
from runtime.errors import StoredDataError
from runtime.messages.digests import digest_state
from runtime.storage.damage import reading_row
from runtime.storage.run import Run, dates, read_index, read_run

_ENDS_KEPT = 3
"""How many of the newest runs may be the last one of the stream: behind it stand rows that are no part of it."""


class Place(NamedTuple):
    """A run that can be read: its event, and the numbers of its first and last versions."""

    event: int
    first: int
    last: int


class End(NamedTuple):
    """How a run ends: the state after it in its schema version, and when its newest version was made."""

    state: bytes
    schema: int
    now: int

    @classmethod
    def of(cls, run: Run) -> End:
        """Return the end of a run."""
        return cls(run.after, run.schema, run.versions.nows[-1])


class Problem(NamedTuple):
    """What is wrong with the row of an event, and its properties when they can be made anew.

    One `is_of_order` when it does not follow the run before, which may be left of a truncation.
    """

    event: int
    row_key: str
    text: str
    mended: Properties | None = None
    is_of_order: bool = False


class StoredRuns:
    """Takes the events of a stream in their order, of which one is in memory at a time."""

    def __init__(self) -> None:
        self.places: list[Place] = []
        self.problems: list[Problem] = []
        self._ends: deque[tuple[int, End]] = deque(maxlen=_ENDS_KEPT)

    def add(self, row: Row) -> tuple[int, Run] | None:
        """Take an event, and return it with its run; None when it cannot be read."""
        number = 0
        try:
            with reading_row("The key of an event", row):
                number = int(row.row_key.removeprefix(EVENT))
            event = RecordedEvent(number, row.properties)
            run = read_run(event)
        except StoredDataError as error:
            self.problems.append(Problem(number, row.row_key, error.problem))
            return None
        self.problems += [Problem(number, row.row_key, text) for text in differing(run)]
        self.problems += [
            Problem(number, row.row_key, text, is_of_order=True) for text in self._before(number, run)
        ]
        mended = _mended(event, run)
        if mended is not None:
            text = "says other times of its messages than its versions have"
            self.problems.append(Problem(number, row.row_key, text, mended))
        self.places.append(Place(number, run.first, run.last))
        self._ends.append((number, End.of(run)))
        return number, run

    @property
    def row_keys(self) -> dict[int, str]:
        """The keys of all events, those that cannot be read among them."""
        unreadable = {problem.event: problem.row_key for problem in self.problems if problem.event}
        return {**unreadable, **{place.event: f"{EVENT}{place.event:010d}" for place in self.places}}

    def end_of(self, event: int) -> End | None:
        """Return how the run of an event ends, None when it is none of the newest."""
        return dict(self._ends).get(event)

    def _before(self, event: int, run: Run) -> Iterator[str]:
        """Give what does not fit the run before."""
        if not self.places:
            return
        place, (_, end) = self.places[-1], self._ends[-1]
        if place.event != event - 1:
            return
        if run.first != place.last + 1:
            yield f"begins with version {run.first}, and version {place.last + 1} follows the run before"
        elif run.schema == end.schema and run.before != end.state:
            yield "begins with another state than the run before it ends with"


def differing(run: Run) -> Iterator[str]:
    """Give the versions whose state is not the one that was stored, by its digest."""
    state, digest = run.before, b""
    for position, (after, stored) in enumerate(
        zip(run.versions.afters, run.versions.state_digests, strict=True)
    ):
        if after is not None or not digest:
            state = state if after is None else after
            digest = digest_state(state)
        if digest != stored:
            yield f"has another state of version {run.first + position} than its digest says"


def _mended(event: RecordedEvent, run: Run) -> Properties | None:
    """Return the properties of an event whose times are not those of its versions."""
    index, (newest, undated) = read_index(event), dates(run.versions.enqueued_at)
    if (index.newest, index.undated) == (newest, undated):
        return None
    properties: dict[str, Value] = {**event.properties, "Undated": undated}
    properties.pop("Newest", None)
    if newest is not None:
        properties["Newest"] = to_datetime(newest)
    return properties

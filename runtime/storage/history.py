"""Histories: what is known of a stream while its messages are handled."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from types import MappingProxyType
from typing import NamedTuple

from eventstore import RecordedEvent, Stream
from runtime.messages.message_ids import IdKey
from runtime.storage.head import Head
from runtime.storage.id_index import IndexRow, Place
from runtime.storage.letters import NO_LETTERS, Letters
from runtime.storage.run import Run, read_ids, read_run
from runtime.storage.tail import NO_EVENT, Tail
from runtime.storage.version import RunVersions, Version


class FoundVersions:
    """The versions of some messages, as they were read. One run is decoded at a time, when a version is asked for."""

    __slots__ = ("_decoded", "_events", "_places", "_tail")

    def __init__(self, tail: Tail | None = None, events: Iterable[RecordedEvent] = ()) -> None:
        self._tail = tail
        self._events = {event.version: event for event in events}
        self._places: dict[IdKey, tuple[int, int]] = {}
        self._decoded: tuple[int, RunVersions] | None = None

    @classmethod
    def of(
        cls,
        wanted: AbstractSet[IdKey],
        tail: Tail | None,
        candidates: Iterable[Place],
        events: Iterable[RecordedEvent],
    ) -> FoundVersions:
        """Look for messages in the tail, and at the places in runs that the index names.

        Takes one look at each place, however many messages have the hash of the id that stands there.
        """
        found = cls(tail, events)
        if tail is not None:
            ids_of_tail = tail.ids()
            if not wanted.isdisjoint(ids_of_tail):
                places = enumerate(ids_of_tail)
                found._places = {key: (NO_EVENT, position) for position, key in places if key in wanted}
        ids = {number: read_ids(event) for number, event in found._events.items()}
        for place in candidates:
            key = ids[place.event][place.position]
            if key in wanted:
                found._places[key] = place
        return found

    def __bool__(self) -> bool:
        return bool(self._places)

    def __contains__(self, message_id: IdKey) -> bool:
        return message_id in self._places

    def find(self, message_id: IdKey) -> Version | None:
        """Return the version that a message made, None when it made none that is kept."""
        place = self._places.get(message_id)
        if place is None:
            return None
        event, position = place
        if self._decoded is None or self._decoded[0] != event:
            self._decoded = (event, RunVersions(self._run(event)))
        return self._decoded[1].at(position)

    def event(self, number: int) -> RecordedEvent | None:
        """Return the event of a run, if it was read."""
        return self._events.get(number)

    def _run(self, event: int) -> Run:
        if event != NO_EVENT:
            return read_run(self._events[event])
        if self._tail is None:
            raise AssertionError("Places in the tail are found by reading it.")
        return self._tail.run()


class NewestState(NamedTuple):
    """The newest state of a stream, encoded in the schema version of the code that is to read it."""

    encoded: bytes = b""
    schema: int = 1


class History(NamedTuple):
    """What is known of a stream: as it was loaded, and what was appended to it since.

    `head` and `index_rows` belong to the `stream` value, on which the next append is conditional. The head is as it is
    stored; `newest` is its state after the upcasters, wherever it is stored, and empty when the stream was read without
    it: only the next version may store a state in a later schema version. `found` are the
    versions of the messages that it was loaded for; `appended` are the versions appended since, by message, as far as
    more copies of their messages wait. `letters` are the deliveries that were refused.
    """

    stream: Stream
    head: Head
    index_rows: Sequence[IndexRow] = ()
    found: FoundVersions = FoundVersions()
    appended: Mapping[IdKey, Version] = MappingProxyType({})
    letters: Letters = NO_LETTERS
    newest: NewestState = NewestState()

    @property
    def has_found(self) -> bool:
        """Whether there are versions of any of the messages."""
        return bool(self.appended or self.found)

    def has(self, message_id: IdKey) -> bool:
        """Say whether there is a version that a message made."""
        return message_id in self.appended or message_id in self.found

    def find(self, message_id: IdKey) -> Version | None:
        """Return the version that a message made, None when it made none that is kept."""
        return self.appended.get(message_id) or self.found.find(message_id)

"""Deliveries of one stream that were parsed, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, overload

from handlers import Message
from handlers.route import Route
from runtime.messages.envelope import Envelope
from runtime.messages.envelopes import Envelopes
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome


class Prepared(NamedTuple):
    """A delivery whose body is a valid message of the stream."""

    envelope: Envelope
    route: Route
    message: Message
    key: IdKey
    fingerprint: bytes

    @property
    def business_id(self) -> str:
        """The id of the business object that the message is for."""
        return self.route.business_id(self.message)


Delivery = Prepared | Outcome
"""A delivery that was parsed: ready to be handled, or the dead letter that it is."""

_ALL = slice(0, None)


@dataclass(slots=True)
class Deliveries(Sequence[Delivery]):
    """Deliveries that were parsed: for each the message in its body, or the dead letter that it is.

    `keys` and `fingerprints` are those of the messages; a dead letter has some key and an empty fingerprint. `routes`
    are the ways of the messages to their handler, by the name of their type. In a redrive, `letters` are the numbers of
    the letters that the deliveries are, by which a mended body finds its own. As a sequence it gives the deliveries one
    by one, each made when it is asked for.
    """

    envelopes: Envelopes
    keys: Sequence[IdKey]
    messages: Sequence[Message | Outcome]
    fingerprints: Sequence[bytes]
    routes: Mapping[str, Route]
    letters: Sequence[int] | None = None

    @classmethod
    def of(cls, deliveries: Sequence[Delivery]) -> Deliveries:
        """Return deliveries as columns."""
        if isinstance(deliveries, Deliveries):
            return deliveries
        rows = [
            (each.key, each.message, each.fingerprint) if isinstance(each, Prepared) else (b"", each, b"")
            for each in deliveries
        ]
        return cls(
            Envelopes.of(each.envelope for each in deliveries),
            [key for key, _, _ in rows],
            [message for _, message, _ in rows],
            [fingerprint for _, _, fingerprint in rows],
            {each.envelope.type: each.route for each in deliveries if isinstance(each, Prepared)},
        )

    def ready_keys(self, position: int = 0) -> set[IdKey]:
        """Return the keys of the messages that are ready to be handled, from a position on."""
        keys, messages = self.keys[position:], self.messages[position:]
        if Outcome not in map(type, messages):
            return set(keys)
        return {key for key, message in zip(keys, messages, strict=True) if not isinstance(message, Outcome)}

    def __len__(self) -> int:
        return len(self.messages)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...

    @overload
    def __getitem__(self, index: slice) -> Deliveries: ...

    def __getitem__(self, index: int | slice) -> Delivery | Deliveries:
        if isinstance(index, slice):
            if index == _ALL:
                return self
            return Deliveries(
                self.envelopes[index],
                self.keys[index],
                self.messages[index],
                self.fingerprints[index],
                self.routes,
                None if self.letters is None else self.letters[index],
            )
        message = self.messages[index]
        if isinstance(message, Outcome):
            return message
        envelope = self.envelopes[index]
        route = self.routes[envelope.type]
        return Prepared(envelope, route, message, self.keys[index], self.fingerprints[index])

    def __iter__(self) -> Iterator[Delivery]:
        return map(self.__getitem__, range(len(self)))

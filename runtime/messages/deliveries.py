"""Deliveries of one stream that were parsed, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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


class Parsed(NamedTuple):
    """What the body of a delivery holds, with the key of its id."""

    route: Route
    message: Message
    key: IdKey
    fingerprint: bytes


_ALL = slice(0, None)


@dataclass(frozen=True, slots=True)
class Deliveries(Sequence[Delivery]):
    """Deliveries that were parsed: for each what its body holds, or the dead letter that it is.

    In a redrive, `letters` are the numbers of the letters that they are, by which a mended body finds its own.

    As a sequence it gives the deliveries one by one, each made when it is asked for.
    """

    envelopes: Envelopes
    parsed: Sequence[Parsed | Outcome]
    letters: Sequence[int] | None = None

    @classmethod
    def of(cls, deliveries: Sequence[Delivery]) -> Deliveries:
        """Return deliveries as columns."""
        if isinstance(deliveries, Deliveries):
            return deliveries
        return cls(
            Envelopes.of(each.envelope for each in deliveries),
            [Parsed(*each[1:]) if isinstance(each, Prepared) else each for each in deliveries],
        )

    @property
    def keys(self) -> list[IdKey]:
        """The keys of the messages that are ready to be handled."""
        return self.keys_from(0)

    def keys_from(self, position: int) -> list[IdKey]:
        """Return the keys of the messages that are ready to be handled, from a position on."""
        return [each.key for each in self.parsed[position:] if type(each) is Parsed]

    def __len__(self) -> int:
        return len(self.parsed)

    @overload
    def __getitem__(self, index: int) -> Delivery: ...

    @overload
    def __getitem__(self, index: slice) -> Deliveries: ...

    def __getitem__(self, index: int | slice) -> Delivery | Deliveries:
        if isinstance(index, slice):
            if index == _ALL:
                return self
            letters = None if self.letters is None else self.letters[index]
            return Deliveries(self.envelopes[index], self.parsed[index], letters)
        parsed = self.parsed[index]
        return parsed if isinstance(parsed, Outcome) else Prepared(self.envelopes[index], *parsed)

    def __iter__(self) -> Iterator[Delivery]:
        return map(self.__getitem__, range(len(self)))

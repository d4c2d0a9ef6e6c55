"""Outcomes of the deliveries of one stream, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Self, overload

from runtime.messages.envelopes import Envelopes
from runtime.messages.outcome import Outcome, Output, Status


class Outcomes(Sequence[Outcome]):
    """The ends of deliveries, in their order: of the first ones, while there are fewer outcomes than `envelopes`.

    `ends` has for each its status, the version that its message made, and its outputs. `refused` has the outcomes, by
    position, that say more than that, as dead letters do. As a sequence it gives the outcomes one by one, each made
    when it is asked for.
    """

    __slots__ = ("business_id", "ends", "envelopes", "handler", "refused")

    def __init__(
        self, envelopes: Envelopes, handler: str | None = None, business_id: str | None = None
    ) -> None:
        self.envelopes = envelopes
        self.handler = handler
        self.business_id = business_id
        self.ends: list[tuple[Status, int | None, Sequence[Output]]] = []
        self.refused: dict[int, Outcome] = {}

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Outcomes:
        """Return outcomes as columns."""
        if isinstance(outcomes, Outcomes):
            return outcomes
        found = cls(Envelopes.of(each.envelope for each in outcomes))
        for outcome in outcomes:
            found.refuse(outcome)
        return found

    def conclude(self, status: Status, version: int, outputs: Sequence[Output]) -> None:
        """Add the outcome of the next delivery, whose message made a version, now or before."""
        self.ends.append((status, version, outputs))

    def refuse(self, outcome: Outcome) -> None:
        """Add the outcome of the next delivery as it is."""
        self.refused[len(self.ends)] = outcome
        self.ends.append((outcome.status, outcome.version, outcome.outputs))

    def __iadd__(self, other: Outcomes) -> Self:
        """Add outcomes of the next deliveries."""
        first = len(self.ends)
        self.refused.update({first + position: outcome for position, outcome in other.refused.items()})
        self.ends += other.ends
        return self

    def __len__(self) -> int:
        return len(self.ends)

    @overload
    def __getitem__(self, index: int) -> Outcome: ...

    @overload
    def __getitem__(self, index: slice) -> Outcomes: ...

    def __getitem__(self, index: int | slice) -> Outcome | Outcomes:
        if isinstance(index, slice):
            return self._slice(index)
        position = range(len(self))[index]
        refused = self.refused.get(position)
        if refused is not None:
            return refused
        status, version, outputs = self.ends[position]
        envelope = self.envelopes[position]
        return Outcome(envelope, self.handler, self.business_id, status, None, None, version, tuple(outputs))

    def __iter__(self) -> Iterator[Outcome]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # a list

    def _slice(self, rows: slice) -> Outcomes:
        found = Outcomes(self.envelopes[rows], self.handler, self.business_id)
        found.ends = self.ends[rows]
        places = enumerate(range(len(self))[rows])
        found.refused = {
            place: self.refused[position] for place, position in places if position in self.refused
        }
        return found

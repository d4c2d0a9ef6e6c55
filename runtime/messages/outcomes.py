"""Outcomes of the deliveries of one stream, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import overload

from runtime.messages.envelopes import Envelopes
from runtime.messages.outcome import Outcome, Output, Status


class Outcomes(Sequence[Outcome]):
    """The ends of deliveries, in their order: of the first ones, while there are fewer outcomes than `envelopes`.

    `statuses`, `versions` and `outputs` have a value for each. `refused` has the outcomes, by position, that say more
    than that, as dead letters do. As a sequence it gives the outcomes one by one, each made when it is asked for.
    """

    __slots__ = ("business_id", "envelopes", "handler", "outputs", "refused", "statuses", "versions")

    def __init__(
        self, envelopes: Envelopes, handler: str | None = None, business_id: str | None = None
    ) -> None:
        self.envelopes = envelopes
        self.handler = handler
        self.business_id = business_id
        self.statuses: list[Status] = []
        self.versions: list[int | None] = []
        self.outputs: list[Sequence[Output]] = []
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

    @property
    def has_dead_letter(self) -> bool:
        """Whether one of them is a dead letter."""
        return any(outcome.is_dead_letter for outcome in self.refused.values())

    def conclude(self, status: Status, version: int, outputs: Sequence[Output]) -> None:
        """Add the outcome of the next delivery, whose message made a version, now or before."""
        self.statuses.append(status)
        self.versions.append(version)
        self.outputs.append(outputs)

    def refuse(self, outcome: Outcome) -> None:
        """Add the outcome of the next delivery as it is."""
        self.refused[len(self.statuses)] = outcome
        self.statuses.append(outcome.status)
        self.versions.append(outcome.version)
        self.outputs.append(outcome.outputs)

    def extend(self, other: Outcomes) -> None:
        """Add outcomes of the next deliveries."""
        first = len(self.statuses)
        self.refused.update({first + position: outcome for position, outcome in other.refused.items()})
        self.statuses += other.statuses
        self.versions += other.versions
        self.outputs += other.outputs

    def __len__(self) -> int:
        return len(self.statuses)

    @overload
    def __getitem__(self, index: int) -> Outcome: ...

    @overload
    def __getitem__(self, index: slice) -> Outcomes: ...

    def __getitem__(self, index: int | slice) -> Outcome | Outcomes:
        if isinstance(index, slice):
            return self._slice(index)
        position = range(len(self))[index]
        return self.refused.get(position) or Outcome(
            self.envelopes[position],
            self.handler,
            self.business_id,
            self.statuses[position],
            version=self.versions[position],
            outputs=tuple(self.outputs[position]),
        )

    def __iter__(self) -> Iterator[Outcome]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # a list

    def _slice(self, rows: slice) -> Outcomes:
        found = Outcomes(self.envelopes[rows], self.handler, self.business_id)
        found.statuses, found.versions = self.statuses[rows], self.versions[rows]
        found.outputs = self.outputs[rows]
        places = enumerate(range(len(self))[rows])
        found.refused = {
            place: self.refused[position] for place, position in places if position in self.refused
        }
        return found

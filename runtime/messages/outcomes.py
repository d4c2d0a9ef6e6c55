"""Outcomes of the deliveries of one stream, column by column."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Self, overload

from handlers import Published
from runtime.messages.envelopes import Envelopes
from runtime.messages.outcome import Outcome, Status
from runtime.messages.outputs import Outputs, outputs_of, outputs_of_all


class Outcomes(Sequence[Outcome]):
    """How deliveries ended, in their order: the first ones, while there are fewer outcomes than `envelopes`.

    For each there is its status, the version that its message made and when, and what it published. `refused` has the
    outcomes, by position, that say more than that, such as dead letters. As a sequence it gives the outcomes one by
    one, each made when it is asked for.
    """

    __slots__ = (
        "business_id",
        "envelopes",
        "handler",
        "nows",
        "published",
        "refused",
        "statuses",
        "versions",
    )

    def __init__(
        self, envelopes: Envelopes, handler: str | None = None, business_id: str | None = None
    ) -> None:
        self.envelopes = envelopes
        self.handler = handler
        self.business_id = business_id
        self.statuses: list[Status] = []
        self.versions: list[int | None] = []
        self.nows: list[int] = []
        self.published: list[Sequence[Published]] = []
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

    def processed(self, first: int, nows: Sequence[int], published: Sequence[Sequence[Published]]) -> None:
        """Add the outcomes of the next deliveries, which made versions from number `first` on."""
        self.statuses += [Status.PROCESSED] * len(nows)
        self.versions += range(first, first + len(nows))
        self.nows += nows
        self.published += published

    def conclude(self, status: Status, version: int | None, now: int, published: Sequence[Published]) -> None:
        """Add the outcome of the next delivery."""
        self.statuses.append(status)
        self.versions.append(version)
        self.nows.append(now)
        self.published.append(published)

    def refuse(self, outcome: Outcome) -> None:
        """Add the outcome of the next delivery as it is."""
        self.refused[len(self)] = outcome
        self.conclude(outcome.status, outcome.version, 0, ())

    def outputs(self) -> tuple[list[int], Outputs]:
        """Return how many outputs each outcome has, and all of them, column by column."""
        if any(outcome.outputs for outcome in self.refused.values()):
            rows = [outcome.outputs for outcome in self]
            return [len(outputs) for outputs in rows], Outputs.of(chain.from_iterable(rows))
        return outputs_of_all(self.published, self.versions, self.nows)

    def __iadd__(self, other: Outcomes) -> Self:
        """Add outcomes of the next deliveries."""
        first = len(self)
        self.refused.update({first + position: outcome for position, outcome in other.refused.items()})
        self.statuses += other.statuses
        self.versions += other.versions
        self.nows += other.nows
        self.published += other.published
        return self

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
        refused = self.refused.get(position)
        if refused is not None:
            return refused
        version = self.versions[position]
        outputs = outputs_of(self.published[position], version or 0, self.nows[position])
        envelope, status = self.envelopes[position], self.statuses[position]
        return Outcome(envelope, self.handler, self.business_id, status, None, None, version, outputs)

    def __iter__(self) -> Iterator[Outcome]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # a list

    def _slice(self, rows: slice) -> Outcomes:
        found = Outcomes(self.envelopes[rows], self.handler, self.business_id)
        found.statuses, found.versions = self.statuses[rows], self.versions[rows]
        found.nows, found.published = self.nows[rows], self.published[rows]
        places = enumerate(range(len(self))[rows])
        found.refused = {
            place: self.refused[position] for place, position in places if position in self.refused
        }
        return found

"""Batches, redrives, parks and discards in any order, which die at any call: as a model says that keeps everything.

No letter is lost, none is redriven twice, and nothing overtakes a letter that parks its stream.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore import InterceptedTable
from runtime import Outcome
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.letters.selection import FoundLetter, Selection
from tests.unit.runtime.algorithms.world import At, CrashError, crash, lose_answer
from tests.unit.runtime.letters.post import DAMAGED, NEEDS, PostOffice, deliveries, parcel
from tests.unit.runtime.worker import ends

NAMES = "abcde"


@dataclass
class Kept:
    """A letter as the model keeps it."""

    name: str
    reason: str
    parks: bool
    tries: int = 1


@dataclass
class Model:
    """What was processed, what waits, and what was given up with which reason."""

    processed: list[str] = field(default_factory=list)
    letters: list[Kept] = field(default_factory=list)
    given_up: dict[str, str] = field(default_factory=dict)

    def batch(self, names: Sequence[str], *, park: bool) -> list[str]:
        """Return the ends of a batch."""
        stopped = False
        found: list[str] = []
        for name in names:
            end = self._end(name, stopped=stopped and park)
            if end in ("handler_error", "held_back"):
                stopped = True
                if self._letter(name) is None and name not in self.given_up:
                    is_parked = any(letter.parks for letter in self.letters)
                    self.letters.append(Kept(name, end, park or is_parked))
            elif end == "processed":
                self.processed.append(name)
            found.append(end)
        return found

    def redrive(self, names: Sequence[str]) -> list[str]:
        """Return the ends of a redrive over the letters of these messages."""
        return [self._redriven(name) for name in names]

    def discard(self, name: str) -> None:
        """Give a letter up."""
        letter = self._letter(name)
        if letter is not None:
            self.letters.remove(letter)
            self.given_up[name] = letter.reason

    def _end(self, name: str, *, stopped: bool) -> str:
        letter = self._letter(name)
        if name in self.processed:
            return "duplicate"
        if letter is not None:
            return letter.reason
        if name in self.given_up:
            return self.given_up[name]
        if stopped or any(letter.parks for letter in self.letters):
            return "held_back"
        return "handler_error" if self._fails(name) else "processed"

    def _redriven(self, name: str) -> str:
        letter = self._letter(name)
        if letter is None:
            return self._end(name, stopped=False)
        if any(other.parks for other in self.letters[: self.letters.index(letter)]):
            return "held_back"
        if self._fails(name):
            letter.reason, letter.tries = "handler_error", letter.tries + 1
            return "handler_error"
        self.letters.remove(letter)
        self.processed.append(name)
        return "processed"

    def _fails(self, name: str) -> bool:
        return name in DAMAGED or (name in NEEDS and NEEDS[name] not in self.processed)

    def _letter(self, name: str) -> Kept | None:
        return next((letter for letter in self.letters if letter.name == name), None)


Names = st.text(NAMES, min_size=1, max_size=4).map(list)
Disturbances = st.lists(st.tuples(st.integers(1, 8), st.sampled_from([crash, lose_answer])), max_size=3)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), Names, st.booleans(), Disturbances),
        st.tuples(st.just("redrive"), st.booleans(), Disturbances),
        st.tuples(st.just("discard"), st.sampled_from(NAMES)),
        st.tuples(st.just("damage"), st.sets(st.sampled_from(NAMES))),
    ),
    max_size=12,
)


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
@given(ACTIONS)
@settings(max_examples=150)
def test_what_becomes_of_messages_is_what_the_model_says(algorithm: AlgorithmName, actions):
    DAMAGED.clear()
    office, model = PostOffice(algorithm), Model()
    for action in actions:
        match action:
            case ("batch", names, park, disturbances):
                names = without_repetition(names)
                outcomes = disturbed_batch(office, names, park, disturbances)
                assert ends(outcomes) == model.batch(names, park=park)
            case ("redrive", in_part, disturbances):
                chosen = office.letters()[in_part:]
                outcomes = disturbed_redrive(office, chosen, disturbances)
                expected = model.redrive([each.letter.message_id for each in chosen])
                assert ends(outcomes) == expected
            case ("discard", name):
                office.discard(Selection(message_id=name))
                model.discard(name)
            case ("damage", names):
                DAMAGED.clear()
                DAMAGED.update(names - set(model.processed))  # or handlers would not be pure
        check(office, model)


def without_repetition(names: Sequence[str]) -> list[str]:
    return list(dict.fromkeys(names))


def check(office: PostOffice, model: Model) -> None:
    """Compare what is stored with the model."""
    assert office.state() == model.processed
    kept = [
        (each.letter.message_id, each.letter.reason.value, each.letter.parks, each.letter.tries)
        for each in office.letters()
    ]
    assert kept == [(each.name, each.reason, each.parks, each.tries) for each in model.letters]


def disturbed_batch(office: PostOffice, names: Sequence[str], park: bool, disturbances) -> list[Outcome]:
    """Run a batch, attempt after attempt, each of which is disturbed at one of its calls but the last."""
    messages = [parcel(name) for name in names]
    on_error: Literal["park", "continue"] = "park" if park else "continue"
    office.number += 1
    return attempts(
        office, disturbances, lambda table: office.attempt(table, office.number, messages, on_error)
    )


def disturbed_redrive(office: PostOffice, chosen: Sequence[FoundLetter], disturbances) -> list[Outcome]:
    messages = deliveries(chosen)
    office.number += 1
    return attempts(
        office,
        disturbances,
        lambda table: office.attempt(table, office.number, messages, is_redrive=True),
    )


def attempts(office: PostOffice, disturbances, attempt) -> list[Outcome]:
    for number, disturbance in disturbances:
        at = At(number, disturbance)

        def disturb(*_: object, at: At = at) -> None:
            at("call")

        try:
            attempt(InterceptedTable(office.table, before=disturb, after=disturb))
        except CrashError:
            continue
    outcomes: list[Outcome] = attempt(office.table)
    return outcomes

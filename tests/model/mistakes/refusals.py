"""Mistakes in what is kept of refused deliveries: that they are, with what, and what handles them again."""

from dataclasses import replace
from typing import Any

import pytest

from runtime.algorithms.algorithm import Refusals
from runtime.algorithms.state_based import algorithm as state_based
from runtime.algorithms.state_based.algorithm import StateBasedOneByOne
from runtime.algorithms.state_based.truncation import TruncationRules
from runtime.versions.dead_letter_rows import LetterState
from runtime.versions.stream import StreamUpdate
from tests.model.mistakes.mistake import ALONE, ALONE_CRASH, Mistakes, both, giving, instead_of
from tests.model.scenarios import refusals as scenarios
from tests.model.world import Bounds

MISTAKES = Mistakes()
mistake = MISTAKES.add

_no_trace = giving(Refusals, "record", None)
mistake("refusals leave no trace", "InOrder", scenarios.ONLY_IN_ORDER, ALONE_CRASH)(_no_trace)
for _name, _scenario in zip(("outbox", "store", "tokens"), scenarios.ENTITIES_ONLY_IN_ORDER, strict=True):
    mistake(f"{_name}: refusals leave no trace", "InOrder", _scenario, ALONE_CRASH)(_no_trace)


@mistake(
    "letters are written in a transaction of their own after the versions",
    "InOrder",
    scenarios.BATCH,
    ALONE_CRASH,
)
@mistake(
    "a redrive removes the letter after it stored the version",
    "ProcessedIsNoLetter",
    scenarios.REDRIVEN,
    ALONE,
)
@instead_of(state_based, "append")
async def _(append: Any, history: Any, new: Any) -> Any:
    if new.letters is None or new.head.versions == history.head.versions:
        return await append(history, new)
    head = new.head._replace(waiting=history.head.waiting)
    history = await append(history, StreamUpdate(head, new.runs))
    return await append(history, StreamUpdate(new.head, (), new.letters))


@mistake(
    "a redrive removes the letter before it stores the version", "NoLetterLost", scenarios.REDRIVEN, ALONE
)
@instead_of(state_based, "append")
async def _(append: Any, history: Any, new: Any) -> Any:
    if new.letters is None:
        return await append(history, new)
    head = history.head._replace(waiting=new.head.waiting)
    history = await append(history, StreamUpdate(head, (), new.letters))
    return await append(history, StreamUpdate(new.head, new.runs))


mistake("a follower overtakes a parked letter", "NoOvertaking", scenarios.PARKED, ALONE)(
    giving(Refusals, "_is_held_back", value=False)
)


@mistake("refusals are recognised by the id alone", "KeptAsLetter", scenarios.REUSED, ALONE)
@instead_of(Refusals, "_find")
def _(_: Any, self: Any, key: Any, __: Any) -> Any:
    return next(self._of(key), None)


@instead_of(Refusals, "_recorded")
def _only_ours_are_recorded(recorded: Any, self: Any, own: Any) -> Any:
    letter = recorded(self, own)
    is_others = letter is not None and letter.state is LetterState.BEYOND_LIMIT and not self._is_ours(letter)
    return None if is_others else letter


mistake(
    "a refusal beyond the limit hides that of another batch",
    "InOrder",
    scenarios.BEYOND,
    Bounds(1, crashes=2),
)(both(giving(Refusals, "_decides", value=True), _only_ours_are_recorded))


@mistake("a letter is redriven before its batch is finished", "AsRecorded", scenarios.OPEN, ALONE_CRASH)
@instead_of(Refusals, "__init__")
def _(begin: Any, self: Any, letters: Any, batch: Any, *numbers: Any) -> None:
    begin(self, letters, replace(batch, open_batches=None), *numbers)


@mistake(
    "a redrive with another body replaces the one that was refused", "RefusedForGood", scenarios.MENDED, ALONE
)
@instead_of(Refusals, "record")
def _(record: Any, self: Any, position: int, outcome: Any, delivery: Any, **given: Any) -> None:
    before = len(self._changes)
    record(self, position, outcome, delivery, **given)
    for _, _, letter in self._changes[before:]:
        self._change(position, letter._replace(content=delivery.fingerprint))


@mistake("refusals are not made durable", "KeptAsLetter", scenarios.SINGLE, Bounds(1, cuts=1))
@instead_of(StateBasedOneByOne, "process")
async def _(process: Any, self: Any, message: Any, **given: Any) -> Any:
    (outcome,) = await self.algorithm.process(message.business_id, [message])
    return outcome if outcome.is_dead_letter else await process(self, message, **given)


@mistake("a late copy waits behind a parked letter", "ProcessedIsNoLetter", scenarios.CUT_AND_PARKED, ALONE)
@instead_of(Refusals, "refusal")
def _(refusal: Any, self: Any, *given: Any, **_: Any) -> Any:
    return refusal(self, *given)


@mistake("a letter that was late before is redriven too late", "NeverTooLate", scenarios.LATE, ALONE)
def _letters_are_too_late(patch: pytest.MonkeyPatch) -> None:
    giving(Refusals, "is_redriven", value=False)(patch)


@mistake("truncation moves the horizon past a waiting letter", "NeverTooLate", scenarios.TRUNCATED, ALONE)
def _(patch: pytest.MonkeyPatch) -> None:
    giving(TruncationRules, "is_held_by_letter", value=False)(patch)
    _letters_are_too_late(patch)  # they are not, which is a second line of defence

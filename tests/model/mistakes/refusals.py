"""Mistakes in what is kept of refused deliveries: that they are, with what, and what handles them again."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from runtime.algorithms.refusals import Refusals
from runtime.algorithms.state_based import algorithm as state_based
from runtime.algorithms.state_based.truncation import TruncationRules
from runtime.messages.outcome import Outcome
from runtime.versions.dead_letters import Kind, Letter
from runtime.versions.stream import Append, append
from tests.model.mistakes.mistake import Mistake
from tests.model.scenarios import refusals as scenarios
from tests.model.scenarios import refused_entities
from tests.model.world import Bounds


def _no_trace(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Refusals, "record", lambda *_, **__: None)


def _letters_are_last(patch: pytest.MonkeyPatch) -> None:
    async def append_twice(history: Any, new: Append) -> Any:
        if new.letters is None or new.head.versions == history.head.versions:
            return await append(history, new)
        head = new.head._replace(waiting=history.head.waiting)
        history = await append(history, Append(head, new.runs))
        return await append(history, Append(new.head, (), new.letters))

    patch.setattr(state_based, "append", append_twice)


def _letters_are_first(patch: pytest.MonkeyPatch) -> None:
    async def append_twice(history: Any, new: Append) -> Any:
        if new.letters is None:
            return await append(history, new)
        head = history.head._replace(waiting=new.head.waiting)
        history = await append(history, Append(head, (), new.letters))
        return await append(history, Append(new.head, new.runs))

    patch.setattr(state_based, "append", append_twice)


def _nobody_waits(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Refusals, "_is_held_back", lambda *_: False)


def _bodies_are_not_told_apart(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Refusals, "_find", lambda self, key, _: next(self._of(key), None))


def _one_beyond_the_limit_hides_others(patch: pytest.MonkeyPatch) -> None:
    recorded: Any = Refusals._recorded

    def recorded_for_us(self: Any, own: Letter | None) -> Letter | None:
        letter: Letter | None = recorded(self, own)
        is_others = letter is not None and letter.kind is Kind.BEYOND_LIMIT and not self._is_ours(letter)
        return None if is_others else letter

    patch.setattr(Refusals, "_decides", lambda *_: True)
    patch.setattr(Refusals, "_recorded", recorded_for_us)


def _open_batches_are_not_spared(patch: pytest.MonkeyPatch) -> None:
    begin: Any = Refusals.__init__
    patch.setattr(
        Refusals,
        "__init__",
        lambda self, letters, batch, *numbers: begin(
            self, letters, replace(batch, open_batches=None), *numbers
        ),
    )


def _the_first_body_is_forgotten(patch: pytest.MonkeyPatch) -> None:
    record: Any = Refusals.record

    def record_and_replace(self: Any, position: int, outcome: Outcome, delivery: Any, **given: Any) -> None:
        before = len(self._changes)
        record(self, position, outcome, delivery, **given)
        for _, _, letter in self._changes[before:]:
            self._change(position, letter._replace(content=delivery.fingerprint))

    patch.setattr(Refusals, "record", record_and_replace)


def _refusals_are_not_made_durable(patch: pytest.MonkeyPatch) -> None:
    process: Any = state_based.StateBasedOneByOne.process

    async def process_quickly(self: Any, message: Any, **given: Any) -> Outcome:
        (outcome,) = await self.algorithm.process(message.business_id, [message])
        if outcome.is_dead_letter:
            return outcome  # type: ignore[no-any-return]
        return await process(self, message, **given)  # type: ignore[no-any-return]

    patch.setattr(state_based.StateBasedOneByOne, "process", process_quickly)


def _letters_hold_nothing(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TruncationRules, "is_held_by_letter", lambda *_: False)
    _letters_are_too_late(patch)  # they are not, which is a second line of defence


def _late_copies_wait_too(patch: pytest.MonkeyPatch) -> None:
    refusal: Any = Refusals.refusal
    patch.setattr(Refusals, "refusal", lambda self, *given, **_: refusal(self, *given))


def _letters_are_too_late(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Refusals, "is_redriven", lambda *_: False)


_CALM, _CRASH = Bounds(1), Bounds(1, crashes=1)

MISTAKES = (
    Mistake("refusals leave no trace", _no_trace, scenarios.ONLY_IN_ORDER, _CRASH, "InOrder"),
    Mistake(
        "letters are written in a transaction of their own after the versions",
        _letters_are_last,
        scenarios.BATCH,
        _CRASH,
        "InOrder",
    ),
    Mistake(
        "a redrive removes the letter after it stored the version",
        _letters_are_last,
        scenarios.REDRIVEN,
        _CALM,
        "ProcessedIsNoLetter",
    ),
    Mistake(
        "a redrive removes the letter before it stores the version",
        _letters_are_first,
        scenarios.REDRIVEN,
        _CALM,
        "NoLetterLost",
    ),
    Mistake("a follower overtakes a parked letter", _nobody_waits, scenarios.PARKED, _CALM, "NoOvertaking"),
    Mistake(
        "refusals are recognised by the id alone",
        _bodies_are_not_told_apart,
        scenarios.REUSED,
        _CALM,
        "KeptAsLetter",
    ),
    Mistake(
        "a refusal beyond the limit hides that of another batch",
        _one_beyond_the_limit_hides_others,
        scenarios.BEYOND,
        Bounds(1, crashes=2),
        "InOrder",
    ),
    Mistake(
        "a letter is redriven before its batch is finished",
        _open_batches_are_not_spared,
        scenarios.OPEN,
        _CRASH,
        "AsRecorded",
    ),
    Mistake(
        "a redrive with another body replaces the one that was refused",
        _the_first_body_is_forgotten,
        scenarios.MENDED,
        _CALM,
        "RefusedForGood",
    ),
    Mistake(
        "refusals are not made durable",
        _refusals_are_not_made_durable,
        scenarios.SINGLE,
        Bounds(1, cuts=1),
        "KeptAsLetter",
    ),
    Mistake(
        "truncation moves the horizon past a waiting letter",
        _letters_hold_nothing,
        scenarios.TRUNCATED,
        _CALM,
        "NeverTooLate",
    ),
    Mistake(
        "a late copy waits behind a parked letter",
        _late_copies_wait_too,
        scenarios.CUT_AND_PARKED,
        _CALM,
        "ProcessedIsNoLetter",
    ),
    Mistake(
        "a letter that was late before is redriven too late",
        _letters_are_too_late,
        scenarios.LATE,
        _CALM,
        "NeverTooLate",
    ),
    *(
        Mistake(
            f"{name}: refusals leave no trace",
            _no_trace,
            scenario,
            _CRASH,
            "InOrder",
        )
        for name, scenario in zip(("outbox", "store", "tokens"), refused_entities.ONLY_IN_ORDER, strict=True)
    ),
)

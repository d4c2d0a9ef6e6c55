"""Refusals: replies that are refused while the line they answer is not there, and kept as letters until redriven.

A redrive is a batch over letters. Its log is written when they wait; here, before the scenario begins. Algorithms with
an outbox keep letters as rows beside the entity.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from runtime.algorithms.algorithm import Refusals
from runtime.algorithms.state_based import algorithm
from runtime.algorithms.state_based.algorithm import StateBasedOneByOne
from runtime.algorithms.state_based.truncation import TruncationRules
from runtime.ledger.ledger import PARTITION
from runtime.messages.envelope import Envelope
from runtime.versions import limits
from runtime.versions.dead_letter_rows import LetterState
from runtime.versions.stream import StreamUpdate, find_versions
from tests.model import invariants
from tests.model.book import BOOK, Handled, committed_letters, committed_versions, reply, write
from tests.model.calls import SteppedTable
from tests.model.facts import Scenario
from tests.model.histories import Job
from tests.model.mistakes import ALONE, ALONE_CRASH, Mistakes, both, giving, instead_of
from tests.model.processes import Process
from tests.model.scenarios import entities
from tests.model.scenarios.entities import FAMILIES, Family
from tests.model.scenarios.state_based import ONE_TOKEN, PARTS, RUNS, deliver, task
from tests.model.scenarios.truncation import OLD, at_that_time, long_ago, old, truncate
from tests.model.scenarios.two_passes import batch, batches
from tests.model.world import Bounds


def _refusals(name, jobs, earlier=(), invariants=invariants.WITH_REFUSALS, limits=ONE_TOKEN) -> Scenario:
    """Return a scenario with messages that handlers reject by the state, and with what handles them again."""
    return Scenario(
        name,
        jobs,
        invariants,
        lambda found: {**committed_versions(found), **committed_letters(found)},
        earlier,
        limits,
    )


def redrive(number: int, *messages: Envelope, copies: int = 1) -> Job:
    """Return the job of redriving letters, attempted so many times."""
    return task(f"redrive-{number}", *messages, copies=copies, is_redrive=True)


def once_refused(job: Job, *messages: str) -> Job:
    """Return the job of a redrive that is begun when its messages are letters, and does nothing before."""
    return job._replace(start=partial(_once_refused, job, messages))


async def _once_refused(job: Job, messages: Sequence[str], process: Process) -> Handled:
    table = SteppedTable()
    if await table.get(PARTITION, job.name) is None:
        history = await find_versions(table, "Scribe", BOOK, ())
        waiting = {letter.message_id for letter in history.letters.waiting} if history else set()
        if not waiting.issuperset(messages):
            return Handled()
    handled = await job.start(process)
    assert isinstance(handled, Handled)
    return handled


_R, _MENDED, _WRONG = reply("r", to="a"), reply("r", to="z"), reply("r", to="y")
_A, _B, _C, _Z = map(write, "abcz")
_ORDER = invariants.in_order("batch-1", "r", "a")
_IN_ORDER = (_ORDER, *invariants.WITH_REFUSALS)
_REFUSED, _REFUSED_BEFORE_ITS_LINE = task("batch-1", _R), task("batch-1", _R, _A)

SINGLE = _refusals("a reply, 2 copies, and its line", [deliver(_R, 2), deliver(_A)])
REUSED = _refusals(
    "a reply, and one to another line with its id", [deliver(_R), deliver(_WRONG)._replace(name="r-2")]
)
BATCH = _refusals("a batch with a reply before its line", [_REFUSED_BEFORE_ITS_LINE], invariants=_IN_ORDER)
ONLY_IN_ORDER = replace(BATCH, name=f"{BATCH.name}, and its order alone", invariants=[_ORDER])
ATTEMPTS = _refusals(
    "2 attempts of a batch with a reply before its line",
    [_REFUSED_BEFORE_ITS_LINE._replace(copies=2)],
    invariants=_IN_ORDER,
)
IN_PARTS = _refusals(
    "2 attempts of a batch with 2 replies before their line, in parts of one letter or version",
    [task("batch-1", reply("q", to="a"), _R, _A, copies=2)],
    invariants=[invariants.in_order("batch-1", "q", "r", "a"), *invariants.WITH_REFUSALS],
    limits=[*ONE_TOKEN, *PARTS, (limits, "MAX_TRANSACTION_LETTERS", 1)],
)
FULL = _refusals(
    "2 attempts of a batch with 2 replies before their line, of which one is kept",
    [task("batch-1", reply("q", to="a"), _R, _A, copies=2)],
    invariants=[invariants.in_order("batch-1", "q", "r", "a"), *invariants.WITH_REFUSALS],
    limits=[*ONE_TOKEN, (limits, "MAX_LETTERS", 1)],
)
BATCHES = _refusals(
    "2 batches with a reply in common, one before its line",
    [_REFUSED_BEFORE_ITS_LINE, task("batch-2", _R)],
    invariants=_IN_ORDER,
)
BEYOND = _refusals(
    "2 batches with a reply before its line that cannot be kept",
    [task("batch-1", reply("q", to="a"), _R), task("batch-2", _R, _A)],
    invariants=[invariants.in_order("batch-2", "r", "a"), *invariants.WITH_REFUSALS],
    limits=[*ONE_TOKEN, (limits, "MAX_LETTERS", 1)],
)
BESIDE = _refusals(
    "a batch with a reply before its line beside a copy", [_REFUSED_BEFORE_ITS_LINE, deliver(_R)]
)

REDRIVEN = _refusals("a redrive", [redrive(1, _R)], [_REFUSED_BEFORE_ITS_LINE])
REDRIVEN_TWICE = _refusals(
    "2 redrives of a reply", [redrive(1, _R), redrive(2, _R)], [_REFUSED_BEFORE_ITS_LINE]
)
WAITING = _refusals(
    "2 attempts of a redrive beside the line that it waits for",
    [redrive(1, _R, copies=2), deliver(_A)],
    [_REFUSED],
)
REDELIVERED = _refusals("a redrive beside a copy", [redrive(1, _R), deliver(_R)], [_REFUSED_BEFORE_ITS_LINE])
MENDED = _refusals(
    "a redrive with another body beside a copy", [redrive(1, _WRONG), deliver(_R)], [_REFUSED_BEFORE_ITS_LINE]
)
OPEN = _refusals(
    "a redrive beside 2 attempts of the batch that refused",
    [_REFUSED_BEFORE_ITS_LINE, once_refused(redrive(1, _R), "r")],
    invariants=_IN_ORDER,
)

PARKING = _refusals(
    "2 attempts of a batch that parks a stream, beside a message",
    [task("batch-1", _R, _B, copies=2, on_error="park"), deliver(_C)],
)
PARKED = _refusals(
    "a redrive of a parked stream beside a message",
    [redrive(1, _MENDED, _B), deliver(_C)],
    [deliver(_Z), task("batch-1", _R, _B, on_error="park")],
)
STILL_PARKED = _refusals(
    "2 attempts of a redrive that is refused, of a parked stream",
    [redrive(1, _WRONG, _B, copies=2), deliver(_C)],
    [task("batch-1", _R, _B, on_error="park")],
)

_OLD_R = reply("r", to="a", enqueued_at=OLD + ord("r"))
_OLD_REFUSED = at_that_time([deliver(old("m")), deliver(_OLD_R), deliver(old("s")), deliver(old("t"))])
TRUNCATED = _refusals(
    "a redrive, and the line that it waits for, beside truncation",
    [truncate(), deliver(_A), redrive(1, _OLD_R)],
    _OLD_REFUSED,
)
TRUNCATED_IN_ROWS = replace(
    TRUNCATED, name=f"{TRUNCATED.name}, each version in a row", limits=[*ONE_TOKEN, *RUNS]
)
CUT_AND_PARKED = _refusals(
    "a late copy for a parked stream beside truncation",
    [
        truncate(keep_last=1),
        task("batch-1", _R, on_error="park"),
        deliver(old("m")),
        once_refused(redrive(1, _MENDED, old("m")), "r", "m"),
    ],
    long_ago("m", "z"),
)
LATE = _refusals(
    "a redrive of what was refused though it was late",
    [task("batch-1", _OLD_R, _A, late="process"), once_refused(redrive(1, _OLD_R), "r")],
    [*long_ago("s", "t", "z"), truncate()],
)
ALL_AT_ONCE = _refusals(
    "batches, messages, late copies, a parked stream, redrives and truncation",
    [
        truncate(copies=2),
        task("batch-1", _R, _B, on_error="park"),
        task("batch-2", _R, _A, reply("q", to="a")),
        deliver(_C, 2),
        deliver(old("m"), 2),
        once_refused(redrive(1, _MENDED, _B), "r", "b"),
        once_refused(redrive(2, _A), "a"),
        once_refused(redrive(3, _R), "r"),
    ],
    long_ago(*"mnz"),
)


def _entities(what, jobs, *held, earlier=lambda _: []) -> tuple[Scenario, ...]:
    """Return the scenario of jobs with a reply to a line, and with that line, with each algorithm with an outbox."""
    return tuple(
        batches(
            f"{family.name}: {what}",
            jobs(family),
            [*family.invariants, *held, *invariants.OF_LETTERS],
            [*family.issued(_R, _A), *earlier(family)],
            "r",
        )
        for family in FAMILIES
    )


def _copy(family: Family, message: Envelope, copies: int = 1) -> Job:
    return entities.deliver(family.make, family.sent(message), copies)


_ENTITY_ORDER = invariants.in_order(None, "r", "a")
ENTITIES_SINGLE = _entities(
    SINGLE.name, lambda family: [_copy(family, _R, 2), _copy(family, _A)], invariants.REFUSED_FOR_GOOD
)
ENTITIES_BATCH = _entities(
    BATCH.name, lambda family: [batch(family, "batch-1", _R, _A)], _ENTITY_ORDER, invariants.REFUSED_FOR_GOOD
)
ENTITIES_REDRIVEN = _entities(
    REDELIVERED.name,
    lambda family: [batch(family, "redrive-1", _R, is_redrive=True), _copy(family, _R)],
    earlier=lambda family: [batch(family, "batch-1", _R, _A)],
)
ENTITIES_ONLY_IN_ORDER = tuple(
    replace(each, name=f"{each.name}, and its order alone", invariants=[_ENTITY_ORDER])
    for each in ENTITIES_BATCH
)


MISTAKES = Mistakes()
mistake = MISTAKES.add

_no_trace = giving(Refusals, "record", None)
mistake("refusals leave no trace", "InOrder", ONLY_IN_ORDER, ALONE_CRASH)(_no_trace)
for _name, _scenario in zip(("outbox", "store", "tokens"), ENTITIES_ONLY_IN_ORDER, strict=True):
    mistake(f"{_name}: refusals leave no trace", "InOrder", _scenario, ALONE_CRASH)(_no_trace)


@mistake(
    "letters are written in a transaction of their own after the versions",
    "InOrder",
    BATCH,
    ALONE_CRASH,
)
@mistake(
    "a redrive removes the letter after it stored the version",
    "ProcessedIsNoLetter",
    REDRIVEN,
    ALONE,
)
@instead_of(algorithm, "append")
async def _(append: Any, history: Any, new: Any) -> Any:
    if new.letters is None or new.head.versions == history.head.versions:
        return await append(history, new)
    head = new.head._replace(waiting=history.head.waiting)
    history = await append(history, StreamUpdate(head, new.runs))
    return await append(history, StreamUpdate(new.head, (), new.letters))


@mistake("a redrive removes the letter before it stores the version", "NoLetterLost", REDRIVEN, ALONE)
@instead_of(algorithm, "append")
async def _(append: Any, history: Any, new: Any) -> Any:
    if new.letters is None:
        return await append(history, new)
    head = history.head._replace(waiting=new.head.waiting)
    history = await append(history, StreamUpdate(head, (), new.letters))
    return await append(history, StreamUpdate(new.head, new.runs))


mistake("a follower overtakes a parked letter", "NoOvertaking", PARKED, ALONE)(
    giving(Refusals, "_is_held_back", value=False)
)


@mistake("refusals are recognised by the id alone", "KeptAsLetter", REUSED, ALONE)
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
    BEYOND,
    Bounds(1, crashes=2),
)(both(giving(Refusals, "_decides", value=True), _only_ours_are_recorded))


@mistake("a letter is redriven before its batch is finished", "AsRecorded", OPEN, ALONE_CRASH)
@instead_of(Refusals, "__init__")
def _(begin: Any, self: Any, letters: Any, summary: Any, batch: Any, *numbers: Any) -> None:
    begin(self, letters, summary, replace(batch, open_batches=None), *numbers)


@mistake("a redrive with another body replaces the one that was refused", "RefusedForGood", MENDED, ALONE)
@instead_of(Refusals, "record")
def _(record: Any, self: Any, position: int, outcome: Any, delivery: Any, **given: Any) -> None:
    before = len(self._changes)
    record(self, position, outcome, delivery, **given)
    for _, _, letter in self._changes[before:]:
        self._change(position, letter._replace(content=delivery.fingerprint))


@mistake("refusals are not made durable", "KeptAsLetter", SINGLE, Bounds(1, cuts=1))
@instead_of(StateBasedOneByOne, "process")
async def _(process: Any, self: Any, message: Any, **given: Any) -> Any:
    (outcome,) = await self.algorithm.process(message.business_id, [message])
    return outcome if outcome.is_dead_letter else await process(self, message, **given)


@mistake("a late copy waits behind a parked letter", "ProcessedIsNoLetter", CUT_AND_PARKED, ALONE)
@instead_of(Refusals, "refusal")
def _(refusal: Any, self: Any, *given: Any, **_: Any) -> Any:
    return refusal(self, *given)


@mistake("a letter that was late before is redriven too late", "NeverTooLate", LATE, ALONE)
def _letters_are_too_late(patch: pytest.MonkeyPatch) -> None:
    giving(Refusals, "is_redriven", value=False)(patch)


@mistake("truncation moves the horizon past a waiting letter", "NeverTooLate", TRUNCATED, ALONE)
def _(patch: pytest.MonkeyPatch) -> None:
    giving(TruncationRules, "is_held_by_letter", value=False)(patch)
    _letters_are_too_late(patch)  # they are not, which is a second line of defence

"""Batches, redrives, parks, discards, truncation, moves to another store and forgetting, in any order, with crashes.

The model keeps everything. It takes from the store only how far a truncation went, and checks that it went nowhere it
must not: no message takes effect twice, none that was refused takes effect without a redrive, no letter is lost or too
late, nothing overtakes a letter that parks its stream, and what was moved is what it was.
"""

import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore import StoreUnavailableError, Table, drive
from runtime import Envelope
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.state_based.truncation import TruncationChoices, truncate_stream
from runtime.archives.tables import export_table, import_table
from runtime.dead_letters import Selection, discard
from runtime.ledger.batch import OpenBatches
from runtime.maintenance.forget import Tables, forget
from runtime.versions.head import Head
from runtime.versions.stream import find_versions
from tests.unit.runtime.accidents import At, CrashError, crash, disturbed_once, lose_answer
from tests.unit.runtime.algorithms.world import ALGORITHMS
from tests.unit.runtime.dead_letters.post import DAMAGED, NEEDS, PostOffice, parcel
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import DAY, NOW, ToldClock, ends

T = TypeVar("T")

Disturbances = st.lists(st.tuples(st.integers(1, 8), st.sampled_from([crash, lose_answer])), max_size=3)
"""At which calls attempts are disturbed, and how."""


@dataclass
class Kept:
    name: str
    reason: str
    parks: bool
    tries: int = 1


@dataclass
class Model:
    """What took effect in this history of the object, what waits, and what was given up with which reason."""

    processed: list[str] = field(default_factory=list)
    letters: list[Kept] = field(default_factory=list)
    given_up: dict[str, str] = field(default_factory=dict)
    enqueued_at: dict[str, int] = field(default_factory=dict)
    kept_from: int = 1
    horizon: int | None = None
    is_forgotten: bool = False

    def batch(self, names: Sequence[str], *, park: bool) -> list[str]:
        stopped, found = False, []
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
        return [self._redriven(name) for name in names]

    def discard(self, name: str) -> None:
        letter = self._letter(name)
        if letter is not None:
            self.letters.remove(letter)
            self.given_up[name] = letter.reason

    def forget(self, now: int, *, restart: bool) -> None:
        """Forget the object; with `restart` a new history begins."""
        self.processed, self.letters, self.given_up, self.kept_from = [], [], {}, 1
        self.horizon, self.is_forgotten = now, not restart

    def _end(self, name: str, *, stopped: bool) -> str:
        if self.is_forgotten:
            return "forgotten"
        letter = self._letter(name)
        if name in self.processed and self.processed.index(name) + 1 >= self.kept_from:
            return "duplicate"
        if letter is not None:
            return letter.reason
        if name in self.given_up:
            return self.given_up[name]
        if self.horizon is not None and self.enqueued_at[name] <= self.horizon:
            return "too_late"
        assert name not in self.processed
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


def attempts(table: Table, disturbances: Any, attempt: Callable[[Table], T]) -> T:
    """Do something again and again, disturbed at one of its calls, and at last undisturbed."""
    for number, disturbance in disturbances:
        with suppress(CrashError):
            attempt(disturbed_once(table, At(number, disturbance)))
    return attempt(table)


NAMES = "abcdefgh"
KEY = "Boxes-b"


Names = st.text(NAMES, min_size=1, max_size=4).map(lambda text: list(dict.fromkeys(text)))
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("batch"), Names, st.booleans(), Disturbances),
        st.tuples(st.just("batch"), Names, st.just(value=False), Disturbances),
        st.tuples(st.just("redrive"), st.booleans(), Disturbances),
        st.tuples(st.just("discard"), st.sampled_from(NAMES), Disturbances),
        st.tuples(st.just("damage"), st.sets(st.sampled_from(NAMES))),
        st.tuples(st.just("truncate"), Disturbances),
        st.tuples(st.just("move")),
        st.tuples(st.just("forget"), st.booleans(), Disturbances),
    ),
    max_size=16,
)
ALGORITHM = st.sampled_from(ALGORITHMS[:3])


def interleave(algorithm: AlgorithmName, actions: Sequence[tuple[Any, ...]]) -> None:
    """Carry actions out, two days apart, and compare what becomes of each message with the model."""
    DAMAGED.clear()
    office, model = PostOffice(algorithm, clock=ToldClock(NOW)), Model()
    for action in actions:
        office.clock.now += 2 * DAY
        carry_out(office, model, action)
        check(office, model)


def carry_out(office: PostOffice, model: Model, action: tuple[Any, ...]) -> None:
    match action:
        case ("batch", names, park, disturbances):
            messages = [sent(office, model, name) for name in names]
            on_error: Literal["park", "continue"] = "park" if park else "continue"
            office.number += 1
            outcomes = attempts(
                office.table,
                disturbances,
                lambda table: office.attempt(table, office.number, messages, on_error),
            )
            assert ends(outcomes) == model.batch(names, park=park)
        case ("redrive", in_part, disturbances):
            chosen = office.letters()[in_part:]
            office.number += 1
            letters = [(each, None) for each in chosen]
            outcomes = attempts(
                office.table,
                disturbances,
                lambda table: office.attempt_redrive(office.number, letters, table),
            )
            assert ends(outcomes) == model.redrive([each.letter.message_id for each in chosen])
        case ("discard", name, disturbances):
            attempts(office.table, disturbances, partial(discard_one, name))
            model.discard(name)
        case ("damage", names):
            DAMAGED.clear()
            DAMAGED.update(names - set(model.processed))  # or handlers would not be pure
        case ("truncate", disturbances) if office.algorithm == "state-based":
            attempts(office.table, disturbances, partial(truncate, office))
            head = head_of(office)
            if head is not None:
                model.kept_from, model.horizon = head.kept_from, head.horizon
        case ("move",):
            office.table = moved(office.table)
        case ("forget", restart, disturbances):
            attempts(office.table, disturbances, partial(forget_box, office, restart=restart))
            if head_of(office) is not None or rows(office.table):
                model.forget(office.clock.now, restart=restart)


def sent(office: PostOffice, model: Model, name: str) -> Envelope:
    """Return a message, which was enqueued when it was sent first."""
    return parcel(name)._replace(enqueued_at=model.enqueued_at.setdefault(name, office.clock.now))


def truncate(office: PostOffice, table: Table) -> None:
    rules = TruncationChoices(older_than=DAY).as_of(office.clock.now, OpenBatches(next=office.number + 1))
    drive(truncate_stream(table, KEY, rules, PATIENCE))


def forget_box(office: PostOffice, table: Table, *, restart: bool) -> None:
    tables = Tables(table, table, table)
    drive(forget(tables, "Boxes", "b", office.clock.now, restart=restart, retries=PATIENCE))


def discard_one(name: str, table: Table) -> None:
    with suppress(StoreUnavailableError):  # the search for letters does not retry
        drive(discard(table, Selection(message_id=name), PATIENCE))


def moved(table: Table) -> Table:
    """Return an empty table into which everything was moved, through files."""
    other = memory_table()
    with tempfile.TemporaryDirectory() as folder:
        manifest = drive(export_table(table, "states", Path(folder) / "export", ignore))
        drive(import_table(other, "states", Path(folder) / "export", manifest, ignore))
    return other


def ignore(*_: object) -> None: ...


def head_of(office: PostOffice) -> Head | None:
    history = drive(find_versions(office.table, "Boxes", "b", ()))
    return None if history is None else history.head


def check(office: PostOffice, model: Model) -> None:
    """Compare what is stored with the model."""
    assert office.state() == model.processed
    kept = [
        (each.letter.message_id, each.letter.reason.value, each.letter.parks, each.letter.tries)
        for each in office.letters()
    ]
    assert kept == [(each.name, each.reason, each.parks, each.tries) for each in model.letters]
    if model.horizon is not None:
        assert all(model.enqueued_at[each.name] > model.horizon for each in model.letters)


@given(ALGORITHM, ACTIONS)
@settings(max_examples=250)
def test_what_becomes_of_messages_is_what_the_model_says(algorithm, actions):
    interleave(algorithm, actions)


@pytest.mark.thorough
@given(ALGORITHM, ACTIONS)
@settings(max_examples=4000)
def test_very_many_interleavings(algorithm, actions):
    interleave(algorithm, actions)

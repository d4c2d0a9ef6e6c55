"""Replays: a duplicate gives what its message gave first, or it is told what differs."""

from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import drive
from handlers import App, Context, Handler, Message, State, handles
from handlers.testing import HandlerSpec
from runtime import Output, Processor
from runtime.algorithms.state_based.replay import Difference
from runtime.errors import DifferenceError
from runtime.ledger.batch import BatchContext
from runtime.versions.readable import Change
from runtime.versions.stream import versions
from samples.shooting_range.handlers import FireAt, ShootingRange, StartNewRound
from tests.unit.handlers.processes import run_python
from tests.unit.handlers.test_specifications import Bell as ChurchBell
from tests.unit.handlers.test_specifications import Drew
from tests.unit.runtime.diary import SKY, Wrote, delivery, write
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, ends, outputs, stored

# A duplicate is handled with the context that was recorded: clock, captured values and headers of the first time.


def told(output: Output) -> Wrote:
    return Wrote.model_validate_json(output.body)


def test_a_duplicate_is_told_the_time_the_captured_values_and_the_headers_of_the_first_handling(
    table, monkeypatch
):
    # Brokers stamp headers on each delivery: what the first one had is what the version was made with.
    headers = MappingProxyType({"attempt": "1"})
    (first,) = outputs(Worker(table, clock=ToldClock(NOW)).process(write("a", headers=headers)))
    monkeypatch.setitem(SKY, "colour", "grey")

    later = Worker(table, clock=ToldClock(NOW + DAY))
    again, new = outputs(later.process(write("a", headers={"attempt": "2"}), write("b")))

    assert again == first
    assert told(again).now == "2026-01-01T00:00:00+00:00"
    assert told(again).headers == (("attempt", "1"),)
    assert (told(again).colour, told(new).colour) == ("blue", "grey")


# What differs in a replay is told field by field, as far as that is known.


RULE: dict[str, Any] = {"step": 1, "said": 1, "word": "ring", "many": 0}
"""What the handler does: a test changes it between a message and its duplicate."""


class Rang(Message):
    tower: str


class Heard(Message):
    word: str
    number: int


class Inner(State):
    last: str = ""


class Data(State):
    rings: int = 0
    inner: Inner = Inner()
    many: tuple[int, ...] = ()


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        for number in range(RULE["said"]):
            context.publish(Heard(word=RULE["word"], number=number), headers={"loud": RULE["word"]})
        return Data(
            rings=state.rings + RULE["step"], inner=Inner(last=RULE["word"]), many=tuple(range(RULE["many"]))
        )


bells = App(Bell)


def rang(message_id: str = "a"):
    return delivery(message_id, "Rang", {"tower": "east"})


def worker(table, batch=None, using: App = bells) -> Worker:
    return Worker(table, using, business_id="east", batch=batch)


def error_of(monkeypatch: pytest.MonkeyPatch, *, at_first: dict | None = None, **changed) -> str:
    """Handle a message, change the rule, handle its copy, and return what is said of it."""
    table = memory_table()
    with monkeypatch.context() as patched:
        for name, value in (at_first or {}).items():
            patched.setitem(RULE, name, value)
        worker(table).process(rang())
        for name, value in changed.items():
            patched.setitem(RULE, name, value)
        (outcome,) = worker(table).process(rang())
    assert ends([outcome]) == ["nondeterministic"]
    return outcome.error or ""


def test_each_field_of_the_state_that_differs_is_named_with_both_values(monkeypatch):
    assert error_of(monkeypatch, step=2) == (
        "The replay of version 1 has another next state than recorded: rings was 1 and is 2. "
        "The handler is not deterministic, or was changed without a new revision."
    )
    assert 'inner.last was "ring" and is "ding"' in error_of(monkeypatch, said=0, word="ding")
    both = error_of(monkeypatch, step=3, said=0)
    assert (
        "has other outputs and another next state than recorded: rings was 1 and is 3; no outputs, but"
        in both
    )


def test_long_values_are_cut_short_and_of_many_fields_that_differ_a_few_are_named(monkeypatch):
    error = error_of(monkeypatch, many=1000)
    assert "many was [] and is [0, 1, 2" in error
    assert len(error) < 350

    said = str(Difference(3, tuple(Change(f"field{number}", 1, 2) for number in range(9)), None))
    assert "field4 was 1 and is 2 and 4 fields more" in said


@pytest.mark.parametrize(
    ("at_first", "now", "said"),
    [
        (0, 2, "Heard, Heard were published; none were recorded."),
        (0, 1, "Heard was published; none were recorded."),
        (1, 3, "Heard, Heard, Heard were published; only the digest of the recorded ones is known"),
        (2, 0, "no outputs, but some were recorded."),
        (0, 8, "Heard, Heard, Heard, Heard, Heard and 3 more were published; none were recorded."),
    ],
)
def test_of_outputs_known_by_their_digest_it_is_said_what_can_be(monkeypatch, at_first, now, said):
    assert said in error_of(monkeypatch, at_first={"said": at_first}, said=now)


def test_a_state_of_an_older_schema_version_is_compared_as_it_is_upcast(table):
    class OldData(State):
        count: int = 0

    class Old(Handler[OldData], name="Bell"):
        @handles(by="tower")
        def rang(self, state: OldData, message: Rang, context: Context) -> OldData:
            return OldData(count=state.count + 1)

    class NewData(State, version=2, upcasters={1: lambda fields: {"rings": fields["count"]}}):
        rings: int = 0

    class New(Handler[NewData], name="Bell"):
        @handles(by="tower")
        def rang(self, state: NewData, message: Rang, context: Context) -> NewData:
            return NewData(rings=state.rings + 5)

    worker(table, using=App(Old)).process(rang())

    (outcome,) = worker(table, using=App(New)).process(rang())

    assert "rings was 1 and is 5 (compared in schema version 2, upcast from 1)." in str(outcome.error)


def test_a_batch_can_be_told_to_fail_on_a_difference(table, monkeypatch):
    worker(table).process(rang())
    before = contents(table)
    monkeypatch.setitem(RULE, "step", 2)

    with pytest.raises(DifferenceError, match="Message a of Bell-east was redelivered"):
        worker(table, BatchContext("night", on_difference="fail")).process(rang("b"), rang("a"))

    assert contents(table) == before
    forgiving = worker(table, BatchContext("night")).process(rang("b"), rang("a"))
    assert ends(forgiving) == ["processed", "nondeterministic"]


# Messages replayed in another process, with another hash seed, folder and time zone, give the same bytes.


PROGRAM = """
import os, sys, time
from eventstore import connect, drive
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome
from tests.unit.runtime.diary import NOISE, misbehave, ponder, write
from tests.unit.runtime.algorithms.game import GAME, fire, start
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, ends
from handlers import App
from samples.shooting_range.handlers import ShootingRange

store, days = sys.argv[1], int(sys.argv[2])
table = drive(connect(f"sqlite:///{store}").table("states"))
clock = ToldClock(NOW + days * DAY)
lines = [write(f"{word} {word[::-1]} {number}", headers={"b": "1", "a": word})
         for number, word in enumerate(("lime", "pear", "fig", "plum", "kiwi", "date"))]
shots = [start(1, 1), *(fire(number, number % 7) for number in range(30)), start(2, 5), fire(99, 5)]
deliveries = [*lines, ponder("p"), misbehave("capture noise", message_id="noise")]
outcomes = Worker(table, clock=clock, batch="batch-1").process(*deliveries)
outcomes += Worker(table, App(ShootingRange), clock=clock, batch="batch-1", business_id=str(GAME)).process(*shots)
print(os.getcwd(), time.tzname, hash("lime"), list(frozenset(lines[0].body.split())))
for outcome in outcomes:
    print(outcome.status, outcome.version, outcome.outputs)
"""


def test_a_replay_in_another_process_gives_the_same_bytes(tmp_path: Path):
    # Given messages that were handled by one process and stored in a file
    store = str(tmp_path / "store.db")
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    surroundings, *first = run_python(PROGRAM, store, "0", hash_seed=1).splitlines()

    # When they are redelivered, days later, to processes that differ in all that a handler must not depend on
    (other_surroundings, *other) = run_python(
        PROGRAM, store, "9", hash_seed=3, folder=folder, time_zone="America/St_Johns"
    ).splitlines()

    # Then all outcomes are the same to the byte
    assert other_surroundings != surroundings
    assert other == first
    assert len(first) == 6 + 2 + 33
    assert all(line.startswith("processed ") for line in first)


# Whether a message changed the state is decided by encoded bytes: equal models may be written differently.


class Shown(Message):
    scale: str
    value: int | float


class Reading(State):
    value: int | float = 1


class Scale(Handler[Reading]):
    @handles(by="scale")
    def show(self, state: Reading, message: Shown, context: Context) -> Reading:
        return Reading(value=message.value)


def shown(message_id: str, value: str):
    return delivery(message_id, "Shown", f'{{"scale":"s","value":{value}}}')


@pytest.mark.parametrize(
    ("value", "after"),
    [("1.0", b'{"value":1.0}'), ("1", None)],
    ids=["equal and written differently", "the same"],
)
def test_a_state_that_is_equal_and_written_differently_was_changed(table, value, after):
    assert Reading(value=1.0) == Reading(value=1)

    outcomes = Worker(table, App(Scale), business_id="s").process(shown("a", "1"), shown("b", value))

    assert ends(outcomes) == ["processed"] * 2
    assert [version.record.after for version in stored(table, "Scale", "s")] == [None, after]


# The kit for tests handles messages as the runtime does: the same outputs, ids, states and refusals.


GAME = UUID(int=7)

messages = st.builds(
    lambda kind, position: kind(game_id=GAME, position=position),
    st.sampled_from([StartNewRound, FireAt]),
    st.integers(0, 3),
)


def process(app: App, *sent: Message):
    """Process messages with the ids that the kit gives; return what was published, and the last outcome and state."""
    table = memory_table()
    published = []

    async def publish(output):
        published.append(output)

    processor = Processor(app, table, publish, clock=ToldClock(NOW), guard=True)
    for number, message in enumerate(sent, 1):
        (outcome,) = drive(
            processor.process(delivery(str(number), type(message).__name__, message.model_dump_json()))
        )
    found = drive(versions(table, outcome.handler or "", outcome.business_id or ""))
    return published, outcome, found[-1].after.decode() if found else None


@given(st.lists(messages, min_size=1, max_size=8))
def test_outputs_ids_and_states_are_the_same(sent):
    published, _, state = process(App(ShootingRange), *sent)

    handled = HandlerSpec(ShootingRange).given(*sent[:-1]).when(sent[-1])

    assert handled.state.model_dump_json() == state
    last = published[len(published) - len(handled.published) :]
    told = [(type(message).__name__, message.model_dump_json()) for message in handled.published]
    assert [(output.type, output.body) for output in last] == told


@pytest.mark.parametrize("how", ["clock", "change the state", "nothing", "exit()"])
def test_what_the_runtime_refuses_the_kit_refuses_with_the_same_text(how):
    _, outcome, state = process(App(ChurchBell), Drew(tower="east", how=how))

    with pytest.raises(AssertionError) as failed:
        HandlerSpec(ChurchBell).when(Drew(tower="east", how=how)).then()

    assert outcome.reason == "handler_error"
    assert state is None
    said, error = str(failed.value).partition("\n  ")[2], outcome.error or ""
    assert said.partition(": ")[2] in error or said.partition(" (")[0] in error


@pytest.mark.parametrize("how", ["weigh", "guids", "r.choice('abc')"])
def test_what_the_runtime_stores_the_kit_gives(how):
    published, outcome, state = process(App(ChurchBell), Drew(tower="east", how=how))

    handled = HandlerSpec(ChurchBell).when(Drew(tower="east", how=how))

    assert outcome.status == "processed"
    assert handled.state.model_dump_json() == state
    assert [each.model_dump_json() for each in handled.published] == [each.body for each in published]

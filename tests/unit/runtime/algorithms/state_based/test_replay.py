"""Replays of duplicates, by the same code and by changed code, and their verification."""

import json
from pathlib import Path
from types import MappingProxyType
from typing import Any
from uuid import UUID

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import InterceptedTable, drive
from handlers import App, CodecError, Context, Handler, Message, State, handles
from handlers.testing import HandlerSpec
from runtime import Output, Processor
from runtime.algorithms.state_based.replay import Difference, Finding, Verdict, Verifier
from runtime.algorithms.state_based.truncation import TruncationChoices, truncate_stream
from runtime.errors import DifferenceError, ReplayFailedError
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.maintenance.check import check_table
from runtime.messages.parsing import prepare
from runtime.versions import limits
from runtime.versions.readable import Change
from runtime.versions.stream import versions
from samples.shooting_range.handlers import FireAt, ShootingRange, StartNewRound
from tests.unit.handlers.processes import run_python
from tests.unit.handlers.test_specifications import Bell as ChurchBell
from tests.unit.handlers.test_specifications import Drew
from tests.unit.runtime.bells import (
    Bell,
    ForgetfulBell,
    Heard,
    OtherBell,
    Rang,
    RevisedBell,
    Rings,
    WidenedBell,
    rang,
)
from tests.unit.runtime.diary import SKY, Wrote, delivery, misbehave, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, memory_table, rows
from tests.unit.runtime.worker import (
    DAY,
    NOW,
    ToldClock,
    Worker,
    ends,
    made_by,
    open_batches,
    outputs,
    stored,
)

# A duplicate is handled with the context that was recorded: clock, captured values and headers of the first time.


def told(output: Output) -> Wrote:
    return Wrote.model_validate_json(output.body)


def test_a_duplicate_is_told_the_time_captured_values_and_headers_of_the_first_handling(table, monkeypatch):
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


class Said(Message):
    word: str
    number: int


class Inner(State):
    last: str = ""


class Data(State):
    rings: int = 0
    inner: Inner = Inner()
    many: tuple[int, ...] = ()


class RuledBell(Handler[Data], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        for number in range(RULE["said"]):
            context.publish(Said(word=RULE["word"], number=number), headers={"loud": RULE["word"]})
        return Data(
            rings=state.rings + RULE["step"], inner=Inner(last=RULE["word"]), many=tuple(range(RULE["many"]))
        )


RULED = App(RuledBell)


def worker(table, app: App = RULED, batch=None) -> Worker:
    return Worker(table, app, business_id="east", batch=batch)


def error_of(monkeypatch: pytest.MonkeyPatch, *, at_first: dict | None = None, **changed) -> str:
    """Handle a message, change the rule, handle its copy, and return what is said of it."""
    table = memory_table()
    with monkeypatch.context() as patched:
        for name, value in (at_first or {}).items():
            patched.setitem(RULE, name, value)
        worker(table).process(*rang("a"))
        for name, value in changed.items():
            patched.setitem(RULE, name, value)
        (outcome,) = worker(table).process(*rang("a"))
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
        (0, 2, "Said, Said were published; none were recorded."),
        (0, 1, "Said was published; none were recorded."),
        (1, 3, "Said, Said, Said were published; only the digest of the outputs was recorded"),
        (2, 0, "no outputs, but some were recorded."),
        (0, 8, "Said, Said, Said, Said, Said and 3 more were published; none were recorded."),
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

    worker(table, App(Old)).process(*rang("a"))

    (outcome,) = worker(table, App(New)).process(*rang("a"))

    assert "rings was 1 and is 5 (compared in schema version 2, upcast from 1)." in str(outcome.error)


def test_a_batch_can_be_told_to_fail_on_a_difference(table, monkeypatch):
    worker(table).process(*rang("a"))
    before = contents(table)
    monkeypatch.setitem(RULE, "step", 2)

    with pytest.raises(DifferenceError, match="Message a of Bell-east was redelivered"):
        worker(table, batch=BatchContext("night", on_difference="fail")).process(*rang("b", "a"))

    assert contents(table) == before
    forgiving = worker(table, batch=BatchContext("night")).process(*rang("b", "a"))
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


@pytest.mark.parametrize(
    "how", ["clock", "change the state", "nothing", "exit()", "weigh", "guids", "r.choice('abc')"]
)
def test_what_the_runtime_refuses_or_stores_the_kit_refuses_or_stores(how):
    published, outcome, state = process(App(ChurchBell), Drew(tower="east", how=how))
    spec, message = HandlerSpec(ChurchBell), Drew(tower="east", how=how)

    if outcome.status == "processed":
        handled = spec.when(message)
        assert handled.state.model_dump_json() == state
        assert [each.model_dump_json() for each in handled.published] == [each.body for each in published]
    else:
        with pytest.raises(AssertionError) as failed:
            spec.when(message).then()
        assert (outcome.reason, state) == ("handler_error", None)
        said, error = str(failed.value).partition("\n  ")[2], outcome.error or ""
        assert said.partition(": ")[2] in error or said.partition(" (")[0] in error


# States that older code stored are brought to today's schema, when a stream is loaded and when it is replayed.


LARGE: list[str] = []
UNREADABLE: set[int] = set()
METAL = 8_000
"""So often the new field makes a state too large for the header, that was in it in the older schema version."""


class OldBell(Handler[Rings], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Rings, message: Rang, context: Context) -> Rings:
        context.publish(Heard(rings=state.rings + 1))
        return Rings(rings=state.rings + 1, name="x" * (40_000 if LARGE else 0))


class NumberedRings(State):
    rings: int = 0
    name: int = 0


class NumberedBell(Handler[NumberedRings], name="Bell"):
    @handles(by="tower")
    def rang(self, state: NumberedRings, message: Rang, context: Context) -> NumberedRings:
        return state


def rename_rings(fields: dict) -> dict:
    if fields["rings"] in UNREADABLE:
        raise ValueError("unreadable")
    return {"count": fields["rings"], "name": fields["name"]}


class NewRings(State, version=2, upcasters={1: rename_rings}):
    count: int = 0
    name: str = ""
    metal: str = "bronze"


class NewBell(Handler[NewRings], name="Bell"):
    @handles(by="tower")
    def rang(self, state: NewRings, message: Rang, context: Context) -> NewRings:
        context.publish(Heard(rings=state.count + 1))
        return NewRings(count=state.count + 1, name="x" * (40_000 if LARGE else 0))


class AlloyedRings(State, version=2, upcasters={1: lambda fields: {**fields, "metal": "bronze" * METAL}}):
    rings: int = 0
    name: str = ""
    metal: str = ""


class AlloyedBell(Handler[AlloyedRings], name="Bell"):
    @handles(by="tower")
    def rang(self, state: AlloyedRings, message: Rang, context: Context) -> AlloyedRings:
        if message.loud:
            raise ValueError("cracked")
        return state.model_copy(update={"rings": state.rings + 1})


OLD, NEW = App(OldBell), App(NewBell)


@pytest.fixture(params=[False, True], ids=["in the header", "in the run"])
def _size(request: pytest.FixtureRequest):
    """Let the newest state be small enough for the header, or too large for it."""
    LARGE.extend(["large"] if request.param else [])
    yield
    LARGE.clear()


@pytest.mark.usefixtures("_size")
def test_a_state_is_upcast_when_a_stream_is_loaded_and_when_versions_of_both_schemas_are_replayed(table):
    first = worker(table, OLD).process(*rang("a", "b"))

    first += worker(table, NEW).process(*rang("c", "d"))
    assert first[2].outputs[0].body == '{"rings":3}'
    (*_, newest) = stored(table, "Bell", "east")
    assert newest.schema == 2
    assert newest.after.startswith(b'{"count":4,')
    assert rows(table)["Bell-east", "SS-HEAD"]["StateSchema"] == 2

    before = contents(table)
    again = worker(table, NEW, "other").process(*rang("d", "a", "c", "b"))
    assert ends(again) == ["duplicate"] * 4
    assert sorted(outputs(again)) == sorted(outputs(first))
    assert contents(table) == before


@pytest.mark.parametrize("in_runs", [0, 2])
def test_a_letter_changes_nothing_of_a_state_that_is_too_large_once_it_is_upcast(in_runs, monkeypatch):
    # The header is written with the letter. Without the state, the newest would be sought in a run, and is in the tail.
    table, new = memory_table(), App(AlloyedBell)
    monkeypatch.setattr(limits, "MAX_TAIL_BYTES", 1 if in_runs else 2**14)
    worker(table, OLD).process(*rang("a"))
    worker(table, OLD).process(*rang("b"))
    before = rows(table)["Bell-east", "SS-HEAD"]

    refused = worker(table, new).process(*rang("bad", body={"tower": "east", "loud": True}))
    after = rows(table)["Bell-east", "SS-HEAD"]
    assert drive(check_table(table)).faults == []
    worker(table, new).process(*rang("c"))

    assert ends(refused) == ["handler_error"]
    assert after == {**before, **{name: after[name] for name in ("LastLetter", "Letters", "LettersUndated")}}
    assert [json.loads(each.after)["rings"] for each in stored(table, "Bell", "east")] == [1, 2, 3]
    assert drive(check_table(table)).faults == []


def test_the_state_before_a_tail_is_not_that_of_a_run_in_an_older_schema_version(table):
    worker(table, OLD).process(*rang("a"))
    first = worker(table, NEW).process(*rang("b"))
    before = contents(table)

    checked = drive(check_table(table, repair=True))
    again = worker(table, NEW, "other").process(*rang("b"))

    assert (checked.faults, checked.repaired) == ([], [])
    assert ends(again) == ["duplicate"]
    assert outputs(again) == outputs(first)
    assert contents(table) == before


@pytest.mark.parametrize(
    ("first", "second", "sentence"),
    [
        (NewBell, OldBell, "^Rings was stored in schema version 2; this code knows versions up to 1"),
        # Message by message it would look as if each handling had changed its input, and all would be dead letters.
        (
            Bell,
            WidenedBell,
            r"^The state of \w+-\w+ changes when it is decoded and encoded \(.+\).* version=2",
        ),
        (Bell, NumberedBell, r"^The state of Bell-east cannot be read\. .* version=2"),
    ],
    ids=["a newer schema version", "another shape under the same schema version", "one that does not parse"],
)
def test_what_todays_code_cannot_read_is_refused_as_a_whole(table, first, second, sentence):
    worker(table, App(first)).process(*rang("a"))
    before = contents(table)

    with pytest.raises(CodecError, match=sentence):
        worker(table, App(second)).process(*rang("b"))

    assert contents(table) == before


# A stored version whose outputs were never published, and cannot be produced again, fails the batch loudly.


UNPUBLISHED = BatchContext("batch-2", open_batches("batch-1", "batch-2"))
PUBLISHED = BatchContext("batch-2", open_batches("batch-2"))
OUTSIDE = misbehave("draw from outside")


@pytest.mark.parametrize(
    ("bad", "reason", "problem"),
    [
        (misbehave("fail under a dark sky"), "replay_failed", "ValueError: too dark"),
        (OUTSIDE, "nondeterministic", "version 2 .* outputs"),
        (misbehave("remember what is outside"), "nondeterministic", "version 2 .* next state"),
    ],
)
@pytest.mark.parametrize(
    ("made_in", "batch", "fails"),
    [
        ("batch-1", UNPUBLISHED, True),
        ("batch-2", PUBLISHED, True),  # its own batch, when that is resumed
        ("batch-1", PUBLISHED, False),
        (None, UNPUBLISHED, False),
    ],
)
def test_what_cannot_be_replayed_fails_the_batch_unless_its_outputs_are_out(
    table, bad, reason, problem, made_in, batch, fails, monkeypatch
):
    Worker(table, batch=made_in).process(write("a"), bad, write("b"))
    monkeypatch.setitem(SKY, "colour", "black")
    before = contents(table)

    if fails:
        with pytest.raises(ReplayFailedError, match=problem) as failed:
            Worker(table, batch=batch).process(write("a"), bad, write("b"))
        assert f"Message bad made version 2 of Diary-d-1 in batch {made_in}" in str(failed.value)
        assert "abandon" in str(failed.value)
        assert contents(table) == before
    else:
        outcomes = Worker(table, batch=batch).process(write("a"), bad, write("b"), write("c"))
        assert ends(outcomes) == ["duplicate", reason, "duplicate", "processed"]
        assert outcomes[1].outputs == ()
        assert made_by(table)[-1] == "c"


def test_a_copy_in_the_batch_that_has_the_outputs_in_hand_does_not_fail_it():
    outcomes = Worker(memory_table(), batch=PUBLISHED).process(OUTSIDE, OUTSIDE, write("a"))

    assert ends(outcomes) == ["processed", "nondeterministic", "processed"]
    assert len(outcomes[0].outputs) == 1


def test_a_duplicate_is_handled_by_the_revision_that_handled_it_first(table):
    (first,) = worker(table, App(Bell)).process(*rang("m-1"))

    again, new = worker(table, App(RevisedBell)).process(*rang("m-1", "m-2"))
    (new_again,) = worker(table, App(RevisedBell)).process(*rang("m-2"))

    assert ends([again, new, new_again]) == ["duplicate", "processed", "duplicate"]
    assert again.outputs == first.outputs
    assert new.outputs[0].body == '{"rings":11}'
    assert new_again.outputs == new.outputs


class BrokenBell(Handler[Rings], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Rings, message: Rang, context: Context) -> Rings:
        raise ValueError("cracked")


def without_upcast(fields: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no way")


class UnreadableRings(State, version=2, upcasters={1: without_upcast}):
    pass


class UnreadableBell(Handler[UnreadableRings], name="Bell"):
    @handles(by="tower")
    def rang(self, state: UnreadableRings, message: Rang, context: Context) -> UnreadableRings:
        return state


class StricterRang(Message, name="RangNow", aliases=("Rang",)):
    tower: str
    loudness: int


class StricterBell(Handler[Rings], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Rings, message: StricterRang, context: Context) -> Rings:
        return state


@pytest.fixture
def rung():
    table = memory_table()
    Worker(table, App(Bell), business_id="east").process(*rang("a", "b"))
    return table


def verify(
    table, handler: type[Handler], *deliveries, tower: str = "east", queries=None, **options
) -> list[Finding]:
    """Verify deliveries, and make sure that nothing was written."""
    before = contents(table)
    (definition,) = App(handler).handlers.values()
    prepared = [prepare(definition, tower, each) for each in deliveries]
    counted = InterceptedTable(table)
    found = drive(Verifier(counted, definition, PATIENCE, **options).verify(tower, prepared))
    assert counted.counts == {"query": queries} if queries else set(counted.counts) <= {"query"}
    assert contents(table) == before
    return found


def verdicts(found: list[Finding]) -> list[tuple[str | None, str]]:
    return [(each.message_id, str(each.verdict)) for each in found]


@pytest.mark.parametrize("handler", [Bell, RevisedBell])
def test_what_still_gives_the_same_matches(rung, handler):
    found = verify(rung, handler, *rang("a", "b", "a"))

    assert verdicts(found) == [("a", "match"), ("b", "match"), ("a", "match")]
    assert [(each.version, each.revision, each.error) for each in found] == [
        (number, 1, None) for number in (1, 2, 1)
    ]


def test_a_changed_rule_is_a_difference_with_the_fields_that_differ(rung):
    first, second = verify(rung, OtherBell, *rang("a", "b"))

    assert (first.verdict, second.verdict) == (Verdict.MATCH, Verdict.NONDETERMINISTIC)
    assert [(each.field, each.before, each.after) for each in second.changes] == [("rings", 2, 3)]
    assert "rings was 2 and is 3" in (second.error or "")


@pytest.mark.parametrize(
    ("handler", "deliveries", "verdict", "sentence"),
    [
        (ForgetfulBell, rang("b"), "revision_gone", "Bell no longer has revision 1 for Rang: restore it."),
        (BrokenBell, rang("b"), "replay_failed", "ValueError: cracked"),
        # A body that made its version, however it is written, and also under an old name of its type.
        (StricterBell, rang("b"), "refused", "loudness: Field required"),
        (StricterBell, rang("b", body=' {"tower" : "east"} '), "refused", "loudness"),
        (StricterBell, rang("b", body=msgpack.packb({"tower": "east"})), "refused", "loudness"),
        (StricterBell, rang("b", message_type="RangNow"), "refused", "loudness"),
    ],
)
def test_a_version_that_cannot_be_replayed_has_a_reason(rung, handler, deliveries, verdict, sentence):
    found = verify(rung, handler, *deliveries)

    assert verdicts(found) == [("b", verdict)]
    assert sentence in str(found[0].error)
    assert found[0].version == 2


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (
            WidenedBell,
            "changes when it is decoded and encoded (metal). If the fields changed, declare a new schema version",
        ),
        (UnreadableBell, "The upcaster of UnreadableRings from version 1 failed: ValueError: no way"),
    ],
)
def test_a_state_that_cannot_be_read_is_found_in_versions_and_as_the_newest(rung, handler, sentence):
    newest, version, new = verify(rung, handler, *rang("b", "new"))

    assert verdicts([newest, version]) == [(None, "state_unreadable"), ("b", "state_unreadable")]
    assert verdicts([new]) == [("new", "unknown")]
    assert sentence in str(newest.error)
    assert sentence in str(version.error)


@pytest.mark.parametrize(
    ("deliveries", "error"),
    [
        (rang("new"), None),
        (rang("bad", body={"tower": 7}), "valid string"),
        (rang("b", headers={"half": "\ud800"}), "headers"),
    ],
)
def test_a_message_without_a_version_is_unknown_with_its_error(rung, deliveries, error):
    (found,) = verify(rung, OtherBell, *deliveries)

    assert found.verdict is Verdict.UNKNOWN
    assert error in str(found.error) if error else found.error is None


def test_a_stream_that_is_not_there_or_cannot_be_has_no_versions(rung):
    long = "x" * 600

    assert verdicts(verify(memory_table(), Bell, *rang("a"))) == [("a", "unknown")]
    assert verdicts(verify(rung, Bell, *rang("a", body={"tower": long}), tower=long)) == [("a", "unknown")]


@pytest.mark.parametrize(
    "body",
    [
        "{",
        '{"tower":7}',
        '{"tower":"west"}',
        b"\xc1",
        '{"tower":"east","loud":NaN}',
        {"tower": "east", "more": 1},
    ],
)
def test_a_body_that_was_mended_under_its_id_is_another_message(rung, body):
    (found,) = verify(rung, OtherBell, *rang("b", body=body))

    assert (found.verdict, found.version) == (Verdict.ID_REUSED, 2)
    assert found.error == "Version 2 was made by another message with this id."
    assert not found.verdict.is_difference


def test_messages_whose_versions_may_have_been_cut_are_told_apart():
    table = memory_table()
    for number in range(3):
        (message,) = rang(f"m{number}", enqueued_at=NOW + number)
        Worker(table, App(Bell), business_id="east", clock=ToldClock(NOW)).process(message)
    rules = TruncationChoices(older_than=DAY, acknowledged_after=0).as_of(NOW + 9 * DAY, OpenBatches())
    drive(truncate_stream(table, "Bell-east", rules, PATIENCE))

    sent = [("m0", NOW), ("m2", NOW + 2), ("new", NOW + 5)]
    found = [verify(table, Bell, *rang(message_id, enqueued_at=time))[0] for message_id, time in sent]

    assert verdicts(found) == [("m0", "not_kept"), ("m2", "match"), ("new", "unknown")]


def test_outputs_are_given_when_they_are_asked_for(rung):
    (found,) = verify(rung, Bell, *rang("b"), with_outputs=True)
    (plain,) = verify(rung, Bell, *rang("b"))

    assert [output.body for output in found.outputs] == ['{"rings":2}']
    assert plain.outputs == ()


@pytest.mark.parametrize(("segment_bytes", "queries"), [(limits.MAX_SEGMENT_BYTES, 1), (0, 2)])
def test_a_stream_costs_one_query_and_its_runs_one_more(segment_bytes, queries, monkeypatch):
    monkeypatch.setattr(limits, "MAX_SEGMENT_BYTES", segment_bytes)
    table = memory_table()
    Worker(table, App(Bell), business_id="east").process(*rang("a", "b"))

    verify(table, Bell, *rang("a", "b", "new"), queries=queries)

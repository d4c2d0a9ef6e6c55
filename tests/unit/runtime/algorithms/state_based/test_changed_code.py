"""Newer code on what older code stored: other schema versions, names and revisions, and what it cannot replay."""

import json

import pytest

from eventstore import drive
from handlers import App, CodecError, Context, Handler, Message, State, handles
from runtime.errors import ReplayFailedError
from runtime.ledger.batch import BatchContext
from runtime.maintenance.check import check_table
from runtime.versions import limits
from tests.unit.runtime.bells import (
    Bell,
    ForgetfulBell,
    Heard,
    Rang,
    RevisedBell,
    Rings,
    WidenedBell,
    rang,
)
from tests.unit.runtime.diary import SKY, misbehave, write
from tests.unit.runtime.tables import contents, memory_table, rows
from tests.unit.runtime.worker import Worker, ends, made_by, open_batches, outputs, stored

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


class StricterRings(State):
    rings: int = 0
    name: int = 0


class StricterBell(Handler[StricterRings], name="Bell"):
    @handles(by="tower")
    def rang(self, state: StricterRings, message: Rang, context: Context) -> StricterRings:
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


def worker(table, app: App, batch=None) -> Worker:
    return Worker(table, app, business_id="east", batch=batch)


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
def test_a_letter_changes_nothing_of_a_state_that_is_too_large_once_it_is_upcast(
    in_runs, monkeypatch: pytest.MonkeyPatch
):
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
    assert after == {**before, **{name: after[name] for name in ("Letters", "LettersUndated")}}
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
        (Bell, StricterBell, r"^The state of Bell-east cannot be read\. .* version=2"),
    ],
    ids=["a newer schema version", "another shape under the same schema version", "one that does not parse"],
)
def test_what_todays_code_cannot_read_is_refused_as_a_whole(table, first, second, sentence):
    worker(table, App(first)).process(*rang("a"))
    before = contents(table)

    with pytest.raises(CodecError, match=sentence):
        worker(table, App(second)).process(*rang("b"))

    assert contents(table) == before


# A copy is a copy under the old and the new name of its type: the name that was recorded decides.


class Chimed(Message, aliases=("Rang", "Pealed")):
    tower: str
    loud: bool = False


class RenamedBell(Handler[Rings], name="Bell"):
    @handles(by="tower")
    def chimed(self, state: Rings, message: Chimed, context: Context) -> Rings:
        context.publish(Heard(rings=state.rings + 1))
        return Rings(rings=state.rings + 1)


@pytest.mark.parametrize("first", ["Rang", "Chimed", "Pealed"])
@pytest.mark.parametrize("again", ["Rang", "Chimed", "Pealed"])
def test_a_copy_under_any_name_of_its_type_is_a_duplicate_and_another_message_is_none(table, first, again):
    made = worker(table, App(Bell if first == "Rang" else RenamedBell))
    handled = made.process(*rang("a", message_type=first))
    before = contents(table)

    copies = worker(table, App(RenamedBell)).process(*rang("a", message_type=again))
    assert ends(copies) == ["duplicate"]
    assert outputs(copies) == outputs(handled)
    assert contents(table) == before
    assert [each.record.type for each in stored(table, "Bell", "east")] == [first]

    other = rang("a", message_type=again, body={"tower": "east", "loud": True})
    assert ends(worker(table, App(RenamedBell)).process(*other)) == ["id_reused"]


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


def test_a_revision_that_is_no_longer_there_cannot_be_replayed(table):
    worker(table, App(Bell), "batch-1").process(*rang("m-1"))

    (outcome,) = worker(table, App(ForgetfulBell), PUBLISHED).process(*rang("m-1"))
    assert ends([outcome]) == ["replay_failed"]
    assert outcome.error == "Bell no longer has revision 1 for Rang: restore it."

    with pytest.raises(ReplayFailedError, match="Bell no longer has revision 1 for Rang"):
        worker(table, App(ForgetfulBell), UNPUBLISHED).process(*rang("m-1"))

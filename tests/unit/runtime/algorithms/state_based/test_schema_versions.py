"""States that older code stored are brought to today's schema, when a stream is loaded and when it is replayed."""

import json

import pytest

from eventstore import drive
from handlers import App, CodecError, Context, Handler, Message, State, handles
from runtime.errors import ReplayFailedError
from runtime.ledger.batch import BatchContext
from runtime.maintenance.check import check_table
from runtime.versions import limits
from tests.unit.runtime.diary import delivery
from tests.unit.runtime.tables import contents, memory_table, rows
from tests.unit.runtime.worker import Worker, ends, open_batches, outputs, stored


class Rang(Message):
    tower: str


class Heard(Message):
    rings: int


class Data(State):
    count: int = 0
    name: str = ""


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard(rings=state.count + 1))
        return state.model_copy(update={"count": state.count + 1, "name": "x" * (40_000 if LARGE else 0)})


def rename_count(fields: dict) -> dict:
    if fields["count"] in UNREADABLE:
        raise ValueError("unreadable")
    return {"rings": fields["count"], "name": fields["name"]}


class NewData(State, version=2, upcasters={1: rename_count}):
    rings: int = 0
    name: str = ""
    metal: str = "bronze"


class NewBell(Handler[NewData], name="Bell"):
    @handles(by="tower")
    def rang(self, state: NewData, message: Rang, context: Context) -> NewData:
        context.publish(Heard(rings=state.rings + 1))
        return state.model_copy(update={"rings": state.rings + 1, "name": "x" * (40_000 if LARGE else 0)})


class WidenedData(State):
    """As `Data`, with a new field: another shape under the same schema version."""

    count: int = 0
    name: str = ""
    metal: str = "bronze"


class WidenedBell(Handler[WidenedData], name="Bell"):
    @handles(by="tower")
    def rang(self, state: WidenedData, message: Rang, context: Context) -> WidenedData:
        context.publish(Heard(rings=state.count + 1))
        return state.model_copy(update={"count": state.count + 1})


OLD, NEW, WIDENED = App(Bell), App(NewBell), App(WidenedBell)
LARGE: list[str] = []
UNREADABLE: set[int] = set()


def rang(*ids: str):
    return [delivery(message_id, "Rang", {"tower": "east"}) for message_id in ids]


def worker(table, app: App, batch=None) -> Worker:
    return Worker(table, app, business_id="east", batch=batch)


@pytest.fixture(params=[False, True], ids=["in the header", "in the run"])
def _size(request: pytest.FixtureRequest):
    """Let the newest state be small enough for the header, or too large for it."""
    LARGE.extend(["large"] if request.param else [])
    yield
    LARGE.clear()


@pytest.mark.usefixtures("_size")
def test_the_newest_state_is_upcast_when_a_stream_is_loaded():
    table = memory_table()
    worker(table, OLD).process(*rang("a", "b"))

    (outcome,) = worker(table, NEW).process(*rang("c"))

    assert outcome.outputs[0].body == '{"rings":3}'
    (*_, newest) = stored(table, "Bell", "east")
    assert newest.schema == 2
    assert newest.after.startswith(b'{"rings":3,')
    assert rows(table)["Bell-east", "SS-HEAD"]["StateSchema"] == 2


@pytest.mark.usefixtures("_size")
def test_a_run_that_older_code_stored_is_upcast_when_it_is_replayed():
    table = memory_table()
    first = worker(table, OLD).process(*rang("a", "b", "c"))
    worker(table, NEW).process(*rang("d"))
    before = contents(table)

    again = worker(table, NEW, "other").process(*rang("a", "b", "c"))

    assert ends(again) == ["duplicate"] * 3
    assert outputs(again) == outputs(first)
    assert contents(table) == before


class AlloyedData(State, version=2, upcasters={1: lambda fields: {**fields, "metal": "bronze" * METAL}}):
    count: int = 0
    name: str = ""
    metal: str = ""


class AlloyedBell(Handler[AlloyedData], name="Bell"):
    @handles(by="tower")
    def rang(self, state: AlloyedData, message: Rang, context: Context) -> AlloyedData:
        return state.model_copy(update={"count": state.count + 1})


class CrackedBell(Handler[AlloyedData], name="Bell"):
    @handles(by="tower")
    def rang(self, state: AlloyedData, message: Rang, context: Context) -> AlloyedData:
        raise ValueError("cracked")


METAL = 8_000
"""So often the new field makes a state too large for the header, that was in it in the older schema version."""


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

    refused = worker(table, App(CrackedBell)).process(*rang("bad"))
    after = rows(table)["Bell-east", "SS-HEAD"]
    checked = drive(check_table(table))
    worker(table, new).process(*rang("c"))

    assert ends(refused) == ["handler_error"]
    assert after == {**before, **{name: after[name] for name in ("Letters", "LettersUndated")}}
    assert checked.faults == []
    counts = [json.loads(each.after)["count"] for each in stored(table, "Bell", "east")]
    assert counts == [1, 2, 3]
    assert drive(check_table(table)).faults == []


def test_the_state_before_a_tail_is_not_that_of_a_run_in_an_older_schema_version():
    table = memory_table()
    worker(table, OLD).process(*rang("a"))
    first = worker(table, NEW).process(*rang("b"))
    before = contents(table)

    checked = drive(check_table(table, repair=True))
    again = worker(table, NEW, "other").process(*rang("b"))

    assert (checked.faults, checked.repaired) == ([], [])
    assert ends(again) == ["duplicate"]
    assert outputs(again) == outputs(first)
    assert contents(table) == before


def test_runs_of_both_schemas_are_replayed_together():
    table = memory_table()
    first = worker(table, OLD).process(*rang("a", "b")) + worker(table, NEW).process(*rang("c", "d"))

    again = worker(table, NEW, "other").process(*rang("d", "a", "c", "b"))

    assert sorted(outputs(again)) == sorted(outputs(first))


def test_code_that_computes_something_else_now_is_told_although_the_schema_changed():
    class OtherBell(Handler[NewData], name="Bell"):
        @handles(by="tower")
        def rang(self, state: NewData, message: Rang, context: Context) -> NewData:
            context.publish(Heard(rings=state.rings + 1))
            return state.model_copy(update={"rings": state.rings + 10})

    table = memory_table()
    worker(table, OLD).process(*rang("a"))

    (outcome,) = worker(table, App(OtherBell)).process(*rang("a"))

    assert ends([outcome]) == ["nondeterministic"]


@pytest.mark.parametrize("unreadable", [0, 1], ids=["the state before", "the state after"])
def test_a_version_whose_states_cannot_be_upcast_cannot_be_replayed(
    unreadable, monkeypatch: pytest.MonkeyPatch
):
    table = memory_table()
    worker(table, OLD, "batch-1").process(*rang("a", "b", "c"))
    monkeypatch.setattr(f"{__name__}.UNREADABLE", {unreadable})

    outcomes = worker(table, NEW, "batch-2").process(*rang("a", "d"))
    with pytest.raises(
        ReplayFailedError, match="The upcaster of NewData from version 1 failed: ValueError: unreadable"
    ):
        worker(table, NEW, BatchContext("batch-2", open_batches("batch-1"))).process(*rang("a"))

    assert ends(outcomes) == ["replay_failed", "processed"]


def test_older_code_does_not_touch_what_newer_code_stored():
    table = memory_table()
    worker(table, NEW).process(*rang("a"))
    before = contents(table)

    with pytest.raises(
        CodecError,
        match=r"^Data was stored in schema version 2; this code knows versions up to 1: deploy newer code.$",
    ):
        worker(table, OLD).process(*rang("b"))

    assert contents(table) == before


def test_a_changed_shape_under_the_same_schema_version_is_refused_as_a_whole():
    # Message by message it would look as if each handling had changed its input, and all would be dead letters.
    table = memory_table()
    worker(table, OLD).process(*rang("a"))
    before = contents(table)

    with pytest.raises(
        CodecError, match=r"^What is stored of \w+-\w+ comes back as something else \(.+\).* version=2"
    ):
        worker(table, WIDENED).process(*rang("b"))

    assert contents(table) == before

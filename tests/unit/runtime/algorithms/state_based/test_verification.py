"""Verification tells of each delivery what today's code would make of it as a duplicate, and only reads."""

from typing import Any

import msgpack
import pytest

from eventstore import InterceptedTable, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime.algorithms.state_based.truncation import DAY, TruncationRules, truncate_stream
from runtime.algorithms.state_based.verification import Finding, Verdict, Verifier
from runtime.ledger.batch import OpenBatches
from runtime.messages.parsing import prepare
from tests.unit.runtime.diary import delivery
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import NOW, ToldClock, Worker


class Rang(Message):
    tower: str


class Heard(Message):
    rings: int


class Data(State):
    rings: int = 0
    name: str = ""


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard(rings=state.rings + 1))
        return Data(rings=state.rings + 1, name=state.name)


class Louder(Handler[Data], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard(rings=state.rings + 1))
        return Data(rings=state.rings + (2 if state.rings else 1), name=state.name)


class Revised(Handler[Data], name="Bell"):
    @handles(by="tower", revision=1)
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard(rings=state.rings + 1))
        return Data(rings=state.rings + 1, name=state.name)

    @handles(by="tower", revision=2)
    def rang_twice(self, state: Data, message: Rang, context: Context) -> Data:
        return Data(rings=state.rings + 2, name=state.name)


class Forgetful(Handler[Data], name="Bell"):
    @handles(by="tower", revision=2)
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        return state


class Broken(Handler[Data], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        raise ValueError("cracked")


class WidenedData(State):
    """As `Data`, with a new field: another shape under the same schema version."""

    rings: int = 0
    name: str = ""
    metal: str = "bronze"


class Widened(Handler[WidenedData], name="Bell"):
    @handles(by="tower")
    def rang(self, state: WidenedData, message: Rang, context: Context) -> WidenedData:
        context.publish(Heard(rings=state.rings + 1))
        return state.model_copy(update={"rings": state.rings + 1})


def without_upcast(fields: dict[str, Any]) -> dict[str, Any]:
    raise ValueError("no way")


class UnreadableData(State, version=2, upcasters={1: without_upcast}):
    pass


class Unreadable(Handler[UnreadableData], name="Bell"):
    @handles(by="tower")
    def rang(self, state: UnreadableData, message: Rang, context: Context) -> UnreadableData:
        return state


class StricterRang(Message, name="Rang"):
    tower: str
    loud: bool


class Stricter(Handler[Data], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Data, message: StricterRang, context: Context) -> Data:
        return state


class StricterRangNow(Message, name="RangNow", aliases=("Rang",)):
    tower: str
    loud: bool


class StricterNow(Handler[Data], name="Bell"):
    @handles(by="tower")
    def rang(self, state: Data, message: StricterRangNow, context: Context) -> Data:
        return state


def rang(*ids: str, **fields):
    return [delivery(message_id, "Rang", {"tower": "east"}, **fields) for message_id in ids]


@pytest.fixture
def table():
    """Give a stream with two versions, of a and of b."""
    table = memory_table()
    Worker(table, App(Bell), business_id="east").process(*rang("a", "b"))
    return table


def verify(table, handler: type[Handler], *deliveries, **options) -> list[Finding]:
    """Verify deliveries, and make sure that nothing was written."""
    before = contents(table)
    (definition,) = App(handler).handlers.values()
    prepared = [prepare(definition, "east", each) for each in deliveries]
    counted = InterceptedTable(table)
    found = drive(Verifier(counted, definition, PATIENCE, **options).verify("east", prepared))
    assert set(counted.counts) <= {"query"}
    assert contents(table) == before
    return found


def verdicts(found: list[Finding]) -> list[tuple[str | None, str]]:
    return [(each.message_id, str(each.verdict)) for each in found]


@pytest.mark.parametrize("handler", [Bell, Revised])
def test_what_still_gives_the_same_matches(table, handler):
    found = verify(table, handler, *rang("a", "b", "a"))

    assert verdicts(found) == [("a", "match"), ("b", "match"), ("a", "match")]
    assert [(each.version, each.revision, each.error) for each in found] == [
        (1, 1, None),
        (2, 1, None),
        (1, 1, None),
    ]


def test_a_changed_rule_is_a_difference_with_the_fields_that_differ(table):
    first, second = verify(table, Louder, *rang("a", "b"))

    assert (first.verdict, second.verdict) == (Verdict.MATCH, Verdict.NONDETERMINISTIC)
    assert [(each.field, each.before, each.after) for each in second.changes] == [("rings", 2, 3)]
    assert second.error is not None
    assert "rings was 2 and is 3" in second.error


@pytest.mark.parametrize(
    ("handler", "verdict", "sentence"),
    [
        (Forgetful, "revision_gone", "Revision 1 of Bell for Rang is no longer there."),
        (Broken, "replay_failed", "ValueError: cracked"),
        (Stricter, "refused", "loud: Field required"),
    ],
)
def test_a_version_that_cannot_be_replayed_has_a_reason(table, handler, verdict, sentence):
    found = verify(table, handler, *rang("b"))

    assert verdicts(found) == [("b", verdict)]
    assert sentence in str(found[0].error)
    assert (found[0].version, found[0].revision) == (2, 1)


@pytest.mark.parametrize(
    ("handler", "sentence"),
    [
        (Widened, "comes back as something else (metal): another shape needs another schema version"),
        (Unreadable, "The upcaster of UnreadableData from version 1 failed: ValueError: no way"),
    ],
)
def test_a_state_that_cannot_be_read_is_found_in_versions_and_as_the_newest(table, handler, sentence):
    newest, version = verify(table, handler, *rang("b"))

    assert verdicts([newest, version]) == [(None, "state_unreadable"), ("b", "state_unreadable")]
    assert sentence in str(newest.error)
    assert sentence in str(version.error)


def test_a_newest_state_that_cannot_be_read_is_found_without_any_of_its_messages(table):
    assert verdicts(verify(table, Widened, *rang("new"))) == [(None, "state_unreadable"), ("new", "unknown")]


def test_a_message_without_a_version_is_unknown(table):
    assert verdicts(verify(table, Louder, *rang("new"))) == [("new", "unknown")]
    assert verdicts(verify(memory_table(), Louder, *rang("a"))) == [("a", "unknown")]


def test_a_delivery_that_was_a_dead_letter_at_first_is_unknown_with_its_reason(table):
    (found,) = verify(table, Bell, delivery("bad", "Rang", {"tower": 7}))

    assert found.verdict is Verdict.UNKNOWN
    assert "valid string" in str(found.error)


def test_another_message_with_a_known_id_is_not_compared(table):
    (found,) = verify(table, Louder, delivery("b", "Rang", {"tower": "east", "more": 1}))

    assert (found.verdict, found.version) == (Verdict.ID_REUSED, 2)
    assert not found.verdict.is_difference


@pytest.mark.parametrize(
    "body", ["{", '{"tower":7}', '{"tower":""}', '{"tower":"west"}', b"\xc1", '{"tower":"east","loud":NaN}']
)
def test_a_body_that_was_mended_under_its_id_is_another_message(table, body):
    (found,) = verify(table, Bell, delivery("b", "Rang", body))

    assert (found.verdict, found.version) == (Verdict.ID_REUSED, 2)
    assert found.error == "Version 2 was made by another message with this id."


def test_a_body_that_made_its_version_is_refused_however_it_is_written(table):
    spaced, packed = delivery("b", "Rang", ' {"tower" : "east"} '), msgpack.packb({"tower": "east"})

    found = verify(table, Stricter, spaced, delivery("b", "Rang", packed), *rang("b"))

    assert [each.verdict for each in found] == [Verdict.REFUSED] * 3


def test_a_body_that_made_its_version_under_an_old_name_of_its_type_is_refused(table):
    (found,) = verify(table, StricterNow, delivery("b", "RangNow", {"tower": "east"}))

    assert (found.verdict, found.version) == (Verdict.REFUSED, 2)


def test_an_envelope_that_could_not_be_stored_made_no_version(table):
    (found,) = verify(table, Bell, *rang("b", headers={"half": "\ud800"}))

    assert found.verdict is Verdict.UNKNOWN
    assert "headers" in str(found.error)


def test_a_business_id_that_is_too_long_for_a_key_has_no_versions(table):
    long = "x" * 600
    (definition,) = App(Bell).handlers.values()
    prepared = [prepare(definition, long, delivery("a", "Rang", {"tower": long}))]

    (found,) = drive(Verifier(table, definition, PATIENCE).verify(long, prepared))

    assert found.verdict is Verdict.UNKNOWN


def test_messages_whose_versions_may_have_been_cut_are_told_apart():
    table = memory_table()
    clock = ToldClock(NOW)
    for number in range(3):
        Worker(table, App(Bell), business_id="east", clock=clock).process(
            *rang(f"m{number}", enqueued_at=NOW + number)
        )
    rules = TruncationRules.of(NOW + 9 * DAY, OpenBatches(), older_than=DAY, acknowledged_after=0)
    drive(truncate_stream(table, "Bell-east", rules, PATIENCE))

    found = verify(
        table,
        Bell,
        *rang("m0", enqueued_at=NOW),
        *rang("m2", enqueued_at=NOW + 2),
        *rang("new", enqueued_at=NOW + 5),
    )

    assert verdicts(found) == [("m0", "not_kept"), ("m2", "match"), ("new", "unknown")]


def test_outputs_are_given_when_they_are_asked_for(table):
    (found,) = verify(table, Bell, *rang("b"), with_outputs=True)
    (plain,) = verify(table, Bell, *rang("b"))

    assert [output.body for output in found.outputs] == ['{"rings":2}']
    assert plain.outputs == ()


def test_a_stream_costs_one_query_and_its_runs_one_more(monkeypatch: pytest.MonkeyPatch, table):
    (definition,) = App(Bell).handlers.values()
    prepared = [prepare(definition, "east", each) for each in rang("a", "b", "new")]
    counted = InterceptedTable(table)

    drive(Verifier(counted, definition, PATIENCE).verify("east", prepared))

    assert dict(counted.counts) == {"query": 1}


@pytest.mark.usefixtures("no_tail")
def test_versions_in_runs_cost_one_more_query():
    table = memory_table()
    Worker(table, App(Bell), business_id="east").process(*rang("a", "b"))
    (definition,) = App(Bell).handlers.values()
    counted = InterceptedTable(table)

    drive(
        Verifier(counted, definition, PATIENCE).verify(
            "east", [prepare(definition, "east", each) for each in rang("a", "b")]
        )
    )

    assert dict(counted.counts) == {"query": 2}


def test_only_what_would_break_counts_as_a_difference():
    assert {verdict.value for verdict in Verdict if not verdict.is_difference} == {
        "match",
        "id_reused",
        "not_kept",
        "unknown",
    }

"""Verification tells of each delivery what today's code would make of it as a duplicate, and only reads."""

from typing import Any

import msgpack
import pytest

from eventstore import InterceptedTable, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime.algorithms.state_based.replay import Finding, Verdict, Verifier
from runtime.algorithms.state_based.truncation import DAY, TruncationChoices, truncate_stream
from runtime.ledger.batch import OpenBatches
from runtime.messages.parsing import prepare
from runtime.versions import limits
from tests.unit.runtime.bells import (
    Bell,
    ForgetfulBell,
    OtherBell,
    Rang,
    RevisedBell,
    Rings,
    WidenedBell,
    rang,
)
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import NOW, ToldClock, Worker


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
def table():
    """Give a stream with two versions, of a and of b."""
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
def test_what_still_gives_the_same_matches(table, handler):
    found = verify(table, handler, *rang("a", "b", "a"))

    assert verdicts(found) == [("a", "match"), ("b", "match"), ("a", "match")]
    assert [(each.version, each.revision, each.error) for each in found] == [
        (number, 1, None) for number in (1, 2, 1)
    ]


def test_a_changed_rule_is_a_difference_with_the_fields_that_differ(table):
    first, second = verify(table, OtherBell, *rang("a", "b"))

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
def test_a_version_that_cannot_be_replayed_has_a_reason(table, handler, deliveries, verdict, sentence):
    found = verify(table, handler, *deliveries)

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
def test_a_state_that_cannot_be_read_is_found_in_versions_and_as_the_newest(table, handler, sentence):
    newest, version, new = verify(table, handler, *rang("b", "new"))

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
def test_a_message_without_a_version_is_unknown_with_the_reason_that_it_was_a_dead_letter(
    table, deliveries, error
):
    (found,) = verify(table, OtherBell, *deliveries)

    assert found.verdict is Verdict.UNKNOWN
    assert error in str(found.error) if error else found.error is None


def test_a_stream_that_is_not_there_or_cannot_be_has_no_versions(table):
    long = "x" * 600

    assert verdicts(verify(memory_table(), Bell, *rang("a"))) == [("a", "unknown")]
    assert verdicts(verify(table, Bell, *rang("a", body={"tower": long}), tower=long)) == [("a", "unknown")]


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
def test_a_body_that_was_mended_under_its_id_is_another_message(table, body):
    (found,) = verify(table, OtherBell, *rang("b", body=body))

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


def test_outputs_are_given_when_they_are_asked_for(table):
    (found,) = verify(table, Bell, *rang("b"), with_outputs=True)
    (plain,) = verify(table, Bell, *rang("b"))

    assert [output.body for output in found.outputs] == ['{"rings":2}']
    assert plain.outputs == ()


@pytest.mark.parametrize(("segment_bytes", "queries"), [(limits.MAX_SEGMENT_BYTES, 1), (0, 2)])
def test_a_stream_costs_one_query_and_its_runs_one_more(segment_bytes, queries, monkeypatch):
    monkeypatch.setattr(limits, "MAX_SEGMENT_BYTES", segment_bytes)
    table = memory_table()
    Worker(table, App(Bell), business_id="east").process(*rang("a", "b"))

    verify(table, Bell, *rang("a", "b", "new"), queries=queries)

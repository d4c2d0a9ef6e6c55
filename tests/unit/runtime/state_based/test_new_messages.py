"""A new message is handled on the newest state, and adds a version that records all that a replay needs."""

from runtime.clock import to_datetime
from runtime.versions.tail import read_tail
from tests.unit.runtime.diary import DIARY, Wrote, ponder, write
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import NOW, SECOND, ToldClock, Worker, ends, made_by, outputs, stored


def test_messages_are_handled_in_their_order_each_on_the_state_before():
    table = memory_table()

    outcomes = Worker(table).process(write("a"), write("b"), write("c"))

    assert ends(outcomes) == ["processed"] * 3
    assert [outcome.version for outcome in outcomes] == [1, 2, 3]
    assert [Wrote.model_validate_json(output.body).on_page for output in outputs(outcomes)] == [
        ("a",),
        ("a", "b"),
        ("a", "b", "c"),
    ]
    assert [version.after for version in stored(table)] == [
        version.before for version in stored(table)[1:]
    ] + [b'{"lines":["a","b","c"],"words":["a","b","c"],"weight":0.0}']


def test_the_next_batch_goes_on_where_the_last_one_ended():
    table = memory_table()
    Worker(table, batch="one").process(write("a"), write("b"))

    (outcome,) = Worker(table, batch="two").process(write("c"))

    assert outcome.version == 3
    assert Wrote.model_validate_json(outcome.outputs[0].body).on_page == ("a", "b", "c")
    assert made_by(table) == ["a", "b", "c"]


def test_a_message_that_changes_nothing_is_recorded_all_the_same():
    table = memory_table()

    (outcome,) = Worker(table).process(ponder("p"))
    (again,) = Worker(table).process(ponder("p"))

    assert ends([outcome, again]) == ["processed", "duplicate"]
    assert outcome.outputs == again.outputs
    assert made_by(table) == ["p"]
    assert stored(table)[0].record.after is None


def test_outputs_are_messages_of_a_log():
    outcomes = Worker(memory_table(), clock=ToldClock(NOW + 5)).process(write("a"), write("b"))

    first, second = outputs(outcomes)
    assert (first.type, first.headers, first.enqueued_at) == ("Wrote", {"line": "1"}, NOW + 5)
    assert (first.sequence, second.sequence) == (1 << 20, 2 << 20)
    assert first.envelope().message_id == first.message_id
    assert first.message_id != second.message_id


def test_all_that_the_handler_was_told_is_recorded():
    table = memory_table()
    envelope = write("a", headers={"trace": "t-1"}, enqueued_at=NOW - SECOND)

    Worker(table, clock=ToldClock(NOW + 7), batch="batch-1").process(envelope)

    (found,) = stored(table)
    assert found.message_id == "a"
    assert found.batch == "batch-1"
    assert found.written_at == NOW + 7
    assert found.before == b'{"lines":[],"words":[],"weight":0.0}'
    assert (found.record.now, found.record.enqueued_at) == (NOW + 7, NOW - SECOND)
    assert (found.record.headers, found.record.revision) == ({"trace": "t-1"}, 1)
    assert found.record.captured == {"sky": b"\xa4blue"}


def test_the_header_tells_the_newest_state():
    table = memory_table()
    Worker(table, clock=ToldClock(NOW)).process(write("a"), write("b"))

    header = dict(rows(table)[f"Diary-{DIARY}", "SS-HEAD"])
    assert read_tail(header.pop("Tail")).count == 2
    assert header == {
        "Version": 0,
        "State": b'{"lines":["a","b"],"words":["a","b"],"weight":0.0}',
        "StateSchema": 1,
        "StateVersions": 2,
        "LastNow": to_datetime(NOW),
    }


def test_streams_of_different_business_objects_do_not_meet():
    table = memory_table()

    Worker(table, business_id="d-1").process(write("a", diary="d-1"))
    (outcome,) = Worker(table, business_id="d-2").process(write("a", diary="d-2"))

    assert ends([outcome]) == ["processed"]
    assert made_by(table, business_id="d-1") == made_by(table, business_id="d-2") == ["a"]


def test_deliveries_without_any_store_nothing():
    table = memory_table()

    assert Worker(table).process() == []
    assert rows(table) == {}

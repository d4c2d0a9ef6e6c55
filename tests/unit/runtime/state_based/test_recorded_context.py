"""A duplicate is handled with the context that was recorded: clock, captured values and headers of the first time."""

import pytest
from freezegun import freeze_time

from eventstore import drive
from runtime import Output, Processor
from tests.unit.runtime.diary import SKY, Wrote, app, write
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, outputs


def told(output: Output) -> Wrote:
    return Wrote.model_validate_json(output.body)


def test_a_duplicate_is_told_the_time_of_the_first_handling():
    table = memory_table()
    (first,) = outputs(Worker(table, clock=ToldClock(NOW)).process(write("a")))

    (again,) = outputs(Worker(table, clock=ToldClock(NOW + DAY)).process(write("a")))

    assert told(again).now == "2026-01-01T00:00:00+00:00"
    assert again == first


def test_a_duplicate_is_told_the_time_of_the_first_handling_by_the_machines_clock():
    table = memory_table()
    published: list[Output] = []

    async def publish(output: Output) -> None:
        published.append(output)

    for moment in ("2026-01-01 00:00:00.000001", "2027-06-01 12:00:00"):
        with freeze_time(moment):
            drive(Processor(app, table, publish).process(write("a")))

    first, again = published
    assert told(first).now == "2026-01-01T00:00:00.000001+00:00"
    assert again == first


def test_a_duplicate_gets_the_captured_values_of_the_first_handling(monkeypatch: pytest.MonkeyPatch):
    table = memory_table()
    (first,) = outputs(Worker(table).process(write("a")))
    monkeypatch.setitem(SKY, "colour", "grey")

    (again,) = outputs(Worker(table).process(write("a")))
    (new,) = outputs(Worker(table).process(write("b")))

    assert told(first).colour == told(again).colour == "blue"
    assert told(new).colour == "grey"
    assert again == first


def test_a_duplicate_is_told_the_headers_of_the_first_delivery():
    # Brokers stamp headers on each delivery: what the first one had is what the version was made with.
    table = memory_table()
    (first,) = outputs(Worker(table).process(write("a", headers={"attempt": "1"})))

    (again,) = outputs(Worker(table).process(write("a", headers={"attempt": "2"})))

    assert told(again).headers == (("attempt", "1"),)
    assert again == first


def test_a_duplicate_in_the_same_batch_gets_the_same_as_one_in_another():
    in_one = Worker(memory_table()).process(write("a"), write("b"), write("a"))
    assert in_one[2].version == 1

    table = memory_table()
    Worker(table).process(write("a"))
    Worker(table).process(write("b"))
    (again,) = Worker(table).process(write("a"))

    assert again.outputs == in_one[0].outputs


def test_headers_of_any_mapping_are_recorded():
    from types import MappingProxyType

    table = memory_table()
    proxied = write("a", headers=MappingProxyType({"trace": "t-1"}))

    (first,) = outputs(Worker(table).process(proxied))
    (again,) = outputs(Worker(table).process(proxied))

    assert again == first
    assert told(again).headers == (("trace", "t-1"),)

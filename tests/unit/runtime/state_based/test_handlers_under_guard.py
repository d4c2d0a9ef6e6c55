"""A processor with guard makes a dead letter of a message whose handler looks past its context, and stores nothing."""

import json

import pytest

from eventstore import drive
from runtime import Envelope, Output, Processor
from samples.shooting_range import app as shooting_range
from tests.unit.handlers import onlooker
from tests.unit.runtime.games import fire, start
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import ends


async def publish(_: Output) -> None: ...


def look(how: str) -> Envelope:
    return Envelope(f"look {how}", "Look", json.dumps({"house": "h", "how": how}))


@pytest.mark.parametrize("how", ["now", "catch now"])
def test_with_guard_the_message_is_a_dead_letter_that_names_call_line_and_remedy(how):
    table = memory_table()
    processor = Processor(onlooker.app, table, publish, guard=True)

    (outcome,) = drive(processor.process(look(how)))

    assert ends([outcome]) == ["handler_error"]
    assert (outcome.error or "").startswith("datetime.now() in now (onlooker.py, line ")
    assert (outcome.error or "").endswith("use context.now.")
    assert not [key for _, key in contents(table) if key.startswith("SS-SE-")]


def test_with_guard_the_messages_after_it_are_handled():
    processor = Processor(onlooker.app, memory_table(), publish, guard=True)

    outcomes = [drive(processor.process(look(how)))[0] for how in ("now", "captured", "captured")]

    assert ends(outcomes) == ["handler_error", "processed", "duplicate"]


def test_without_guard_nobody_is_told():
    processor = Processor(onlooker.app, memory_table(), publish)

    assert ends(drive(processor.process(look("now")))) == ["processed"]


def test_the_store_the_clock_and_the_publisher_work_beside_a_guarded_handler():
    processor = Processor(shooting_range, memory_table(), publish, guard=True)

    outcomes = [
        drive(processor.process(each))[0] for each in (start(1, 5), fire(1, 5), fire(2, 6), fire(1, 5))
    ]

    assert ends(outcomes) == ["processed", "processed", "processed", "duplicate"]
    assert [output.type for outcome in outcomes for output in outcome.outputs] == ["Hit", "Missed", "Hit"]

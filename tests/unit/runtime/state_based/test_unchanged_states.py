"""Whether a message changed the state is decided by encoded bytes: equal models may be written differently."""

import pytest

from handlers import App, Context, Handler, Message, State, handles
from tests.unit.runtime.diary import delivery
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import Worker, ends, stored


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
def test_a_state_that_is_equal_and_written_differently_was_changed(value, after):
    assert Reading(value=1.0) == Reading(value=1)
    table = memory_table()

    outcomes = Worker(table, App(Scale), business_id="s").process(shown("a", "1"), shown("b", value))

    assert ends(outcomes) == ["processed"] * 2
    assert [version.record.after for version in stored(table, "Scale", "s")] == [None, after]

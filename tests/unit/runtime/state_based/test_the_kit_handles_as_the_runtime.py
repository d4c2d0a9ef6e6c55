"""The kit for tests handles messages as the runtime does: the same outputs, ids, states and refusals."""

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import drive
from handlers import App, Message
from handlers.testing import HandlerSpec
from runtime import Processor
from runtime.versions.stream import versions
from samples.shooting_range.domain import FireAt, StartNewRound
from samples.shooting_range.handlers import ShootingRange
from tests.unit.handlers.test_specifications import Bell, Drew
from tests.unit.runtime.diary import delivery
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import NOW, ToldClock

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
    assert [output.type for output in last] == [type(message).__name__ for message in handled.published]
    assert [output.body for output in last] == [message.model_dump_json() for message in handled.published]


@pytest.mark.parametrize("how", ["clock", "change the state", "nothing", "1 / 0", "exit()"])
def test_what_the_runtime_refuses_the_kit_refuses_with_the_same_text(how):
    _, outcome, state = process(App(Bell), Drew(tower="east", how=how))

    with pytest.raises(AssertionError) as failed:
        HandlerSpec(Bell).when(Drew(tower="east", how=how)).then()

    assert outcome.reason == "handler_error"
    assert state is None
    said = str(failed.value).partition("\n  ")[2]
    assert said.partition(": ")[2] in (outcome.error or "") or said.partition(" (")[0] in (
        outcome.error or ""
    )


@pytest.mark.parametrize("how", ["weigh", "guids", "r.random()", "r.choice('abc')"])
def test_what_the_runtime_stores_the_kit_gives(how):
    published, outcome, state = process(App(Bell), Drew(tower="east", how=how))

    handled = HandlerSpec(Bell).when(Drew(tower="east", how=how))

    assert outcome.status == "processed"
    assert handled.state.model_dump_json() == state
    assert [message.model_dump_json() for message in handled.published] == [
        output.body for output in published
    ]

"""A copy is a copy under the old and the new name of its type: the name that was recorded decides."""

import pytest

from eventstore import drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Processor
from tests.unit.runtime.diary import delivery
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import ToldClock, Worker, ends, outputs, stored


class Rang(Message):
    tower: str
    loud: bool = False


class Heard(Message):
    rings: int


class Chimed(Message, aliases=("Rang", "Pealed")):
    tower: str
    loud: bool = False


class Data(State):
    rings: int = 0


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard(rings=state.rings + 1))
        return Data(rings=state.rings + 1)


class NewBell(Handler[Data], name="Bell"):
    @handles(by="tower")
    def chimed(self, state: Data, message: Chimed, context: Context) -> Data:
        context.publish(Heard(rings=state.rings + 1))
        return Data(rings=state.rings + 1)


OLD, NEW = App(Bell), App(NewBell)


def rang(message_id: str, message_type: str, **fields):
    return delivery(message_id, message_type, {"tower": "east", **fields})


def worker(table, app: App) -> Worker:
    return Worker(table, app, business_id="east")


@pytest.mark.parametrize("first", ["Rang", "Chimed", "Pealed"])
@pytest.mark.parametrize("again", ["Rang", "Chimed", "Pealed"])
def test_a_copy_under_any_name_of_its_type_is_a_duplicate(first, again):
    table = memory_table()
    handled = worker(table, OLD if first == "Rang" else NEW).process(rang("a", first))
    before = contents(table)

    copies = worker(table, NEW).process(rang("a", again))

    assert ends(copies) == ["duplicate"]
    assert outputs(copies) == outputs(handled)
    assert contents(table) == before


def test_a_version_keeps_the_name_that_its_message_had():
    table = memory_table()
    worker(table, NEW).process(rang("a", "Rang"), rang("b", "Chimed"))

    assert [each.record.type for each in stored(table, "Bell", "east")] == ["Rang", "Chimed"]


@pytest.mark.parametrize("again", ["Rang", "Chimed"])
def test_another_message_with_its_id_is_none_under_any_name(again):
    table = memory_table()
    worker(table, OLD).process(rang("a", "Rang"))

    assert ends(worker(table, NEW).process(rang("a", again, loud=True))) == ["id_reused"]


def test_a_name_that_is_no_alias_is_another_message():
    # The old code does not know that Chimed will be a name of Rang.
    class Both(Handler[Data], name="Bell"):
        @handles(by="tower")
        def rang(self, state: Data, message: Rang, context: Context) -> Data:
            return Data(rings=state.rings + 1)

        @handles(by="tower")
        def chimed(self, state: Data, message: Other, context: Context) -> Data:
            return Data(rings=state.rings + 1)

    table = memory_table()
    worker(table, App(Both)).process(rang("a", "Rang"))

    assert ends(worker(table, App(Both)).process(rang("a", "Chimed"))) == ["id_reused"]


class Other(Message, name="Chimed"):
    tower: str


def test_a_processor_takes_it_too():
    table = memory_table()
    heard = []

    async def publish(output):
        heard.append(output)

    (first,) = drive(Processor(OLD, table, publish, clock=ToldClock()).process(rang("a", "Rang")))
    (again,) = drive(Processor(NEW, table, publish, clock=ToldClock()).process(rang("a", "Chimed")))

    assert ends([first, again]) == ["processed", "duplicate"]
    assert heard[0] == heard[1]

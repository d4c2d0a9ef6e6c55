"""Two faults of the article's published code, and a third: none of them may be here."""

from eventstore import drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Output, Processor
from tests.unit.handlers.processes import run_python
from tests.unit.runtime.diary import delivery, write
from tests.unit.runtime.games import Game, fire, start
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import Worker


def test_a_duplicate_is_not_handled_on_the_latest_state():
    # Its reader leaves only the inner loop: the shot would be handled on the round where the target stands elsewhere.
    game = Game()
    game.deliver(start(1, 1), fire(1, 1), start(2, 2))

    (outcome,) = game.deliver(fire(1, 1))

    assert [output.type for output in outcome.outputs] == ["Hit"]


def test_a_duplicate_in_the_middle_of_a_run_is_handled_on_the_state_just_before_its_own():
    worker = Worker(memory_table())
    first = worker.process(*(write(line) for line in "abcdef"))

    again = worker.process(write("c"))

    assert again[0].outputs == first[2].outputs
    assert '"on_page":["a","b","c"]' in again[0].outputs[0].body


PROGRAM = """
from tests.unit.runtime.games import *
game = Game()
game.deliver(start(1, 1), fire(1, 1), fire(2, 1), fire(3, 5))
print(hash("fire-2"))
print(game.states())
print([output.message_id for output in game.published])
"""


def test_random_numbers_do_not_depend_on_the_hash_of_a_text():
    # Its generator is seeded with GetHashCode, which is another one in every process, as hash() is in Python.
    hashed, *drawn = run_python(PROGRAM, hash_seed=1).splitlines()
    other_hashed, *other_drawn = run_python(PROGRAM, hash_seed=2).splitlines()

    assert hashed != other_hashed
    assert drawn == other_drawn
    assert "target_position" in drawn[0]


class Rang(Message):
    tower: str


class Heard(Message):
    pass


class Data(State):
    rings: int = 0


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard())
        return state


class Echo(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        context.publish(Heard())
        return state


def test_two_handlers_of_one_message_give_their_outputs_different_ids():
    # Its ids are seeded by the message alone: whoever de-duplicates by id would lose one of the two.
    published: list[Output] = []

    async def publish(output: Output) -> None:
        published.append(output)

    drive(
        Processor(App(Bell, Echo), memory_table(), publish).process(
            delivery("m-1", "Rang", {"tower": "east"})
        )
    )

    assert [output.type for output in published] == ["Heard", "Heard"]
    assert published[0].message_id != published[1].message_id

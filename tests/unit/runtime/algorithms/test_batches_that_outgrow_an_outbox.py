"""The outputs of a batch wait in the outbox of their entity: what does not fit is told so, and fits a redrive."""

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope
from runtime.algorithms.outbox.entity import MAX_OUTBOX_BYTES
from tests.unit.runtime.algorithms.batches import Batch
from tests.unit.runtime.algorithms.world import WITH_OUTBOX, World
from tests.unit.runtime.diary import delivery
from tests.unit.runtime.worker import ends


class Shout(Message):
    """Somebody shouts into a valley."""

    valley: str
    letters: int


class Echo(Message):
    """What comes back."""

    text: str


class Heard(State):
    """How many shouts were heard."""

    shouts: int = 0


class Valley(Handler[Heard]):
    """Answers."""

    @handles(by="valley")
    def shout(self, state: Heard, message: Shout, context: Context) -> Heard:
        context.publish(Echo(text="o" * message.letters))
        return Heard(shouts=state.shouts + 1)


app = App(Valley)
LOUD = MAX_OUTBOX_BYTES // 3 - 1000


def shout(message_id: str, letters: int) -> Envelope:
    return delivery(message_id, "Shout", {"valley": "north", "letters": letters})


MESSAGES = [*(shout(f"loud-{number}", LOUD) for number in range(5)), shout("low", 100)]


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
def test_what_does_not_fit_is_a_dead_letter_that_says_what_to_do_and_a_redrive_handles_it(algorithm):
    world = World(algorithm, app)

    first = Batch(world, "first").run(*MESSAGES)

    assert ends(first) == ["processed"] * 3 + ["state_too_large"] * 2 + ["processed"]
    assert "Others wait there to be finished (3): redrive it when their batch has ended." in str(
        first[3].error
    )
    again = Batch(world, "again", is_redrive=True).run(*(each.envelope for each in first if each.reason))
    assert ends(again) == ["processed"] * 2
    assert world.state("Valley", "north") == {"shouts": 6}
    assert world.garbage() == []


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
def test_after_one_that_does_not_fit_the_others_wait_if_the_batch_stops_there(algorithm):
    outcomes = Batch(World(algorithm, app), on_error="stop-stream").run(*MESSAGES)

    assert ends(outcomes) == ["processed"] * 3 + ["state_too_large", "held_back", "held_back"]


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
def test_what_never_fits_is_told_so(algorithm):
    (outcome,) = Batch(World(algorithm, app)).run(shout("very-loud", MAX_OUTBOX_BYTES))

    assert ends([outcome]) == ["state_too_large"]
    assert "redrive it" not in str(outcome.error)


@pytest.mark.thorough
def test_an_outbox_full_of_old_ids_says_that_they_can_be_forgotten():
    world = World("outbox", app)
    for number in range(300):
        Batch(world, f"b{number}").run(shout(f"{number:0250}", 0))

    (outcome,) = Batch(world).run(shout("loud", MAX_OUTBOX_BYTES - 300 * 250))

    assert ends([outcome]) == ["state_too_large"]
    assert "Old ones are remembered there (300): forget some (`consistent evict`)" in str(outcome.error)

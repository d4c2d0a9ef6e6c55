"""Batches with an outbox: their tasks run twice, stand beside others, and outgrow an entity."""

from dataclasses import replace

import pytest

from eventstore import Operation, drive
from eventstore.limits import prepare
from handlers import App, Context, Handler, Message, Published, State, handles
from runtime import Envelope, Outcome
from runtime.algorithms.outbox.algorithm import TokenBased
from runtime.algorithms.outbox.entity import MAX_OUTBOX_BYTES, Entity, Entry, pack_entries, read_entity
from runtime.algorithms.outbox.stores import NEWEST, EntryTokens, Token
from runtime.ledger.batch import OpenBatches
from runtime.messages.outcome import outputs_of
from runtime.versions.limits import MAX_STATE_BYTES
from tests.unit.runtime.accidents import At, CrashError, crash
from tests.unit.runtime.algorithms.batches import Batch
from tests.unit.runtime.algorithms.game import GAME, fire, start
from tests.unit.runtime.algorithms.world import WITH_OUTBOX, World
from tests.unit.runtime.diary import delivery
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import HOUR, NOW, ends, open_batches
from tests.unit.runtime.worker import outputs as all_outputs

every_outbox = pytest.mark.parametrize("algorithm", WITH_OUTBOX)


# A task of a batch dies between any two calls, in the first pass or the second, and runs again as a whole.


MESSAGES = (start(1, 1), fire(1, 1), fire(1, 1), fire(2, 5))


@every_outbox
def test_a_second_pass_that_is_done_again_writes_nothing(algorithm):
    batch = Batch(World(algorithm))
    batch.commit(batch.first_pass(*MESSAGES))
    batch.second_pass()
    batch.second_pass()
    assert batch.world.calls == ["states get"]


@every_outbox
def test_only_the_first_delivery_in_a_batch_has_outputs_and_now_never_goes_back(algorithm):
    world = World(algorithm)
    batch = Batch(world)

    outcomes = batch.first_pass(start(1, 1))
    world.clock.now -= HOUR
    outcomes += batch.first_pass(fire(1, 1), fire(1, 1))

    assert ends(outcomes) == ["processed", "processed", "duplicate"]
    assert [len(outcome.outputs) for outcome in outcomes] == [0, 1, 0]
    entity = world.entity("ShootingRange", str(GAME))
    assert entity is not None
    assert entity.last_now == NOW


# What a batch has left that has not ended is its own: others may publish it once more, and leave it as it is.


SIDE_BY_SIDE = (start(1, 1), fire(1, 1), fire(2, 5))
LATER = NOW + HOUR
COUNTED = {"number_of_hits": 1, "number_of_misses": 1}


@pytest.fixture
def died(algorithm) -> Batch:
    """Leave a batch that died when all was stored and before anything was committed."""
    batch = Batch(World(algorithm), "died")
    batch.first_pass(*SIDE_BY_SIDE)
    return batch


def given(outcomes: list[Outcome]) -> list[tuple[str, list[str]]]:
    return [(str(each.status), [output.message_id for output in each.outputs]) for each in outcomes]


def pending(world: World) -> int:
    entity = world.entity("ShootingRange", str(GAME))
    return entity.pending if entity else 0


def outputs(outcomes: list[Outcome]) -> set[str]:
    return {output.message_id for output in all_outputs(outcomes)}


def assert_each_counted_once(world: World) -> None:
    assert world.garbage() == []
    assert world.state("LeaderBoard", str(GAME)) == COUNTED


def crashed_at_publish(algorithm) -> World:
    """Return a world where the worker of a single message died before it published."""
    world = World(algorithm)
    world.deliver(start(1, 1))
    with pytest.raises(CrashError):
        drive(world.process(fire(1, 1), before=lambda call: crash() if call == "publish" else None))
    return world


@every_outbox
def test_what_a_single_message_has_left_is_finished_by_a_batch_and_left_by_an_early_sweep(algorithm):
    world = crashed_at_publish(algorithm)
    sweep = Batch(world, "sweep")
    assert sweep.unfinished(NOW - 1) == []
    assert len(sweep.unfinished(NOW)) == 1

    outcomes = Batch(world).run(fire(1, 1))

    assert [status for status, _ in given(outcomes)] == ["duplicate", "processed"]
    assert len(outputs(outcomes)) == 1
    assert world.garbage() == []


@every_outbox
def test_a_sweep_and_another_batch_leave_a_batch_alone_that_has_not_ended(died):
    sweep = Batch(died.world, "sweep", open_batches=open_batches("died"))

    assert sweep.unfinished(LATER) == []
    assert drive(died.world.worker().sweep()) == 0
    Batch(died.world, "other").run(*SIDE_BY_SIDE)
    assert pending(died.world) == 3


@every_outbox
def test_a_sweep_makes_up_for_a_task_that_died_after_any_call(algorithm):
    number, ended = 0, False
    while not ended:
        # Given a task that has died once its messages were stored, and whose batch was given up
        number += 1
        died = Batch(World(algorithm), "died")
        try:
            died.first_pass(*SIDE_BY_SIDE, after=At(number, crash))
            ended = True
        except CrashError:
            if not pending(died.world):
                continue

        # When a sweep takes it up
        sweep = Batch(died.world, "sweep", open_batches=OpenBatches())
        left = sweep.unfinished(NOW - 1)
        sweep.commit(left)
        sweep.second_pass()
        sweep.run(*(output.envelope() for output in sweep.outputs_for_handlers()))

        # Then nothing is left, and each output was handled
        assert {each.status for each in left} == {"duplicate"}
        assert_each_counted_once(sweep.world)
        assert sweep.unfinished(LATER) == []
    assert [each.envelope.type for each in left] == ["StartNewRound", "FireAt", "FireAt"]


# The outputs of a batch wait in the outbox of their entity: what does not fit is told so, and fits a redrive.


class Shout(Message):
    valley: str
    letters: int


class Echo(Message):
    """What comes back."""

    text: str


class Heard(State):
    shouts: int = 0


class Valley(Handler[Heard]):
    @handles(by="valley")
    def shout(self, state: Heard, message: Shout, context: Context) -> Heard:
        context.publish(Echo(text="o" * message.letters))
        return Heard(shouts=state.shouts + 1)


app = App(Valley)
LOUD = MAX_OUTBOX_BYTES // 3 - 1000


def shout(message_id: str, letters: int) -> Envelope:
    return delivery(message_id, "Shout", {"valley": "north", "letters": letters})


OUTGROWING = [*(shout(f"loud-{number}", LOUD) for number in range(5)), shout("low", 100)]


@every_outbox
def test_what_does_not_fit_is_a_dead_letter_that_says_what_to_do_and_a_redrive_handles_it(algorithm):
    world = World(algorithm, app)

    first = Batch(world, "first").run(*OUTGROWING)

    assert ends(first) == ["processed"] * 3 + ["state_too_large"] * 2 + ["processed"]
    assert "3 other messages are unfinished: redrive this one" in str(first[3].error)
    again = Batch(world, "again", is_redrive=True).run(*(each.envelope for each in first if each.reason))
    assert ends(again) == ["processed"] * 2
    assert world.state("Valley", "north") == {"shouts": 6}
    assert world.garbage() == []

    stopped = Batch(World(algorithm, app), on_error="stop-stream").run(*OUTGROWING)
    assert ends(stopped) == ["processed"] * 3 + ["state_too_large", "held_back", "held_back"]

    (never,) = Batch(World(algorithm, app)).run(shout("very-loud", MAX_OUTBOX_BYTES))
    assert ends([never]) == ["state_too_large"]
    assert "redrive it" not in str(never.error), "it never fits"


@pytest.mark.thorough
def test_an_outbox_full_of_old_ids_says_that_they_can_be_forgotten():
    world = World("outbox", app)
    for number in range(300):
        Batch(world, f"b{number}").run(shout(f"{number:0250}", 0))

    (outcome,) = Batch(world).run(shout("loud", MAX_OUTBOX_BYTES - 300 * 250))

    assert ends([outcome]) == ["state_too_large"]
    assert "It remembers 300 older messages: evict some (`consistent truncate`)" in str(outcome.error)


# An entity that may be stored can be stored, and so can what later steps add to it.


KEY = "Diary-" + "d" * 500
RECIPIENTS = (("Ear", "OtherEar"),)


def entity_with(outbox: dict) -> Entity:
    return Entity(KEY, "tokens", b"s" * MAX_STATE_BYTES, 1, 7, NOW, outbox)


def entry(body: str, attempts: int = 0) -> Entry:
    outputs = outputs_of([Published("id", "Wrote", body.encode(), {"line": "1"})], 7, NOW)
    tokens = EntryTokens(Token("chain", "first", "Diary"), RECIPIENTS)
    for number in range(attempts):
        tokens = tokens.registered(f"{number:032}")
    return Entry(b"f" * 16, NOW, 7, outputs, tokens)


def full(attempts: int = 0) -> dict:
    return {"m": entry("x" * (MAX_OUTBOX_BYTES - 200), attempts)}


def store_and_read(given: Entity) -> Entity:
    table = memory_table()
    drive(table.transact(KEY, [Operation.insert("ENTITY", given.properties())]))
    row = drive(table.get(KEY, "ENTITY"))
    assert row is not None
    return read_entity(row)


@pytest.mark.parametrize("attempts", [0, 1, 1000])
def test_the_largest_entity_has_room_for_the_attempts_of_many_crashes(attempts):
    largest = entity_with(full())
    assert largest.too_large() is None
    assert len(pack_entries(largest.outbox)) > MAX_OUTBOX_BYTES - 200

    later = entity_with(full(attempts))

    assert store_and_read(later).outbox == later.outbox


def test_an_entity_with_as_many_messages_as_fit_has_room_for_further_attempts_at_each_of_them():
    # Given as many messages as fit, each with one attempt
    entity, given = entity_with({}), entry("", 1)
    while not (more := entity.with_entry(str(len(entity.outbox)), given)).too_large(TokenBased.growth):
        entity = more

    # When all have as many attempts as an entry keeps, and one is committed
    later = entry("", NEWEST + 1)
    assert later.tokens
    later = replace(later, tokens=later.tokens.decided(f"{NEWEST:032}"))

    # Then the entity can be stored
    store_and_read(entity_with(dict.fromkeys(entity.outbox, later)))


def test_what_is_over_a_limit_is_told_before_it_is_sent():
    large = entity_with({"m": entry("x" * MAX_OUTBOX_BYTES)})

    assert "outbox" in (large.too_large() or "")
    assert prepare(KEY, [Operation.insert("ENTITY", large.properties())])

"""The algorithms with an outbox: scenarios, crashes, copies, lost answers and late writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from itertools import count, permutations, product

import pytest

from eventstore import Operation, RowError, StoreUnavailableError, Table, connect, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Status
from tests.unit.runtime import diary
from tests.unit.runtime.algorithms.game import SHOT, assert_one_hit, begun, calls, finish, new_world, shoot
from tests.unit.runtime.algorithms.world import (
    ALGORITHMS,
    At,
    CrashError,
    Pause,
    World,
    crash,
    lose_answer,
    resume,
)
from tests.unit.runtime.diary import Wrote, delivery, write
from tests.unit.runtime.games import GAME, fire, start
from tests.unit.runtime.worker import ends

every_algorithm = pytest.mark.parametrize("algorithm", ALGORITHMS)


# The scenarios of the article, the same for every algorithm: what is delivered more than once has its effect once.


def shots(world: World) -> Counter[str]:
    """Count the different outputs by type."""
    return Counter({output.message_id: output.type for output in world.published}.values())


@every_algorithm
def test_a_a_shot_that_is_delivered_twice_hits_once(algorithm):
    world = new_world(algorithm)

    world.deliver(start(1, 1))
    outcomes = world.deliver(fire(1, 1), fire(1, 1))

    assert [outcome.status for outcome in outcomes] == [Status.PROCESSED, Status.DUPLICATE]
    assert shots(world) == {"Hit": 1}
    assert world.state("ShootingRange", str(GAME))["number_of_attempts"] == 1


@every_algorithm
def test_b_a_shot_that_comes_again_in_the_next_round_hits_as_it_did(algorithm):
    world = new_world(algorithm)

    world.deliver(start(1, 1), fire(1, 1), start(2, 2), fire(1, 1))

    assert shots(world) == {"Hit": 1}
    assert len({(output.message_id, output.body.encode()) for output in world.published}) == 1


@every_algorithm
@pytest.mark.parametrize("order", list(permutations([fire(1, 1), fire(1, 1), start(2, 2)])))
def test_c_a_shot_and_its_copy_around_a_new_round_hit_or_miss_once(algorithm, order):
    world = new_world(algorithm)

    world.deliver(start(1, 1))
    world.deliver(*order)

    assert sum(shots(world).values()) == 1
    assert len({output.body for output in world.published}) == 1


@every_algorithm
def test_d_the_same_hit_counts_once_on_the_leader_board(algorithm):
    world = new_world(algorithm)
    world.deliver(start(1, 1), fire(1, 1))
    (hit,) = world.published

    outcomes = world.deliver(hit.envelope(), hit.envelope())

    assert [outcome.status for outcome in outcomes] == [Status.PROCESSED, Status.DUPLICATE]
    board = world.state("LeaderBoard", str(GAME))
    assert (board["number_of_hits"], board["number_of_misses"]) == (1, 0)


@every_algorithm
def test_nothing_is_left_to_do_when_all_is_processed(algorithm):
    world = new_world(algorithm)

    world.deliver(start(1, 1), fire(1, 1), fire(2, 2))
    world.consume()

    assert world.garbage() == []


@every_algorithm
def test_every_algorithm_publishes_the_same(algorithm):
    first, world = new_world("state-based"), new_world(algorithm)

    for each in (first, world):
        each.deliver(start(1, 1), fire(1, 1), fire(2, 2), start(2, 2), fire(3, 2))

    assert [output[:5] for output in world.published] == [output[:5] for output in first.published]
    assert world.state("ShootingRange", str(GAME)) == first.state("ShootingRange", str(GAME))


# A worker may die between any two calls, also in the middle of publishing: the next copy goes on from there.


@every_algorithm
def test_a_crash_before_any_call_loses_and_repeats_nothing(algorithm):
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        with pytest.raises(CrashError):
            shoot(world, before=At(number, crash))
        finish(world)
        assert_one_hit(world)


@every_algorithm
def test_a_crash_after_any_call_loses_and_repeats_nothing(algorithm):
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        with pytest.raises(CrashError):
            shoot(world, after=At(number, crash))
        finish(world)
        assert_one_hit(world)


@every_algorithm
def test_two_crashes_at_any_two_calls_lose_and_repeat_nothing(algorithm):
    # The second attempt may take more calls than an undisturbed one: it stops mattering when it ends without a crash.
    for first in range(1, len(calls(algorithm)) + 1):
        second, ended = 0, False
        while not ended:
            second += 1
            world = begun(algorithm)
            with pytest.raises(CrashError):
                shoot(world, after=At(first, crash))
            try:
                shoot(world, after=At(second, crash))
                ended = True
            except CrashError:
                pass
            finish(world)
            assert_one_hit(world)


@every_algorithm
def test_what_was_published_is_consumed_before_the_crashed_worker_comes_back(algorithm):
    # The output is published, its consumer is done with it, and only then its parent is redelivered.
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        with pytest.raises(CrashError):
            shoot(world, after=At(number, crash))
        world.consume()
        finish(world)
        assert_one_hit(world)


@every_algorithm
def test_nothing_is_published_before_the_state_is_stored(algorithm):
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        before = world.state("ShootingRange", str(GAME))
        with pytest.raises(CrashError):
            shoot(world, before=At(number, crash))
        changed = world.state("ShootingRange", str(GAME)) != before
        assert changed or not world.published


# Two workers with copies of one message, interleaved at every call: it has its effect once.


MORE = 8
"""How many calls more a worker makes at most once it was disturbed."""


@every_algorithm
def test_a_copy_that_is_processed_between_any_two_calls_of_another(algorithm):
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)
        shoot(world, before=At(number, partial(world.process, SHOT)))
        world.consume()
        assert_one_hit(world)


@every_algorithm
def test_a_copy_and_all_that_follows_from_it_between_any_two_calls_of_another(algorithm):
    # The slow worker wakes up when the other has finished the message, and its outputs are processed too.
    for number in range(1, len(calls(algorithm)) + 1):
        world = begun(algorithm)

        async def overtake(world: World = world) -> None:
            await world.process(SHOT)
            await world.consuming()

        shoot(world, before=At(number, overtake))
        world.consume()
        assert_one_hit(world)


@every_algorithm
def test_a_copy_that_overtakes_a_worker_that_crashes_later(algorithm):
    count = len(calls(algorithm))
    for number in range(1, count + 1):
        for later in range(number, count + MORE):
            world = begun(algorithm)
            overtake = At(number, partial(world.process, SHOT))
            with suppress(CrashError):
                shoot(world, before=overtake, after=At(later, crash))
            finish(world)
            assert_one_hit(world)


@every_algorithm
def test_a_copy_that_crashes_in_the_middle_of_another(algorithm):
    count = len(calls(algorithm))
    for number in range(1, count + 1):
        for later in range(1, count + 1):
            world = begun(algorithm)

            async def die(world: World = world, later: int = later) -> None:
                with suppress(CrashError):  # a copy that finds all done makes fewer calls
                    await world.process(SHOT, after=At(later, crash))

            shoot(world, before=At(number, die))
            finish(world)
            assert_one_hit(world)


@every_algorithm
def test_copies_whose_workers_take_turns(algorithm):
    # One runs up to a call, the other up to another, the first to the end, the second to the end.
    count = len(calls(algorithm)) + 1
    for first, second in product(range(1, count), range(1, count)):
        world = begun(algorithm)
        one = world.process(SHOT, before=At(first, Pause))
        other = world.process(SHOT, before=At(second, Pause))
        assert resume(one)
        waits = resume(other)
        world.consume()
        assert not resume(one)
        world.consume()
        assert not waits or not resume(other)
        world.consume()
        assert_one_hit(world)


@every_algorithm
@pytest.mark.thorough
def test_copies_whose_workers_take_turns_after_a_crash(algorithm):
    # The first attempt leaves something unfinished behind, so that both workers finish what another has begun.
    count = len(calls(algorithm)) + 2
    for crashed, first, second in product(range(3, count), range(1, count), range(1, count)):
        world = begun(algorithm)
        with suppress(CrashError):
            shoot(world, before=At(crashed, crash))
        one = world.process(SHOT, before=At(first, Pause))
        other = world.process(SHOT, before=At(second, Pause))
        one_waits, other_waits = resume(one), resume(other)
        assert not one_waits or not resume(one)
        world.consume()
        assert not other_waits or not resume(other)
        world.consume()
        assert_one_hit(world)


@every_algorithm
def test_a_copy_whose_worker_wakes_up_for_one_last_call(algorithm):
    # It makes the call that it was about to make, as a request that was long under way, and is heard of no more.
    count = len(calls(algorithm)) + MORE
    for last, second in product(range(1, count), range(1, count)):
        world = begun(algorithm)
        one = world.process(SHOT, before=At(last, Pause), after=At(last, crash))
        other = world.process(SHOT, before=At(second, Pause))
        one_waits, other_waits = resume(one), resume(other)
        if one_waits:
            with pytest.raises(CrashError):
                resume(one)
        assert not other_waits or not resume(other)
        finish(world)
        assert_one_hit(world)


@every_algorithm
def test_two_messages_of_one_object_are_both_processed_whoever_comes_first(algorithm):
    alone = new_world(algorithm, diary.app)
    alone.deliver(write("a"))
    for number in range(1, len(alone.calls) + 1):
        world = new_world(algorithm, diary.app)
        other = At(number, partial(world.process, write("b")))
        drive(world.process(write("a"), before=other))

        lines = world.state("Diary", diary.DIARY)["lines"]
        assert sorted(lines) == ["a", "b"]  # type: ignore[call-overload]
        pages = {tuple(diary.Wrote.model_validate_json(output.body).on_page) for output in world.published}
        assert pages == {tuple(lines[:1]), tuple(lines)}  # type: ignore[index, arg-type]
        assert world.garbage() == []


# A lost answer is as good as a crash, whether the call took effect or not: read again, and go on from there.


def stores(algorithm) -> list[int]:
    """Return the numbers of the calls that have answers to lose: those of the stores."""
    return [
        number
        for number, call in enumerate(calls(algorithm), start=1)
        if call != "publish" and not call.endswith("barrier")
    ]


@every_algorithm
def test_a_call_that_took_effect_although_its_answer_was_lost_is_not_repeated(algorithm):
    for number in stores(algorithm):
        world = begun(algorithm)
        shoot(world, after=At(number, lose_answer))
        world.consume()
        assert_one_hit(world)


@every_algorithm
def test_a_call_that_took_no_effect_is_made_up_for(algorithm):
    for number in stores(algorithm):
        world = begun(algorithm)
        shoot(world, before=At(number, lose_answer))
        world.consume()
        assert_one_hit(world)


@every_algorithm
def test_two_lost_answers_in_a_row_change_nothing(algorithm):
    for number in stores(algorithm):
        for later in range(number + 1, number + 12):
            world = begun(algorithm)
            with suppress(
                StoreUnavailableError
            ):  # a lost barrier is not made up for: the message is redelivered
                shoot(world, before=At(later, lose_answer), after=At(number, lose_answer))
            finish(world)
            assert_one_hit(world)


@every_algorithm
def test_what_is_published_is_what_is_stored_with_the_clock_of_then(algorithm):
    # Given a write whose answer is lost, and time that goes on
    world = new_world(algorithm, diary.app)
    writes = count(1)

    def lose(call: str) -> None:
        if call == "states transact" and next(writes) == 1:
            world.clock.now += 60_000_000
            raise StoreUnavailableError("no answer", outcome_unknown=True)

    # When the message is read again
    drive(world.process(write("a"), after=lose))

    # Then what is published tells the time that is stored, not the one of the second attempt
    (output,) = {output.body for output in world.published}
    assert Wrote.model_validate_json(output).now == "2026-01-01T00:00:00+00:00"


# A write that was given up may take effect later, when its worker has gone on, or when all is over.


NEVER = 1000


class Late:
    """Holds back write number `number`, and lets it take effect when its worker has made `calls` calls more."""

    def __init__(self, number: int, calls: int) -> None:
        self.number = number
        self.calls = calls
        self.writes = 0
        self.held: tuple[Table, str, Sequence[Operation]] | None = None
        self.made = 0

    async def tick(self) -> None:
        if self.held:
            self.made += 1
            if self.made == self.calls:
                await self.release()

    async def release(self) -> None:
        if self.held:
            table, partition_key, operations = self.held
            self.held = None
            try:
                await table.transact(partition_key, operations)
            except RowError:
                return


class LateTable:
    """A table one of whose writes comes late."""

    def __init__(self, table: Table, late: Late) -> None:
        self.scope = table.scope
        self.table = table
        self.late = late

    async def get(self, *arguments):
        await self.late.tick()
        return await self.table.get(*arguments)

    async def query(self, *arguments, **options):
        await self.late.tick()
        return await self.table.query(*arguments, **options)

    async def barrier(self) -> None:
        await self.late.tick()

    async def transact(self, partition_key: str, operations: Sequence[Operation]) -> tuple[str, ...]:
        await self.late.tick()
        self.late.writes += 1
        if self.late.writes == self.late.number:
            self.late.held = (self.table, partition_key, operations)
            raise StoreUnavailableError("no answer", outcome_unknown=True)
        return await self.table.transact(partition_key, operations)


def shoot_with(world: World, late: Late) -> None:
    """Deliver the shot to a worker one of whose writes comes late."""
    drive(world.send(SHOT))
    states, other = world.states, world.other
    world.states, world.other = LateTable(states, late), LateTable(other, late)  # type: ignore[assignment]
    shoot(world)
    world.states, world.other = states, other


def writes(algorithm) -> range:
    return range(1, sum(call.endswith("transact") for call in calls(algorithm)) + 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_write_that_takes_effect_while_its_worker_goes_on_changes_nothing(algorithm):
    for number in writes(algorithm):
        for later in range(1, 14):
            world = begun(algorithm)
            late = Late(number, later)
            shoot_with(world, late)
            drive(late.release())
            finish(world)
            assert_one_hit(world)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_write_that_takes_effect_when_all_is_over_changes_nothing(algorithm):
    # What was published is processed by then: a token that came into being again would let it be processed twice.
    for number in writes(algorithm):
        world = begun(algorithm)
        late = Late(number, NEVER)
        shoot_with(world, late)
        world.consume()
        drive(late.release())
        for output in list(world.published):
            drive(world.worker().process(output.envelope()))
        finish(world)
        assert_one_hit(world)


# A copy that comes when its message is finished returns early, and cleans up what a crash has left.


LAST_STEP = "states transact"
"""The write that removes the entry of a message from its entity."""


def crashed_before_the_last_step(algorithm):
    world = begun(algorithm)
    (*_, last) = [number for number, call in enumerate(calls(algorithm), 1) if call == LAST_STEP]
    with pytest.raises(CrashError):
        shoot(world, before=At(last, crash))
    assert world.garbage()
    world.consume()
    return world


@pytest.mark.parametrize("algorithm", ["deduplication-store", "tokens"])
def test_an_early_return_removes_a_leftover_entry(algorithm):
    world = crashed_before_the_last_step(algorithm)
    published = len(world.published)

    outcomes = world.deliver(SHOT)

    assert ends(outcomes) == ["duplicate"]
    assert len(world.published) == published
    assert_one_hit(world)


@pytest.mark.parametrize("algorithm", ["deduplication-store", "tokens"])
def test_an_early_return_with_nothing_to_clean_up_costs_two_requests(algorithm):
    world = crashed_before_the_last_step(algorithm)
    world.deliver(SHOT)

    world.deliver(SHOT)

    assert world.calls == ["states get", "other get"]


def test_an_early_return_leaves_the_entry_of_another_token_alone():
    # Given an entry that waits to be sent
    world = begun("tokens")
    with pytest.raises(CrashError):
        shoot(world, before=At(calls("tokens").index("publish") + 1, crash))

    # When a copy comes whose token never was
    stranger = SHOT._replace(headers={"token": "nowhere/other"})
    outcomes = world.deliver(stranger)

    # Then that does not prove that the outputs are published
    assert ends(outcomes) == ["duplicate"]
    entity = world.entity("ShootingRange", str(GAME))
    assert entity is not None
    assert entity.pending == 1
    world.deliver(SHOT)
    world.consume()
    assert_one_hit(world)


def test_an_early_return_does_not_take_the_tokens_of_a_winner_for_garbage():
    # Given a worker that has registered its attempt, and a copy that reads the entity then
    world = begun("tokens")
    winner = world.process(SHOT, before=At(calls("tokens").index("other transact") + 1, Pause))
    copy = world.process(SHOT, after=At(1, Pause))
    assert resume(winner)
    assert resume(copy)

    # When the first finishes the message, and the copy finds no token
    assert not resume(winner)
    assert not resume(copy)

    # Then the tokens of what was sent are there, and it is processed
    world.consume()
    assert_one_hit(world)


# The same on SQLite: states in one file, ids and tokens in another, workers that crash and copies in between.


class SqliteWorld(World):
    """A world whose tables are in two files."""

    def garbage(self) -> list[str]:
        tokens = drive(self.other.scan("first-ShootingRange")).rows
        return [
            *("unfinished" for _ in range(drive(self.worker().sweep()))),
            *(row.partition_key for row in tokens),
        ]


@every_algorithm
def test_crashes_and_copies_lose_and_repeat_nothing(algorithm, tmp_path):
    for number in range(1, len(calls(algorithm)) + 1, 2):
        states = connect(f"sqlite:///{tmp_path}/states-{number}.db")
        other = connect(f"sqlite:///{tmp_path}/other-{number}.db")
        world = SqliteWorld(
            algorithm, states=drive(states.table("states")), other=drive(other.table("other"))
        )
        world.deliver(start(1, 1))

        with pytest.raises(CrashError):
            drive(world.process(SHOT, after=At(number, crash)))
        drive(world.process(SHOT, before=At(2, partial(world.process, SHOT))))
        world.consume()

        assert_one_hit(world)
        drive(states.close())
        drive(other.close())


# In every algorithm, a copy under another name of its type is a copy, and another message is none.


class Rang(Message, aliases=("Pealed",)):
    tower: str
    loud: bool = False


class Data(State):
    rings: int = 0


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        return Data(rings=state.rings + 1)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
@pytest.mark.parametrize("names", [("Rang", "Pealed"), ("Pealed", "Rang")])
def test_a_copy_under_another_name_is_a_duplicate(algorithm, names):
    world = World(algorithm, App(Bell))

    statuses = [
        outcome.status for name in names for outcome in world.deliver(delivery("a", name, {"tower": "east"}))
    ]

    assert statuses == ["processed", "duplicate"]


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
def test_another_message_with_the_id_is_none(algorithm):
    world = World(algorithm, App(Bell))
    world.deliver(delivery("a", "Rang", {"tower": "east"}))

    [other] = world.deliver(delivery("a", "Pealed", {"tower": "east", "loud": True}))

    assert (other.status, other.reason) == ("dead_letter", "id_reused")


# What is told to others, or relied on by the next step, survives a power cut by then: each store is told in time.


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_what_an_output_speaks_of_is_durable_before_it_is_published(algorithm):
    made = calls(algorithm)

    before = made[: made.index("publish")]

    last = max(number for number, call in enumerate(before) if call == "states transact")
    assert "states barrier" in before[last:]


@pytest.mark.parametrize("algorithm", ["deduplication-store", "tokens"])
def test_what_a_store_says_is_durable_before_the_states_are_changed_on_the_strength_of_it(algorithm):
    made = calls(algorithm)

    changes = [number for number, call in enumerate(made) if call == "other transact"]

    assert changes
    assert all(made[number + 1] == "other barrier" for number in changes)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_message_without_outputs_is_durable_before_it_is_acknowledged(algorithm):
    world = begun(algorithm)

    world.deliver(start(2, 2))

    first = world.calls.index("states transact")
    assert "states barrier" in world.calls[first:]


@pytest.mark.parametrize("algorithm", ["state-based", "outbox"])
def test_a_duplicate_is_durable_before_it_is_acknowledged(algorithm):
    # Whoever stored it may not have come so far. With the others, their store is written after that.
    world = begun(algorithm)
    world.deliver(SHOT)

    world.deliver(SHOT)

    assert "states barrier" in world.calls

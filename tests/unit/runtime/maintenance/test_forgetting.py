"""A forgotten object leaves a tombstone and nothing else, whatever happens meanwhile."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any, TypeVar

import pytest

from eventstore import InterceptedTable, Table, drive
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.outbox.stores import TokenStore, issue
from runtime.algorithms.state_based.truncation import RetentionRules
from runtime.clock import to_datetime
from runtime.errors import UsageError
from runtime.maintenance.forget import Tables, Trace, find_trace, forget
from runtime.maintenance.policies import Policies, Scope
from runtime.versions import limits
from tests.unit.runtime.accidents import At, CrashError, crash
from tests.unit.runtime.algorithms.game import GAME, fire, start
from tests.unit.runtime.algorithms.world import WITH_OUTBOX, World
from tests.unit.runtime.diary import DIARY, misbehave, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import copy_of, memory_table, rows
from tests.unit.runtime.worker import DAY, HOUR, NOW, ToldClock, Worker, ends

T = TypeVar("T")


@dataclass
class Step:
    """Is called at each call of the one who is overtaken."""

    calls: int
    later: int
    meanwhile: Callable[[], None]
    is_reached: bool = False

    def __call__(self, *_: object) -> None:
        if self.calls == 0:
            self.is_reached = True
            self.meanwhile()
        elif self.calls == -self.later:
            raise CrashError
        self.calls -= 1


def overtaken(
    later: int, new: Callable[[], T], forget: Callable[[T, Step], None], meanwhile: Callable[[T], None]
) -> Iterator[tuple[T, bool]]:
    """Yield worlds in which that happened at the first call, at the second, and so on, and at last at none."""
    for number in count():
        world = new()
        step = Step(number, later, partial(meanwhile, world))
        with suppress(CrashError):
            forget(world, step)
        yield world, step.is_reached
        if not step.is_reached:
            assert number > 8
            return


KEY = f"Diary-{DIARY}"
OLD = NOW - 10 * DAY


@pytest.fixture(scope="module")
def long_stream() -> Table:
    """Give a stream with runs, index rows, letters and a tail, beside another stream."""
    table = memory_table()
    worker = Worker(table, clock=ToldClock(OLD))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_SEGMENT_BYTES", 200)
        patch.setattr(limits, "MAX_TAIL_BYTES", 2000)
        for number in range(130):
            worker.process(write(f"canary {number}", f"m-{number}", enqueued_at=OLD + number))
    worker.process(misbehave("fail", "canary that failed", enqueued_at=OLD))
    Worker(table, business_id="d-2").process(write("kept", diary="d-2"))
    return table


@pytest.fixture
def table(long_stream: Table) -> Table:
    return copy_of(long_stream)


def erase(table: Table, now: int = NOW, *, restart: bool = False) -> bool:
    return drive(forget(Tables(table, table, table), "Diary", DIARY, now, restart=restart, retries=PATIENCE))


def of_the_object(table: Table) -> dict[str, object]:
    return {row_key: properties for (key, row_key), properties in rows(table).items() if key == KEY}


def tombstone(now: int = NOW, *, restart: bool = False) -> dict[str, object]:
    at = to_datetime(now)
    mark = {"Forgotten": at} if restart else {"Forgotten": at, "Refuses": True}
    header = {"Version": 0, "StateSchema": 1, "StateVersions": 0, "LastNow": at, "Horizon": at}
    return {"SS-HEAD": {**header, "UndatedCut": True, "LastLetter": 1, **mark}}


def test_what_there_is_can_be_looked_at_before(table):
    tables = Tables(table, table, table)
    keys, before = list(of_the_object(table)), rows(table)

    trace = drive(find_trace(tables, "Diary", DIARY))

    assert trace is not None
    assert (trace.key, trace.versions, trace.messages, trace.algorithm) == (KEY, 130, 0, None)
    index, runs = (sum(key.startswith(kind) for key in keys) for kind in ("SS-IDX", "SS-SE"))
    assert trace.rows == {"index": index, "letters": 1, "runs": runs}
    assert trace.forgotten_at is None
    assert drive(find_trace(tables, "Diary", "nobody")) is None
    assert not drive(forget(tables, "Diary", "nobody", NOW, restart=False, retries=PATIENCE))
    assert rows(table) == before
    erase(table)
    after = drive(find_trace(tables, "Diary", DIARY))
    assert after is not None
    assert (after.versions, after.rows, after.forgotten_at) == (0, {}, NOW)


def test_a_message_of_a_sender_whose_clock_is_ahead_is_too_late_all_the_same(table):
    ahead = NOW + HOUR // 2
    Worker(table).process(write("ahead", enqueued_at=ahead))

    erase(table, restart=True)

    assert ends(Worker(table).process(write("ahead", enqueued_at=ahead))) == ["too_late"]


def erased(
    table: Table, happens: Callable[[Table], Any], when: str = "before", *, restart: bool = False
) -> Iterator[Table]:
    """Forget the object on copies of the table; something happens at the first call, at the second, and so on."""
    counted = InterceptedTable(copy_of(table))
    erase(counted, restart=restart)
    for call in range(1, counted.calls + 1):
        target = copy_of(table)
        step = At(call, partial(happens, target))
        with suppress(CrashError):
            erase(InterceptedTable(target, **{when: step}), restart=restart)
        yield target


@pytest.mark.parametrize("restart", [False, True])
def test_after_a_crash_at_any_call_it_refuses_and_running_again_finishes(table, restart):
    complete, unbegun = 0, 0
    for crashed in (
        each for when in ("before", "after") for each in erased(table, crash, when, restart=restart)
    ):
        left = of_the_object(crashed)
        known = ends(Worker(copy_of(crashed)).process(write("canary 129", "m-129", enqueued_at=OLD + 129)))
        if left == of_the_object(table):
            assert known == ["duplicate"]
            unbegun += 1
        elif left == tombstone(restart=True):
            assert known == ["too_late"]
            complete += 1
        else:
            assert known == ["forgotten"]

        erase(crashed, NOW + 1, restart=restart)
        assert of_the_object(crashed) == tombstone(NOW + 1, restart=restart)

    assert unbegun > 0
    assert (complete > 0) is restart


def test_an_object_under_a_hold_is_not_forgotten(table):
    policies, scope = Policies(table, ToldClock()), Scope("Diary", DIARY)
    drive(policies.change(scope, hold=True))
    before = of_the_object(table)

    with pytest.raises(UsageError, match="A policy holds Diary-d-1"):
        erase(table)
    trace = drive(find_trace(Tables(table, table, table), "Diary", DIARY))
    assert trace is not None
    assert trace.held
    assert of_the_object(table) == before

    drive(policies.change(scope, hold=False))
    erase(table)
    assert of_the_object(table) == tombstone()


def test_its_own_rules_go_with_it_and_those_of_others_stay(table):
    policies = Policies(table, ToldClock())
    for scope in (Scope("Diary", DIARY), Scope("Diary", "d-2"), Scope("Diary")):
        drive(policies.set_rules(scope, RetentionRules(keep_last=1)))

    erase(table)

    assert {policy.scope for policy in drive(policies.all())} == {Scope("Diary", "d-2"), Scope("Diary")}


ENTITY_KEY = f"ShootingRange-{GAME}"


def played(algorithm: AlgorithmName) -> World:
    """Return a world with messages that are finished, and one whose outputs were never published."""
    world = World(algorithm)
    world.deliver(start(1), fire(1))
    with pytest.raises(CrashError):
        drive(world.process(fire(2), before=lambda call: crash() if call == "publish" else None))
    return world


def copy(world: World) -> World:
    """Return a world with the same rows, and the same tokens sent."""
    copied = World(world.algorithm)
    copied.states, copied.other = copy_of(world.states), copy_of(world.other)
    copied._headers = dict(world._headers)
    return copied


async def forgetting(world: World, now: int = NOW, *, restart: bool = False, watch: Any = None) -> bool:
    states, other = world.states, world.other
    if watch is not None:
        states, other = InterceptedTable(states, **watch), InterceptedTable(other, **watch)
    tables = Tables(states, other, other)
    return await forget(tables, "ShootingRange", str(GAME), now, restart=restart, retries=PATIENCE)


def erase_entity(world: World, now: int = NOW, **options: Any) -> bool:
    return drive(forgetting(world, now, **options))


def of_the_entity(world: World) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the rows that name it, and tokens of its handler."""
    tables = {id(table): table for table in (world.states, world.other)}.values()
    return [
        (row_key, properties)
        for table in tables
        for (key, row_key), properties in rows(table).items()
        if key == ENTITY_KEY or row_key.endswith("-ShootingRange")
    ]


def tombstone_of_entity(
    algorithm: str, now: int = NOW, *, restart: bool = False
) -> list[tuple[str, Mapping[str, Any]]]:
    mark = {"Forgotten": to_datetime(now)} if restart else {"Forgotten": to_datetime(now), "Refuses": True}
    bare = {"Algorithm": algorithm, "StateSchema": 1, "Version": 0, "LastNow": to_datetime(0), "Pending": 0}
    return [("ENTITY", bare | mark)]


def looked(world: World) -> Trace:
    trace = drive(find_trace(Tables(world.states, world.other, world.other), "ShootingRange", str(GAME)))
    assert trace is not None
    return trace


@pytest.mark.parametrize(
    ("algorithm", "messages", "found"),
    [
        ("outbox", 3, {}),
        ("deduplication-store", 1, {"ids": 2}),
        ("tokens", 1, {"tokens": 1}),
    ],
)
def test_what_there_is_of_an_entity_can_be_looked_at_before(algorithm, messages, found):
    world = played(algorithm)

    trace = looked(world)

    assert (trace.algorithm, trace.versions, trace.messages, trace.rows) == (algorithm, 0, messages, found)
    erase_entity(world)
    after = looked(world)
    assert (after.messages, after.rows, after.forgotten_at) == (0, {}, NOW)


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
@pytest.mark.parametrize("effect", [False, True])
def test_after_a_crash_at_any_call_forgetting_an_entity_again_finishes(algorithm, effect):
    whole = played(algorithm)
    for number in range(1, 60):
        world = copy(whole)
        try:
            erase_entity(world, watch={"after" if effect else "before": At(number, crash)})
        except CrashError:
            erase_entity(world, NOW + 1)
            assert of_the_entity(world) == tombstone_of_entity(algorithm, NOW + 1)
            continue
        break
    assert number > 5


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
def test_a_worker_that_is_overtaken_leaves_nothing(algorithm):
    whole = played(algorithm)
    probe = copy(whole)
    probe.deliver(fire(2))
    calls, found = len(probe.calls), set()
    for number in range(1, calls + 1):
        world = copy(whole)
        overtaken = At(number, partial(forgetting, world))
        found |= set(ends(drive(world.process(fire(2), before=overtaken))))

        assert ends(world.deliver(fire(2))) in (["forgotten"], ["duplicate"])
        assert of_the_entity(world) == tombstone_of_entity(algorithm)
    assert "duplicate" in found


@pytest.mark.parametrize("later", range(1, 6))
def test_one_who_is_overtaken_and_dies_leaves_the_token_that_a_message_was_sent_with_again(later: int):
    def begin_anew(world: World) -> None:
        erase_entity(world, restart=True)
        drive(issue(TokenStore(world.other), fire(2), ["ShootingRange"]))

    def forgets(world: World, step: Step) -> None:
        erase_entity(world, NOW + 1, restart=True, watch={"before": step})

    # When another one forgets the object at some call, its unfinished message is sent again, and the first one dies
    for world, is_reached in overtaken(later, lambda: played("tokens"), forgets, begin_anew):
        # Then the message is handled in the new history, unless that is forgotten as well
        (ended,) = ends(world.deliver(fire(2, enqueued_at=NOW + HOUR)))
        assert ended in (("processed", "forgotten") if is_reached else ("duplicate",))

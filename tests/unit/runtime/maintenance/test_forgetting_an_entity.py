"""Entities of the algorithms with an outbox are forgotten with their ids and tokens."""

from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from eventstore import InterceptedTable, drive
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.outbox.stores import TokenStore, issue
from runtime.clock import to_datetime
from runtime.maintenance.forget import Tables, Trace, find_trace, forget
from tests.unit.runtime.accidents import At, CrashError, crash
from tests.unit.runtime.algorithms.game import GAME, fire, start
from tests.unit.runtime.algorithms.world import WITH_OUTBOX, World
from tests.unit.runtime.maintenance.overtaken import Step, overtaken
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import copy_of, rows
from tests.unit.runtime.worker import HOUR, NOW, ends

KEY = f"ShootingRange-{GAME}"


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


def erase(world: World, now: int = NOW, **options: Any) -> bool:
    return drive(forgetting(world, now, **options))


def of_the_object(world: World) -> list[tuple[str, Mapping[str, Any]]]:
    """Return the rows that name it, and tokens of its handler."""
    tables = {id(table): table for table in (world.states, world.other)}.values()
    return [
        (row_key, properties)
        for table in tables
        for (key, row_key), properties in rows(table).items()
        if key == KEY or row_key.endswith("-ShootingRange")
    ]


def tombstone(
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
def test_what_there_is_can_be_looked_at_before(algorithm, messages, found):
    world = played(algorithm)

    trace = looked(world)

    assert (trace.algorithm, trace.versions, trace.messages, trace.rows) == (algorithm, 0, messages, found)
    erase(world)
    after = looked(world)
    assert (after.messages, after.rows, after.forgotten_at) == (0, {}, NOW)


@pytest.mark.parametrize("algorithm", WITH_OUTBOX)
@pytest.mark.parametrize("effect", [False, True])
def test_after_a_crash_at_any_call_running_again_finishes(algorithm, effect):
    whole = played(algorithm)
    for number in range(1, 60):
        world = copy(whole)
        try:
            erase(world, watch={"after" if effect else "before": At(number, crash)})
        except CrashError:
            erase(world, NOW + 1)
            assert of_the_object(world) == tombstone(algorithm, NOW + 1)
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
        assert of_the_object(world) == tombstone(algorithm)
    assert "duplicate" in found


@pytest.mark.parametrize("later", range(1, 6))
def test_one_who_is_overtaken_and_dies_leaves_the_token_that_a_message_was_sent_with_again(later: int):
    def begin_anew(world: World) -> None:
        erase(world, restart=True)
        drive(issue(TokenStore(world.other), fire(2), ["ShootingRange"]))

    def forgets(world: World, step: Step) -> None:
        erase(world, NOW + 1, restart=True, watch={"before": step})

    # When another one forgets the object at some call, its unfinished message is sent again, and the first one dies
    for world, is_reached in overtaken(later, lambda: played("tokens"), forgets, begin_anew):
        # Then the message is handled in the new history, unless that is forgotten as well
        (ended,) = ends(world.deliver(fire(2, enqueued_at=NOW + HOUR)))
        assert ended in (("processed", "forgotten") if is_reached else ("duplicate",))

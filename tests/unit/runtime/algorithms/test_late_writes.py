"""A write that was given up may take effect later, when its worker has gone on, or when all is over."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from eventstore import Operation, RowError, StoreUnavailableError, Table, drive
from tests.unit.runtime.algorithms.game import SHOT, assert_one_hit, begun, calls, finish, shoot
from tests.unit.runtime.algorithms.world import ALGORITHMS, World

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

"""The same on SQLite: states in one file, ids and tokens in another, workers that crash and copies in between."""

from functools import partial

import pytest

from eventstore import connect, drive
from tests.unit.runtime.algorithms.game import SHOT, assert_one_hit, calls
from tests.unit.runtime.algorithms.world import ALGORITHMS, At, CrashError, World, crash
from tests.unit.runtime.games import start

pytestmark = pytest.mark.parametrize("algorithm", ALGORITHMS)


class SqliteWorld(World):
    """A world whose tables are in two files."""

    def garbage(self) -> list[str]:
        tokens = drive(self.other.scan("first-ShootingRange")).rows
        return [
            *("unfinished" for _ in range(drive(self.worker().sweep()))),
            *(row.partition_key for row in tokens),
        ]


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

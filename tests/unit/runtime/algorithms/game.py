"""A game in which one shot is disturbed, and what must hold of it however it was."""

from typing import Any
from uuid import UUID

from eventstore import drive
from runtime import Envelope
from tests.unit.runtime.algorithms.world import Step, World
from tests.unit.runtime.diary import delivery

GAME = UUID("7d444840-9dc0-11d1-b245-5ffdce74fad2")


def start(number: int, position: int = 1, **fields: Any) -> Envelope:
    return delivery(
        f"start-{number}", "StartNewRound", {"game_id": str(GAME), "position": position}, **fields
    )


def fire(number: int, position: int = 1, **fields: Any) -> Envelope:
    return delivery(f"fire-{number}", "FireAt", {"game_id": str(GAME), "position": position}, **fields)


SHOT = fire(1, 1)


def begun(algorithm) -> World:
    """Return a world in which a round has begun and the target stands where the shot goes."""
    world = World(algorithm)
    world.deliver(start(1, 1))
    return world


def calls(algorithm) -> list[str]:
    """Return the calls of a shot that nothing disturbs, publishing among them."""
    world = begun(algorithm)
    world.deliver(SHOT)
    return list(world.calls)


def shoot(world: World, *, before: Step | None = None, after: Step | None = None) -> None:
    drive(world.process(SHOT, before=before, after=after))


def assert_one_hit(world: World) -> None:
    """Check all that must hold at rest: one change, published, alike in all copies, counted once, nothing left."""
    assert world.state("ShootingRange", str(GAME))["number_of_attempts"] == 1
    assert world.published
    assert len({(output.message_id, output.body, str(output.headers)) for output in world.published}) == 1
    assert world.state("LeaderBoard", str(GAME)) == {"number_of_hits": 1, "number_of_misses": 0}
    assert world.garbage() == []

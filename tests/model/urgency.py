"""Urgency: what can as well happen at once, because it changes places with all that others do meanwhile.

In some worlds only a few of the things that can happen are walked: whatever others do before them comes to the same
after them, and no invariant sees the difference. These are

- a barrier, while no power can be cut: it changes nothing but where its run stands. To die before it is to die after
  it. It may be lost, and that too can happen at once, as nobody else sees it;
- to acknowledge a run that has ended, or to let it die before that. What must hold once it is acknowledged would have
  to hold already now: later, more is committed and published, and nothing less;
- to hand a delivery to a worker that is idle: its run makes no call yet. It may be any of those that wait; for one
  that comes back later there is another idle worker, the one whose run has died.

Accidents use up what may still go wrong, and so exclude each other. But those that a schedule has in it are not too
many in whichever order they come.
"""

from __future__ import annotations

from tests.model.engine import Engine
from tests.model.histories import DONE
from tests.model.world import Action, Kind, World


def urgent(engine: Engine, world: World) -> list[Action]:
    """Return what is walked from a world when that is not everything: all that one run, or one idle worker, may do."""
    if world.cuts:
        return []
    for number in world.runs:
        moment = engine.histories[number]
        if moment.call == DONE:
            if moment.error is None:
                return _with(Kind.CRASH, moment.run, world.crashes)
        elif engine.contents.calls[moment.call].is_barrier:
            return _with(Kind.LOSE_CALL, moment.run, world.losses)
    if len(world.runs) < engine.bounds.workers:
        return [Action(Kind.DELIVER, job) for job in sorted(set(world.queue))]
    return []


def _with(accident: Kind, run: int, left: int) -> list[Action]:
    return [Action(Kind.STEP, run), Action(accident, run)] if left else [Action(Kind.STEP, run)]

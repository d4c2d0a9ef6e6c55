"""Delivery with keys in Redis: copies of one message on their way to a customer, with the shipped keys and scripts.

Redis has a clock of its own. In one kind of scenario it shows what the clock of the caller shows, so that keys expire
in Redis; in the other it is behind, so that a key which has expired for its users is still there, and is put over.
"""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby
from typing import Any, cast

import pytest
from redis.asyncio import Redis

from runtime.algorithms.last_hop.delivery import End
from runtime.algorithms.last_hop.keys import KeyState
from runtime.algorithms.last_hop.settings import DeliverySettings
from runtime.delivery.redis_keys import RedisKeys
from tests.model.calls import REDIS
from tests.model.contents import Rows, Snapshot
from tests.model.facts import Invariant, View
from tests.model.histories import Job
from tests.model.processes import Process
from tests.model.redis_model import CHANGED, SteppedRedis
from tests.model.scenarios.delivery import SENDING_AT_LEAST_ONCE, SENT_ONCE, delivered
from tests.model.versions import Handled


@dataclass(frozen=True, slots=True)
class RedisScenario:
    """Copies of a message for one customer wait in a queue."""

    name: str
    jobs: Sequence[Job]
    invariants: Sequence[Invariant]
    earlier: Sequence[Job] = ()

    def committed(self, snapshot: Snapshot) -> Mapping[Hashable, Any]:
        """Return who holds the key, and whether it is locked or sealed."""
        key = _key(snapshot)
        return {} if key is None else {"key": (key[1], key[0])}

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Leave all limits as they are."""


def at_least_once(
    copies: int = 1, invariants: Sequence[Invariant] | None = None, *, is_behind: bool = False
) -> RedisScenario:
    """Return the scenario of a customer to whom a message is sent at least once."""
    return _deliveries(
        "at least once", SENDING_AT_LEAST_ONCE, copies, invariants or AT_LEAST_ONCE, is_behind=is_behind
    )


def at_most_once(
    copies: int = 1, invariants: Sequence[Invariant] | None = None, *, is_behind: bool = False
) -> RedisScenario:
    """Return the scenario of a customer to whom a message is sent at most once."""
    return _deliveries(
        "at most once", DeliverySettings(), copies, invariants or AT_MOST_ONCE, is_behind=is_behind
    )


def _deliveries(
    promise: str, settings: DeliverySettings, copies: int, invariants: Sequence[Invariant], *, is_behind: bool
) -> RedisScenario:
    clock = ", its clock behind" if is_behind else ""
    name = f"delivery {promise} with keys in Redis{clock}: {copies} cop{'ies' if copies > 1 else 'y'}"
    return RedisScenario(name, [Job("m", partial(_deliver, settings, is_behind), copies)], invariants)


async def _deliver(settings: DeliverySettings, is_behind: bool, process: Process) -> Handled:
    redis = SteppedRedis(None if is_behind else lambda: process.now)
    return await delivered(RedisKeys(cast("Redis", redis), "keys"), settings, process)


def _neither(view: View) -> str | None:
    """Say that all is done, and it was not sent."""
    return "it was not sent" if view.is_quiescent and not view.facts.published else None


def _unrecorded(view: View) -> str | None:
    """Say that the delivery that sealed the key was acknowledged, and the key does not say how it ended."""
    ends = {end for done in view.facts.done for end in done.result.statuses} - {End.FILTERED.value}
    key = _key(view.snapshot)
    said = key is not None and len(key) > len(("state", "holder", "until")) and json.loads(key[3])[0]
    return None if not ends or said in ends else f"the key does not say {min(ends)}, but {said or 'nothing'}"


def _not_its_own(view: View) -> str | None:
    """Say that a script has changed a key that held another value, or another holder, than it was told."""
    change = _rows(view.snapshot).get(CHANGED)
    if change is None:
        return None
    found, told = (str(change.properties[name]) for name in ("Found", "Told"))
    return None if told in {found, found.split(" ")[1]} else f"{told} changed what was {found}"


def _held_again(view: View) -> str | None:
    """Say that a delivery holds the key which another has held since it did: no delivery takes the key twice."""
    holders = [holder for holder, _ in groupby(holder for _, (holder, _) in view.facts.committed)]
    again = [holder for at, holder in enumerate(holders) if holder in holders[:at]]
    return f"{again[0]} holds what another has held since" if again else None


def _still_locked(view: View) -> str | None:
    key = _key(view.snapshot)
    is_locked = key is None or int(key[0]) == KeyState.LOCKED
    return "all is done, and it is not sealed" if view.is_quiescent and is_locked else None


def _key(snapshot: Snapshot) -> list[str] | None:
    """Return the words of the only key's value: state, holder, until when, and how it ended."""
    found = [row for key, row in _rows(snapshot).items() if key != CHANGED]
    return str(found[0].properties["Value"]).split(" ", 3) if found else None


def _rows(snapshot: Snapshot) -> Rows:
    return snapshot.tables.get(REDIS, {}).get(REDIS, {})


SENT = Invariant("SentOrSaid", _neither)
RECORDED = Invariant("Recorded", _unrecorded)
CHANGED_BY_ITS_HOLDER = Invariant("ChangedByItsHolder", _not_its_own)
HELD_IN_TURN = Invariant("HeldInTurn", _held_again)
"""Without lost answers: a request that takes effect late may put a key of a delivery that has ended."""
SEALED = Invariant("NoGarbage", _still_locked)

AT_MOST_ONCE = (SENT_ONCE, CHANGED_BY_ITS_HOLDER, RECORDED)
AT_LEAST_ONCE = (SENT, CHANGED_BY_ITS_HOLDER, SEALED)
IN_TURN = (*AT_LEAST_ONCE, HELD_IN_TURN)

"""Delivery: copies of one message on their way to a customer, over a last hop that takes part in no transaction.

A copy that finds the lock of another waits until it has expired, whatever the other does meanwhile.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from itertools import count
from typing import Any, NamedTuple

import pytest

from eventstore import Row, StoreUnavailableError
from runtime.algorithms.last_hop.delivery import End, IdempotentDelivery
from runtime.algorithms.last_hop.keys import DeliveryKeys, Keys, KeyState
from runtime.algorithms.last_hop.settings import DeliverySettings
from tests.model.calls import SteppedTable, publish
from tests.model.contents import Rows, Snapshot
from tests.model.facts import Invariant, View
from tests.model.histories import Job
from tests.model.processes import Process
from tests.model.scenarios.state_based import PATIENCE
from tests.model.versions import Handled

KEYS = "keys"
_CUSTOMER, _MESSAGE = "17", "m"
_RECORD = "REC-"
SENDING_AT_LEAST_ONCE = DeliverySettings(frozenset({_CUSTOMER}), lock_limit=timedelta(hours=1))


class Sent(NamedTuple):
    """What was sent: by which process, and how often it had tried before."""

    process: str
    before: int


@dataclass(frozen=True, slots=True)
class DeliveryScenario:
    """Copies of a message for one customer wait in a queue."""

    name: str
    jobs: Sequence[Job]
    invariants: Sequence[Invariant]
    earlier: Sequence[Job] = ()

    def committed(self, snapshot: Snapshot) -> Mapping[Hashable, Any]:
        """Return who holds the key."""
        key = _key(snapshot)
        return {} if key is None else {"key": key.properties["Holder"]}

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Leave all limits as they are."""


def at_least_once(copies: int = 1, invariants: Sequence[Invariant] | None = None) -> DeliveryScenario:
    """Return the scenario of a customer to whom a message is sent at least once."""
    return _deliveries("at least once", SENDING_AT_LEAST_ONCE, copies, invariants or AT_LEAST_ONCE)


def at_most_once(copies: int = 1, invariants: Sequence[Invariant] | None = None) -> DeliveryScenario:
    """Return the scenario of a customer to whom a message is sent at most once."""
    return _deliveries("at most once", DeliverySettings(), copies, invariants or AT_MOST_ONCE)


def _deliveries(
    promise: str, settings: DeliverySettings, copies: int, invariants: Sequence[Invariant]
) -> DeliveryScenario:
    name = f"delivery {promise}: {copies} cop{'ies' if copies > 1 else 'y'}"
    return DeliveryScenario(name, [Job("m", partial(_deliver, settings), copies)], invariants)


async def _deliver(settings: DeliverySettings, process: Process) -> Handled:
    return await delivered(DeliveryKeys(SteppedTable(KEYS)), settings, process)


async def delivered(keys: Keys, settings: DeliverySettings, process: Process) -> Handled:
    """Deliver the message until it is known how it ended, and say how."""
    delivery = IdempotentDelivery(
        keys,
        settings,
        is_transient=lambda error: isinstance(error, StoreUnavailableError),
        clock=process.clock,
        new_id=process.draw_id,
        retries=PATIENCE,
    )
    for before in count():
        send = partial(publish, Sent(process.name, before))
        done = await delivery.deliver(_CUSTOMER, _MESSAGE, send)
        if done.is_done:
            return Handled((), (done.end.value,))
        process.wait_until(done.try_again_at or 0)
    raise AssertionError("Nobody counts so far.")


def _sent_twice(view: View) -> str | None:
    sent = len(view.facts.published)
    return f"it was sent {sent} times" if sent > 1 else None


def _neither(view: View) -> str | None:
    """Say that all is done, and it was not sent, nor is there a record that says why."""
    if not view.is_quiescent or view.facts.published or End.NOT_SENT.value in _ends(view):
        return None
    return "it was not sent, and nothing says so"


def _unrecorded(view: View) -> str | None:
    """Say that a delivery was acknowledged of whose end there is no record."""
    ends = _ends(view)
    missing = [end for done in view.facts.done for end in done.result.statuses if end not in ends]
    return f"there is no record that says {missing[0]}" if missing else None


def _taken_away(view: View) -> str | None:
    """Say that the key is gone, and the one who held it last has not ended: who unlocks leaves a record with it."""
    holders = [holder for _, holder in view.facts.committed]
    if not holders or _key(view.snapshot) is not None or f"{_RECORD}{holders[-1]}" in _rows(view.snapshot):
        return None
    return f"somebody else unlocked what {holders[-1]} holds"


def _still_locked(view: View) -> str | None:
    key = _key(view.snapshot)
    is_locked = key is not None and key.properties["Value"] == KeyState.LOCKED
    return "all is done, and it is still locked" if view.is_quiescent and is_locked else None


def _ends(view: View) -> set[object]:
    """Return which ends are recorded."""
    return {row.properties["End"] for key, row in _rows(view.snapshot).items() if key.startswith(_RECORD)}


def _key(snapshot: Snapshot) -> Row | None:
    return next((row for key, row in _rows(snapshot).items() if not key.startswith(_RECORD)), None)


def _rows(snapshot: Snapshot) -> Rows:
    """Return the rows of the only customer."""
    return next(iter(snapshot.tables.get(KEYS, {}).values()), {})


SENT_ONCE = Invariant("SentOnce", _sent_twice)
SENT_OR_SAID = Invariant("SentOrSaid", _neither)
RECORDED = Invariant("Recorded", _unrecorded)
UNLOCKED_BY_ITS_HOLDER = Invariant("UnlockedByItsHolder", _taken_away)
NOT_LOCKED = Invariant("NoGarbage", _still_locked)

AT_MOST_ONCE = (SENT_ONCE, RECORDED)
AT_LEAST_ONCE = (SENT_OR_SAID, RECORDED, UNLOCKED_BY_ITS_HOLDER, NOT_LOCKED)

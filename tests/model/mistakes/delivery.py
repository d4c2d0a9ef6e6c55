"""Mistakes of the last hop: keys that are taken too late, kept too short, or taken away from others."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventstore import ANY_ETAG, Verb
from runtime.algorithms.last_hop.delivery import Delivered, End, IdempotentDelivery
from runtime.algorithms.last_hop.keys import DeliveryKeys
from tests.model.calls import SteppedTable
from tests.model.mistakes.mistake import Mistake
from tests.model.scenarios.delivery import NOT_LOCKED, SENT_OR_SAID, at_least_once, at_most_once
from tests.model.world import Bounds


def _sent_first(patch: pytest.MonkeyPatch) -> None:
    at_most_once: Any = IdempotentDelivery.at_most_once

    async def send_and_register(self: Any, key: Any, name: Any, send: Any) -> Any:
        delivered = await self.send(send)

        async def send_nothing() -> None:
            """Leave it, as it is sent."""

        await at_most_once(self, key, name, send_nothing)
        return delivered

    patch.setattr(IdempotentDelivery, "at_most_once", send_and_register)


def _put_over_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    transact: Any = SteppedTable.transact

    async def transact_anyway(self: Any, key: Any, operations: Any) -> Any:
        anyway = [replace(each, verb=_ANYWAY.get(each.verb, each.verb)) for each in operations]
        return await transact(self, key, anyway)

    patch.setattr(SteppedTable, "transact", transact_anyway)


def _sealed_first(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(IdempotentDelivery, "at_least_once", IdempotentDelivery.at_most_once)


def _locked_means_done(patch: pytest.MonkeyPatch) -> None:
    deliver: Any = IdempotentDelivery.deliver

    async def deliver_or_leave(self: Any, *given: Any) -> Delivered:
        delivered: Delivered = await deliver(self, *given)
        return delivered._replace(try_again_at=None) if delivered.end is End.LOCKED else delivered

    patch.setattr(IdempotentDelivery, "deliver", deliver_or_leave)


def _unlocked_by_whoever(patch: pytest.MonkeyPatch) -> None:
    end: Any = DeliveryKeys.end

    async def end_anyway(self: Any, key: Any, held: Any, *given: Any) -> Any:
        return await end(self, key, held and held._replace(etag=ANY_ETAG), *given)

    patch.setattr(DeliveryKeys, "end", end_anyway)


def _filtered_in_silence(patch: pytest.MonkeyPatch) -> None:
    async def filtered(*_: object) -> Delivered:
        return Delivered(End.FILTERED)

    patch.setattr(IdempotentDelivery, "filtered", filtered)


def _never_sealed(patch: pytest.MonkeyPatch) -> None:
    async def close(self: Any, key: Any, name: Any, _: Any, delivered: Any) -> None:
        await self.record(key, name, delivered)

    patch.setattr(IdempotentDelivery, "close", close)


_ANYWAY = {Verb.INSERT: Verb.INSERT_OR_REPLACE}
_CALM, _CRASH = Bounds(), Bounds(1, 1)

MISTAKES = (
    Mistake("delivery: sent before the key is registered", _sent_first, at_most_once(), _CRASH, "SentOnce"),
    Mistake(
        "delivery: the key overwrites another",
        _put_over_whatever_is_there,
        at_most_once(2),
        _CALM,
        "SentOnce",
    ),
    Mistake("delivery: sealed before it is sent", _sealed_first, at_least_once(), _CRASH, "SentOrSaid"),
    Mistake(
        "delivery: a copy that finds a lock is acknowledged",
        _locked_means_done,
        at_least_once(2, [SENT_OR_SAID]),
        Bounds(2, 2),
        "SentOrSaid",
    ),
    Mistake(
        "delivery: unlocked by a former holder",
        _unlocked_by_whoever,
        at_least_once(2),
        Bounds(2, losses=1, late_writes=False),
        "UnlockedByItsHolder",
    ),
    Mistake(
        "delivery: a filtered delivery leaves no record",
        _filtered_in_silence,
        at_most_once(2),
        _CALM,
        "Recorded",
    ),
    Mistake(
        "delivery: never sealed", _never_sealed, at_least_once(invariants=[NOT_LOCKED]), _CALM, "NoGarbage"
    ),
)

"""Mistakes of truncation: what it remembers, in which order it deletes, and what it must leave alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from eventstore import ANY_ETAG, Operation, Stream
from eventstore import writing as event_truncation
from eventstore.writing import transact
from runtime.algorithms.algorithm import publish_all
from runtime.algorithms.state_based import truncation
from runtime.algorithms.state_based.algorithm import StateBasedOneByOne
from runtime.algorithms.state_based.truncation import Plan, TruncationRules
from runtime.ledger.batch import OpenBatches
from tests.model.mistakes.mistake import Mistake
from tests.model.scenarios.batches import ONE_TOKEN, task
from tests.model.scenarios.state_based import RUNS, StateBasedScenario, deliver
from tests.model.scenarios.truncation import (
    OLD,
    SMALL_STEPS,
    at_that_time,
    consume,
    consumed_beside,
    long_ago,
    old,
    truncate,
    truncated_beside,
)
from tests.model.scribe import write
from tests.model.world import Bounds


def _no_horizon(patch: pytest.MonkeyPatch) -> None:
    moved: Any = truncation._moved
    patch.setattr(
        truncation, "_moved", lambda head, *given: moved(head, *given)._replace(horizon=head.horizon)
    )


def _horizon_after_the_delete(patch: pytest.MonkeyPatch) -> None:
    cut: Any = Plan.carry_out

    async def cut_and_move(plan: Any) -> None:
        await cut(replace(plan, head=plan.head._replace(horizon=None)))
        now = await Stream.open(plan.stream.partition)
        horizon = plan.head.properties()["Horizon"]
        await Stream.set_properties(now, {**(now.properties or {}), "Horizon": horizon})

    patch.setattr(Plan, "carry_out", cut_and_move)


def _horizon_goes_back(patch: pytest.MonkeyPatch) -> None:
    moved: Any = truncation._moved
    patch.setattr(truncation, "_moved", lambda head, *given: moved(head._replace(horizon=None), *given))


def _any_batch_may_go(patch: pytest.MonkeyPatch) -> None:
    holder: Any = TruncationRules.holder
    patch.setattr(
        TruncationRules,
        "holder",
        lambda self, run: holder(replace(self, open_batches=OpenBatches(2)), run),
    )


def _cut_whatever_is_there(patch: pytest.MonkeyPatch) -> None:
    async def truncate_any(stream: Any, *given: Any) -> Stream:
        return await event_truncation.truncate(replace(stream, etag=ANY_ETAG), *_filled(*given))

    patch.setattr(Stream, "truncate", truncate_any)


def _filled(
    first_version: int, properties: Any = None, includes: Any = (), rows: Any = None
) -> tuple[Any, ...]:
    return first_version, properties, includes, rows


def _rows_go_first(patch: pytest.MonkeyPatch) -> None:
    delete: Any = event_truncation._delete

    async def delete_rows_first(
        partition: Any, header: Any, mark: Any, doomed: Any, includes: Any = ()
    ) -> str:
        for row_key in doomed:
            await transact(partition, [Operation.delete(row_key)])
        etag: str = await delete(partition, header, mark, (), includes)
        return etag

    patch.setattr(event_truncation, "_delete", delete_rows_first)


def _single_messages_count_as_acknowledged(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TruncationRules, "is_acknowledged", lambda *_: True)


def _open_epochs_count_as_ended(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(OpenBatches, "is_finished", lambda self, _, number: number is None or number < self.next)


def _ended_before_published(patch: pytest.MonkeyPatch) -> None:
    process: Any = StateBasedOneByOne.process

    async def end_and_publish(self: Any, message: Any, **named: Any) -> Any:
        if self.epochs is None:
            return await process(self, message, **named)
        epoch = await self.epochs.enter()
        numbered = self.algorithm.on_behalf_of(replace(self.algorithm.batch, number=epoch.number))
        (outcome,) = await numbered.process(message.business_id, [message])
        await self.epochs.leave(epoch, None)
        await self.epochs.flush()
        await publish_all(self.algorithm.table, self.publish, outcome.outputs)
        return outcome

    patch.setattr(StateBasedOneByOne, "process", end_and_publish)


def _nobody_cleans_up(patch: pytest.MonkeyPatch) -> None:
    cut: Any = Stream.truncate

    async def truncate_once(stream: Any, first_version: int, properties: Any, *given: Any) -> Any:
        return await cut(stream, first_version, properties, *given) if properties else stream

    patch.setattr(Stream, "truncate", truncate_once)


LATE = truncated_beside("a late copy beside truncation", deliver(old("a")), earlier=long_ago("a", "b"))
LATE_IN_ROWS = truncated_beside(
    "a late copy beside truncation, each version in a row",
    deliver(old("a")),
    earlier=long_ago("a", "b"),
    limits=RUNS,
)
_NEW = truncated_beside("a message beside truncation", deliver(write("x")), earlier=long_ago("a", "b"))
IN_STEPS = truncated_beside(
    "truncation in small steps, each version in a row",
    deliver(write("x")),
    earlier=long_ago("a", "b", "c"),
    limits=[*RUNS, *SMALL_STEPS],
)
TWICE = StateBasedScenario(
    "truncated twice, beside a late copy",
    [truncate(keep_last=2)._replace(name="truncate-2"), truncate(keep_last=1), deliver(old("c"))],
    long_ago("c", "b", "d"),
    limits=ONE_TOKEN,
)
UNPUBLISHED = truncated_beside(
    "an unpublished batch beside truncation",
    task("batch-1", old("a"), now=OLD),
    deliver(write("x")),
    earlier=[],
)
DIED = consumed_beside(
    "a single message whose worker died beside truncation", *long_ago("a"), deliver(write("x"))
)
CONSUMED = consumed_beside(
    "a single message that its consumer acknowledges beside truncation",
    *at_that_time([consume(old("a"))]),
    deliver(write("x")),
)
_CALM, _CRASH, _TWO_AND_CRASH = Bounds(), Bounds(crashes=1), Bounds(2, crashes=1)

MISTAKES = (
    Mistake(
        "single messages count as acknowledged",
        _single_messages_count_as_acknowledged,
        DIED,
        _TWO_AND_CRASH,
        "DoneWhenAcknowledged",
    ),
    Mistake(
        "an epoch that is open counts as ended",
        _open_epochs_count_as_ended,
        CONSUMED,
        Bounds(1, crashes=1),
        "DoneWhenAcknowledged",
    ),
    Mistake(
        "an epoch ends before the outputs are published",
        _ended_before_published,
        CONSUMED,
        Bounds(1, crashes=1),
        "DoneWhenAcknowledged",
    ),
    Mistake("the horizon is not moved", _no_horizon, LATE, _CALM, "AtMostOneStateChange"),
    Mistake(
        "the horizon is moved after the delete",
        _horizon_after_the_delete,
        LATE_IN_ROWS,
        _CALM,
        "AtMostOneStateChange",
    ),
    Mistake("the horizon goes back", _horizon_goes_back, TWICE, _CALM, "AtMostOneStateChange"),
    Mistake(
        "an unpublished batch is truncated", _any_batch_may_go, UNPUBLISHED, Bounds(1, crashes=1), "NoLost"
    ),
    Mistake("truncated without checking the ETag", _cut_whatever_is_there, _NEW, _CALM, "NoLostUpdate"),
    Mistake("rows are deleted before the watermark moves", _rows_go_first, IN_STEPS, _CALM, "Readable"),
    Mistake("nothing is cleaned up after a crash", _nobody_cleans_up, IN_STEPS, _CRASH, "NoGarbage"),
)

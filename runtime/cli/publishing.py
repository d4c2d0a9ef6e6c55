"""Publishing a batch from the command line: by `consistent publish`, and with `--publish` of `run` and `stream`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from eventstore import Table
from runtime.batches.ledger import Ledger
from runtime.cli.console import notes
from runtime.cli.places import Place
from runtime.cli.progress import StepProgress
from runtime.cli.publishing_options import Sending, listed, settings_of
from runtime.cli.senders import load_sender
from runtime.cli.stores import on_table
from runtime.clock import system_clock
from runtime.errors import MissingExtraError, TargetError, UsageError

if TYPE_CHECKING:
    from runtime.publishing.publisher import Target, TargetOptions
    from runtime.publishing.runner import Published, PublishOptions
    from runtime.spark.sessions.session import Session

T = TypeVar("T")

_MICROSECOND = timedelta(microseconds=1)
_SQLITE = "sqlite:///"


@dataclass(frozen=True)
class Publishing:
    """A target that was found before any work on the batch that is published to it."""

    to: str = field(repr=False)
    """Its url, which may hold a secret."""
    batch_id: str
    states: Place
    of_target: TargetOptions
    options: PublishOptions
    target: Target


def find_target(to: str, batch_id: str, states: Place, sending: Sending) -> Publishing:
    """Find the target of a url. Raises `UsageError` and `MissingExtraError`."""
    try:
        from runtime.publishing.publisher import TargetOptions
        from runtime.publishing.runner import PublishOptions
        from runtime.publishing.targets.choice import is_function, open_target, resolved
    except ModuleNotFoundError as error:
        message = f"Publishing needs {error.name}: pip install 'consistent-messaging[spark]'."
        raise MissingExtraError(message) from error
    to = resolved(to)
    of_target = TargetOptions(
        names=_pairs("--map", sending.map),
        batch_id=batch_id,
        concurrency=sending.concurrency,
        rate=sending.rate,
        timeout=sending.timeout * _MICROSECOND,
        attempts=sending.attempts,
        headers={name: resolved(value) for name, value in _pairs("--header", sending.header).items()},
        window=sending.duplicate_window * _MICROSECOND,
    )
    if is_function(to):
        of_target = replace(
            of_target,
            send=load_sender(to),
            settings=settings_of(sending.strategy, os.environ),
            customer=sending.customer,
            keys=resolved(sending.keys) if sending.keys else states.store,
            keys_table="deliveries" if sending.keys else states.table,
        )
    options = PublishOptions(
        types=listed(sending.types),
        slices=sending.slices,
        concurrency=sending.concurrency,
        attempts=sending.attempts,
        lease=sending.lease * _MICROSECOND,
        take_over=sending.take_over,
        force=sending.force,
    )
    target = open_target(to, of_target)
    store = states.store
    if (
        store.startswith(_SQLITE)
        and target.name == f"{_SQLITE}{Path(store.removeprefix(_SQLITE)).absolute()}"
    ):
        raise UsageError("The target is the store itself: publish to a file of its own.")
    return Publishing(to, batch_id, states, of_target, options, target)


def work_here(found: Publishing, doing: str, out: str | None, work: Callable[..., Awaitable[T]]) -> T:
    """Publish or redrive in this process, with progress. Raises `TargetError` when not all could be sent."""
    tell_of_keys(found)
    progress = StepProgress(notes())
    progress.step(f"{doing} {found.target.name}, {found.target.promise}")

    async def done(table: Table) -> T:
        record = await Ledger(table, system_clock).get(found.batch_id)
        folder, show = out or record.out, progress.show_outputs
        return await work(table, record, folder, found.target, found.options, show=show)

    try:
        with _resumable():
            result = on_table(*found.states, done)
    except BaseException:
        progress.failed()
        raise
    progress.done()
    return result


def publish_on(found: Publishing, spark: Session, out: str | None, progress: StepProgress) -> Published:
    """Publish what is unpublished, as tasks of Spark. Raises `TargetError` when not all could be sent."""
    from runtime.spark.publishing import publish

    tell_of_keys(found)
    progress.step(f"Publishing batch {found.batch_id} to {found.target.name}, {found.target.promise}")
    with _resumable():
        return publish(
            spark,
            found.batch_id,
            found.to,
            store=found.states.store,
            table=found.states.table,
            out=out,
            target=found.of_target,
            options=found.options,
            show=progress.show_outputs,
        )


def tell_of_keys(found: Publishing) -> None:
    """Say what a Redis may forget that keeps the keys. Raises `UsageError` when it does not answer."""
    from runtime.publishing.key_stores import weaknesses

    of_target = found.of_target
    for remark in asyncio.run(weaknesses(of_target.keys, of_target.keys_table)):
        notes().print(remark, soft_wrap=True)


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except TargetError as error:
        message = f"{error} What was sent stays sent, and the same command goes on with the rest."
        raise TargetError(message) from error


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """Return what an option says of some names. Raises `UsageError` for what is no NAME=VALUE."""
    found: dict[str, str] = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not name or not equals or not value:
            raise UsageError(f"{option} is written NAME=VALUE, not {pair!r}.")
        found[name.strip()] = value.strip()
    return found

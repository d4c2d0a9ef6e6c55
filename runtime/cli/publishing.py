"""Publishing a batch from the command line: by `consistent publish`, and with `--publish` of `run` and `stream`."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from eventstore import Table
from runtime.batches.ledger import Ledger
from runtime.cli.console import notes
from runtime.cli.places import Place
from runtime.cli.progress import StepProgress
from runtime.cli.publishing_options import Sending, listed
from runtime.cli.senders import load_sender
from runtime.cli.stores import on_table
from runtime.clock import system_clock
from runtime.errors import MissingExtraError, TargetError, UsageError

if TYPE_CHECKING:
    from runtime.publishing.publisher import Target
    from runtime.publishing.redriving import Redriven
    from runtime.publishing.runner import Published, PublishOptions
    from runtime.publishing.slices import CommittedOutput
    from runtime.publishing.targets.options import TargetOptions
    from runtime.spark.sessions.session import Session

T = TypeVar("T")

_MICROSECOND = timedelta(microseconds=1)


@dataclass(frozen=True)
class Publishing:
    """A target that was found, before any work on the batch that is published to it. `to` may hold a secret."""

    to: str = field(repr=False)
    batch_id: str
    sending: Sending
    of_target: TargetOptions
    target: Target

    @classmethod
    def check(cls, to: str, batch_id: str, sending: Sending) -> Publishing:
        """Find the target of a url. Raises `UsageError` and `MissingExtraError`."""
        try:
            from runtime.publishing.publisher import Promise
            from runtime.publishing.targets.choice import is_function, open_target, resolved
            from runtime.publishing.targets.options import TargetOptions
        except ModuleNotFoundError as error:
            message = f"Publishing needs {error.name}: pip install 'consistent-messaging[spark]'."
            raise MissingExtraError(message) from error
        to = resolved(to)
        headers = {name: resolved(value) for name, value in _pairs("--header", sending.header).items()}
        options = TargetOptions(
            names=_pairs("--map", sending.map),
            batch_id=batch_id,
            concurrency=sending.concurrency,
            rate=sending.rate,
            timeout=sending.timeout * _MICROSECOND,
            attempts=sending.attempts,
            headers=headers,
            send=_send_with(to, batch_id) if is_function(to) else None,
            strategy=Promise[sending.strategy.name] if sending.strategy else None,
            window=sending.duplicate_window * _MICROSECOND,
        )
        return cls(to, batch_id, sending, options, open_target(to, options))

    def done_here(self, states: Place, out: str | None) -> Published:
        """Publish what is unpublished, in this process. Raises `TargetError` when not all could be sent."""
        from runtime.publishing.runner import publish

        return self._here(states, f"Publishing batch {self.batch_id} to", out, publish)

    def redriven(self, states: Place, out: str | None) -> Redriven:
        """Send again what the target has refused. Raises as `done_here` does."""
        from runtime.publishing.redriving import redrive

        return self._here(states, f"Sending again what was refused of batch {self.batch_id} by", out, redrive)

    def letters(self, states: Place) -> Redriven:
        """Return what the target has refused, and send nothing."""
        from runtime.publishing.redriving import letters

        async def found(table: Table) -> Redriven:
            record = await Ledger(table, system_clock).get(self.batch_id)
            return await letters(table, record, self.target, self.options.types)

        return on_table(*states, found)

    def done_on(
        self, spark: Session, states: Place, out: str | None, progress: StepProgress | None = None
    ) -> Published:
        """Publish what is unpublished, as tasks of Spark. Raises `TargetError` when not all could be sent."""
        from runtime.spark.publishing import publish

        self._check_file(states)
        if progress is not None:
            progress.step(self._sentence(f"Publishing batch {self.batch_id} to"))
        with _resumable():
            return publish(
                spark,
                self.batch_id,
                self.to,
                store=states.store,
                table=states.table,
                out=out,
                target=self.of_target,
                options=self.options,
            )

    @property
    def options(self) -> PublishOptions:
        """How the batch is published."""
        from runtime.publishing.runner import PublishOptions

        sending = self.sending
        return PublishOptions(
            types=listed(sending.types),
            slices=sending.slices,
            concurrency=sending.concurrency,
            attempts=sending.attempts,
            lease=sending.lease * _MICROSECOND,
            take_over=sending.take_over,
            force=sending.force,
        )

    def _sentence(self, doing: str) -> str:
        return f"{doing} {self.target.name}, {self.target.promise}"

    def _here(self, states: Place, doing: str, out: str | None, work: Callable[..., Awaitable[T]]) -> T:
        self._check_file(states)
        progress = StepProgress(notes())
        progress.step(self._sentence(doing))

        async def done(table: Table) -> T:
            record = await Ledger(table, system_clock).get(self.batch_id)
            folder, show = out or record.out, progress.show_outputs
            return await work(table, record, folder, self.target, self.options, show=show)

        try:
            with _resumable():
                found = on_table(*states, done)
        except BaseException:
            progress.failed()
            raise
        progress.done()
        return found

    def _check_file(self, states: Place) -> None:
        """Raise `UsageError` when the target is the file of the store: a slice would lock out its own record."""
        store, name = states.store, self.target.name
        prefix = "sqlite:///"
        if store.startswith(prefix) and f"{prefix}{Path(store.removeprefix(prefix)).absolute()}" == name:
            raise UsageError("The target is the store itself: publish to a file of its own.")


@dataclass(frozen=True)
class EpochPublishing:
    """Publishes the epochs of a stream, each as the batch that it is."""

    to: str = field(repr=False)
    states: Place
    sending: Sending

    def __call__(self, spark: Session, batch_id: str, out: str) -> None:
        """Publish what is unpublished of an epoch. Raises `TargetError` when not all could be sent."""
        Publishing.check(self.to, batch_id, self.sending).done_on(spark, self.states, out)


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except TargetError as error:
        message = f"{error} What was sent stays sent, and the same command goes on with the rest."
        raise type(error)(message) from error


def _send_with(sender_name: str, batch_id: str) -> Callable[[CommittedOutput], object]:
    """Return what gives outputs to a sender, as messages of a delivery: it serves `consistent deliver` too."""
    from runtime.delivery.outgoing import DEFAULT_CUSTOMER, OutgoingMessage

    sender = load_sender(sender_name)

    def send(output: CommittedOutput) -> object:
        body = json.loads(output.body)
        message = OutgoingMessage(
            output.message_id, output.type, body, DEFAULT_CUSTOMER, output.headers, batch_id
        )
        return sender(message)

    return send


def _pairs(option: str, given: Sequence[str] | None) -> dict[str, str]:
    """Return what an option says of some names. Raises `UsageError` for what is no NAME=VALUE."""
    found: dict[str, str] = {}
    for pair in given or ():
        name, equals, value = pair.partition("=")
        if not name or not equals or not value:
            raise UsageError(f"{option} is written NAME=VALUE, not {pair!r}.")
        found[name.strip()] = value.strip()
    return found

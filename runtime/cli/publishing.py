"""Publishing a batch from the command line: by `consistent publish`, and at the end of `consistent run --publish`."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

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
    from runtime.publishing.runner import Published, PublishOptions
    from runtime.publishing.slices import CommittedOutput
    from runtime.publishing.targets.options import TargetOptions
    from runtime.spark.sessions.session import Session

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
        """Publish what is not out yet, in this process. Raises `TargetError` when not all could be sent."""
        self._check_file(states)
        progress = StepProgress(notes())
        progress.step(self._sentence)
        try:
            with _resumable():
                found = on_table(*states, lambda table: self._publish(table, out, progress))
        except BaseException:
            progress.failed()
            raise
        progress.done()
        return found

    def done_on(
        self, spark: Session, states: Place, out: str | None, progress: StepProgress | None = None
    ) -> Published:
        """Publish what is not out yet, as tasks of Spark. Raises `TargetError` when not all could be sent."""
        from runtime.spark.publishing import publish

        self._check_file(states)
        if progress is not None:
            progress.step(self._sentence)
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
                show=None if progress is None else progress.show_outputs,
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

    @property
    def _sentence(self) -> str:
        return f"Publishing batch {self.batch_id} to {self.target.name}, {self.target.promise}"

    async def _publish(self, table: Table, out: str | None, progress: StepProgress) -> Published:
        from runtime.publishing.runner import publish

        record = await Ledger(table, system_clock).get(self.batch_id)
        show = progress.show_outputs
        return await publish(table, record, out or record.out, self.target, self.options, show=show)

    def _check_file(self, states: Place) -> None:
        """Raise `UsageError` when the target is the file of the store: a slice would lock out its own record."""
        store, name = states.store, self.target.name
        prefix = "sqlite:///"
        if store.startswith(prefix) and f"{prefix}{Path(store.removeprefix(prefix)).absolute()}" == name:
            raise UsageError("The target is the store itself: publish to a file of its own.")


@contextmanager
def _resumable() -> Iterator[None]:
    try:
        yield
    except TargetError as error:
        message = f"{error} What is out stays out, and the same command goes on with the rest."
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

"""`consistent deliver`: send what batches published to customers, each at most once or at least once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING

import typer

from runtime.cli.console import Screen, notes
from runtime.cli.delivered_batches import DeliveredBatches
from runtime.cli.delivery_options import (
    Customer,
    DryRun,
    KeysTable,
    KeysUrl,
    PolicyOptions,
    Records,
    SenderSpec,
    WithStrategy,
    settings_of,
)
from runtime.cli.failures import INTERRUPTED, TERMINATED
from runtime.cli.options import AsJson
from runtime.cli.progress import StepProgress
from runtime.cli.senders import load_sender

if TYPE_CHECKING:
    from runtime.delivery import DeliveryRecord, Result

_EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


def deliver(
    *,
    sender: SenderSpec,
    keys: KeysUrl,
    records: Records,
    delivered: DeliveredBatches,
    strategy: WithStrategy = None,
    customer: Customer = None,
    keys_table: KeysTable = "deliveries",
    patience: PolicyOptions,
    dry_run: DryRun = False,
    as_json: AsJson = False,
) -> None:
    r"""Send what batches published to customers who take part in no transaction: mail, push, a web service.

        consistent deliver --outcomes outcomes --sender post:send \
            --strategy at-most-once --customer name \
            --keys sqlite:///keys.db --records records

    The sender is your function. It raises TransientError, TimeoutError or ConnectionError when another attempt may
    succeed, PermanentError when none will. A key for each customer and message says what was sent, and --records gets a
    record of each message: sent, not_sent with the reason, unknown, or filtered, as it was sent before. After a crash
    run the command again, with the same records and keys; so too after Ctrl-C, which waits for what is being sent.
    """
    settings, policy = settings_of(strategy, os.environ), patience.policy()
    policy.check(settings)
    send = load_sender(sender)
    screen = Screen(as_json)
    batches = delivered.find(screen)

    from runtime.cli.reports.delivery import DeliveryReport, DryRunReport
    from runtime.delivery import deliver as deliver_messages
    from runtime.delivery.outgoing import messages_of
    from runtime.delivery.records import RecordFiles

    messages = chain.from_iterable(messages_of(batch_id, outputs, customer) for batch_id, outputs in batches)
    if dry_run:
        screen.put(DryRunReport.of(messages, settings, RecordFiles.open(records).finals()))
        return
    run = _Run(StepProgress(notes(), keep_steps=False), screen)
    start = partial(
        deliver_messages,
        messages,
        send,
        keys=keys,
        keys_table=keys_table,
        records=records,
        settings=settings,
        policy=policy,
    )
    counts = asyncio.run(run.deliver(start))
    screen.put(DeliveryReport(counts, RecordFiles.open(records).counts(), records))
    if run.stopped_by is not None:
        screen.note("Stopped. What was sent is recorded: run the command again to go on.")
        raise typer.Exit(_EXIT_CODES[run.stopped_by])


class _Run:
    """A delivery that shows how far it is, and ends in good order on Ctrl-C and SIGTERM."""

    def __init__(self, progress: StepProgress, screen: Screen) -> None:
        self.stopped_by: signal.Signals | None = None
        self._progress = progress
        self._screen = screen
        self._done = 0

    async def deliver(self, start: Callable[..., Awaitable[Counter[Result]]]) -> Counter[Result]:
        """Start a delivery, see it to its end, and return the counts of its results."""
        stopped = asyncio.Event()
        loop = asyncio.get_running_loop()
        for each in _EXIT_CODES:
            loop.add_signal_handler(each, self._stop, each, stopped)
        try:
            self._progress.step("Delivering")
            return await start(on_record=self._count, on_remark=self._screen.note, stopped=stopped)
        finally:
            self._progress.done()
            for each in _EXIT_CODES:
                loop.remove_signal_handler(each)

    def _count(self, _: DeliveryRecord) -> None:
        self._done += 1
        self._progress.show_count(self._done, "messages")

    def _stop(self, by: signal.Signals, stopped: asyncio.Event) -> None:
        self.stopped_by = by
        stopped.set()

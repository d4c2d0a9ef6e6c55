"""`consistent deliver`: send what batches published to customers, each at most once or at least once."""

from __future__ import annotations

import asyncio
import os
import signal
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import typer

from runtime.batches.ledger import Ledger
from runtime.batches.record import BatchStatus
from runtime.cli.console import Screen, notes
from runtime.cli.delivery_options import (
    BatchId,
    Customer,
    DryRun,
    KeysTable,
    KeysUrl,
    LedgerStore,
    LedgerTable,
    Outcomes,
    PolicyOptions,
    Records,
    SenderSpec,
    Types,
    WithStrategy,
    settings_of,
)
from runtime.cli.failures import INTERRUPTED, TERMINATED, NotPossibleError
from runtime.cli.options import AsJson
from runtime.cli.progress import StepProgress
from runtime.cli.senders import load_sender
from runtime.cli.stores import on_table
from runtime.clock import system_clock
from runtime.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from runtime.delivery import DeliveryRecord, Result

_EXIT_CODES = {signal.SIGINT: INTERRUPTED, signal.SIGTERM: TERMINATED}


def deliver(
    *,
    sender: SenderSpec,
    keys: KeysUrl,
    records: Records,
    outcomes: Outcomes = None,
    batch: BatchId = None,
    store: LedgerStore = None,
    table: LedgerTable = None,
    strategy: WithStrategy = None,
    customer: Customer = None,
    types: Types = None,
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
    published = _published(_place(outcomes, batch, store, table), batch, screen)

    from runtime.cli.reports.delivery import DeliveryReport, DryRunReport
    from runtime.delivery import Selection
    from runtime.delivery import deliver as deliver_messages
    from runtime.delivery.records import RecordFiles

    messages = Selection(types or (), customer).of(published)
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


def _place(outcomes: str | None, batch: str | None, store: str | None, table: str | None) -> str:
    """Return the folder of the outcomes, as it is named, or as the ledger has it for a batch that is published."""
    if outcomes is not None:
        return outcomes
    if batch is None or store is None or table is None:
        message = (
            "Say what is to be delivered: --outcomes DIR, or --batch ID with --store URL and --table NAME."
        )
        raise UsageError(message)
    record = on_table(store, table, lambda opened: Ledger(opened, system_clock).get(batch))
    if record.status is not BatchStatus.PUBLISHED:
        message = (
            f"Batch {batch} is {record.status.value}, not published: run it to its end, then deliver it."
        )
        raise NotPossibleError(message)
    return record.out


def _published(place: str, batch: str | None, screen: Screen) -> Iterator[Mapping[str, Any]]:
    """Give the outputs of the batches in a folder, or of one of them, each once."""
    try:
        from runtime.cli.outcome_files import OutcomeFiles, Wanted
    except ModuleNotFoundError as error:
        message = f"Delivering needs {error.name}: pip install 'consistent-messaging[spark]'."
        raise MissingExtraError(message) from error
    files = OutcomeFiles.open(place, batch, Wanted())
    if files.are_held_back:
        raise NotPossibleError(" ".join(files.remarks()))
    for remark in files.remarks():
        screen.note(remark)
    return files.published()

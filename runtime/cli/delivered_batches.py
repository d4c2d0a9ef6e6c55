"""Which batches are delivered: those of a folder, one of them, or one that a ledger knows."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import groupby
from operator import attrgetter
from typing import TYPE_CHECKING

from runtime.batches.ledger import Ledger
from runtime.cli.console import Screen
from runtime.cli.delivery_options import BatchId, LedgerStore, LedgerTable, Outcomes, Types
from runtime.cli.failures import NotPossibleError
from runtime.cli.publishing_options import listed
from runtime.cli.stores import on_table
from runtime.clock import system_clock
from runtime.errors import MissingExtraError, UsageError

if TYPE_CHECKING:
    from runtime.publishing.outputs import BatchOutputs

    Found = Iterable[tuple[str, BatchOutputs]]
    """Batches and what they published."""


@dataclass(frozen=True)
class DeliveredBatches:
    """What the options say of them."""

    outcomes: Outcomes = None
    batch: BatchId = None
    store: LedgerStore = None
    table: LedgerTable = None
    types: Types = None

    def find(self, screen: Screen) -> Found:
        """Return the batches with their outputs, and say which are left out.

        Raises `UsageError` when the options do not say which, `NotPossibleError` and `BatchRefusedError` when there is
        nothing there that may be delivered, `MissingExtraError` when outcomes cannot be read here.
        """
        try:
            if self.outcomes is not None:
                return self._in_folder(self.outcomes, screen)
            return self._in_ledger()
        except ModuleNotFoundError as error:
            message = f"Delivering needs {error.name}: pip install 'consistent-messaging[spark]'."
            raise MissingExtraError(message) from error

    def _in_ledger(self) -> Found:
        batch, store, table = self.batch, self.store, self.table
        if batch is None or store is None or table is None:
            message = "Say what is to be delivered: --outcomes DIR, or --batch ID with --store URL and --table NAME."
            raise UsageError(message)
        from runtime.publishing.outputs import BatchOutputs

        record = on_table(store, table, lambda opened: Ledger(opened, system_clock).get(batch))
        return [(batch, BatchOutputs.of(record, record.out, listed(self.types)))]

    def _in_folder(self, outcomes: str, screen: Screen) -> Found:
        from runtime.cli.outcome_files import OutcomeFiles, Wanted
        from runtime.publishing.outputs import BatchOutputs

        files = OutcomeFiles.open(outcomes, self.batch, Wanted())
        if files.are_held_back:
            raise NotPossibleError(" ".join(files.remarks()))
        for remark in files.remarks():
            screen.note(remark)
        types = listed(self.types)
        rounds = groupby(files.rounds, key=attrgetter("batch_id"))
        return [(each, BatchOutputs([one.folder for one in found], types)) for each, found in rounds]

"""What commands look at before they start Spark: a batch that cannot begin is refused at once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore import Table, TableNotFoundError, connect
from handlers import App
from runtime.batches.ledger import Ledger
from runtime.batches.record import check_id
from runtime.cli.places import Place
from runtime.cli.stores import begin_on

if TYPE_CHECKING:
    from runtime.batch_options import BatchOptions


def check_batch(
    app: App, states: Place, options: BatchOptions, batch_id: str | None, out: str, *, must_exist: bool
) -> bool:
    """Return whether the table of a batch is there; makes neither it nor its store.

    Raises `UsageError` for what the ledger refuses, and with `must_exist` `TableNotFoundError`.
    """
    from runtime.spark.commit import absolute_folder

    folder = absolute_folder(out)
    if batch_id is not None:
        check_id(batch_id)

    async def check(table: Table) -> None:
        ledger = Ledger(table, options.clock)
        await ledger.check_table(options.described_algorithm(), options.claim(app))
        if batch_id is not None:
            await ledger.check_folder(batch_id, folder)

    if begin_on(*states, check):
        return True
    if must_exist:
        raise TableNotFoundError(states.table, connect(states.store).url)
    return False

"""`consistent-azurite`: this project's batch on Azurite, one query and one transaction for each stream.

Durable as far as the table service is: what it has answered is stored. Azurite runs in memory here, for all
contenders that use it, so that what is measured is the requests and not its file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from benchmarks.azurite import Azurite
from benchmarks.contenders.spark import SparkContender
from benchmarks.contenders.stored import stored_states
from benchmarks.logs import Log
from benchmarks.shooting import TABLE, States
from eventstore import Table
from runtime.spark import run_batch
from samples.shooting_range import app


class ConsistentAzurite(SparkContender):
    """Run a batch of new messages into a new Azurite."""

    durability = "all versions in the table service"
    azurite: Azurite

    def prepare(self, log: Log, folder: Path) -> None:
        """Start an Azurite."""
        super().prepare(log, folder)
        self.azurite = Azurite(folder)

    def work(self) -> None:
        """Run the batch."""
        self.run()

    def run(self, wrap: Callable[[Table], Table] | None = None) -> None:
        """Run the batch with something put around the tables of its workers."""
        run_batch(
            self.spark,
            self.log.path,
            app,
            store=self.azurite.url,
            table=TABLE,
            out=str(self.folder / "out"),
            in_flight=self.setting.in_flight,
            wrap=wrap,
        )

    def states(self) -> States:
        """Read the states from Azurite."""
        return stored_states(self.azurite.url)

    def finish(self) -> None:
        """Stop the Azurite."""
        self.azurite.stop()

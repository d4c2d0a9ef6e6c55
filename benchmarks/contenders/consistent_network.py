"""`consistent-azurite` and `consistent-postgres`: this project's batch on a store on the network.

One query for each stream, and one transaction; on PostgreSQL those of several streams are one. Durable as far as the
store is: what it has answered is stored. Azurite runs in memory here, for all contenders that use it, so that what is
measured is the requests and not its file. PostgreSQL flushes each commit.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path

from benchmarks.azurite import Azurite
from benchmarks.contenders.spark import SparkContender
from benchmarks.contenders.stored import stored_states
from benchmarks.logs import Log
from benchmarks.postgres import OnPostgres
from benchmarks.shooting import TABLE, States
from eventstore import Table
from runtime.spark import run_batch
from samples.shooting_range import app


class ConsistentOnNetwork(SparkContender):
    """Run a batch of new messages into a new store."""

    @property
    @abstractmethod
    def store(self) -> str:
        """The url of the store."""

    def work(self) -> None:
        """Run the batch."""
        self.run()

    def run(self, wrap: Callable[[Table], Table] | None = None) -> None:
        """Run the batch with something put around the tables of its workers."""
        run_batch(
            self.spark,
            self.log.path,
            app,
            store=self.store,
            table=TABLE,
            out=str(self.folder / "out"),
            in_flight=self.setting.in_flight,
            wrap=wrap,
        )

    def states(self) -> States:
        """Read the states from the store."""
        return stored_states(self.store)


class ConsistentAzurite(ConsistentOnNetwork):
    """The same in a new Azurite."""

    durability = "all versions in the table service"
    azurite: Azurite

    def prepare(self, log: Log, folder: Path) -> None:
        """Start an Azurite."""
        super().prepare(log, folder)
        self.azurite = Azurite(folder)

    @property
    def store(self) -> str:
        """The url of the Azurite."""
        return self.azurite.url

    def finish(self) -> None:
        """Stop the Azurite."""
        self.azurite.stop()


class ConsistentPostgres(OnPostgres, ConsistentOnNetwork):
    """The same in a new database."""

    durability = "all versions in PostgreSQL, fsync of each commit"

    def prepare(self, log: Log, folder: Path) -> None:
        """Make a database."""
        super().prepare(log, folder)
        self.make_database()

    @property
    def store(self) -> str:
        """The url of the database."""
        return self.url

    def facts(self) -> Mapping[str, float]:
        """Return the size of the table with its index, and its share of each version."""
        ((size,),) = self.ask(f"SELECT pg_total_relation_size('{TABLE}')")
        return {"table_bytes": size, "bytes_per_version": size / self.log.messages}

"""`consistent`: this project's batch on an SQLite file. `consistent-replay`: the same log once more.

`consistent-verify` compares the log with what the first batch stored, and writes nothing.

Every version with its state, message id, digests and surroundings is stored, one transaction for each stream, and
outcomes are written as Parquet. Durable: a process that dies loses nothing; when the batch is published a commit
with fsync has made all of it survive a power cut.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from benchmarks.contenders.spark import SparkContender
from benchmarks.contenders.stored import stored_states
from benchmarks.logs import Log
from benchmarks.shooting import TABLE, States
from runtime.spark import run_batch, verify
from samples.shooting_range import app


class Consistent(SparkContender):
    """Run a batch of new messages into a new file."""

    durability = "all versions in SQLite, WAL, fsync before publishing"

    def work(self) -> None:
        """Run the batch."""
        self._run("first")

    def states(self) -> States:
        """Read the states from the file."""
        return stored_states(self._url)

    def facts(self) -> Mapping[str, float]:
        """Return the size of the file, and its share of each version, once the log is merged into it."""
        with closing(sqlite3.connect(self._file)) as connection:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        size = self._file.stat().st_size
        return {"file_bytes": size, "bytes_per_version": size / self.log.messages}

    def _run(self, batch_id: str) -> None:
        out = str(self.folder / "out")
        run_batch(self.spark, self.log.path, app, store=self._url, table=TABLE, out=out, batch_id=batch_id)

    @property
    def _file(self) -> Path:
        return self.folder / "store.db"

    @property
    def _url(self) -> str:
        return f"sqlite:///{self._file}"


class ConsistentReplay(Consistent):
    """Run a second batch with the log of the first: every message is a duplicate, handled on the version before."""

    durability = "all versions in SQLite; nothing new to store"

    def prepare(self, log: Log, folder: Path) -> None:
        """Run the first batch."""
        super().prepare(log, folder)
        self._run("first")

    def work(self) -> None:
        """Run the second batch."""
        self._run("second")


class ConsistentVerify(ConsistentReplay):
    """Verify the log of the first batch: every message is handled on the version before, and nothing is written."""

    durability = "writes nothing"

    def work(self) -> None:
        """Verify the log."""
        found = verify(self.spark, self.log.path, app, store=self._url, table=TABLE)
        if not found.is_clean or found.deliveries != self.log.messages:
            message = f"{found.deliveries} deliveries of {self.log.messages} were verified: {found.counts}"
            raise AssertionError(message)

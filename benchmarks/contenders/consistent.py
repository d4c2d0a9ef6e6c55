"""`consistent`: this project's batch on an SQLite file. `consistent-replay`: the same log once more.

`consistent-verify` compares the log with what the first batch stored, and writes nothing.

Every version with its state, message id, digests and surroundings is stored, one transaction for each stream, and
outcomes are written as Parquet. Durable: a process that dies loses nothing; when the batch is published a commit
with fsync has made all of it survive a power cut.
"""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.contenders.spark import SparkContender
from benchmarks.contenders.stored import stored_states
from benchmarks.logs import SCHEMA, Log
from benchmarks.shooting import TABLE, States
from runtime.spark import run_batch, verify
from samples.shooting_range import app
from samples.shooting_range.log import BEGIN, generate


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

    def _run(self, batch_id: str, messages: str | None = None, store: str | None = None) -> None:
        run_batch(
            self.spark,
            messages or self.log.path,
            app,
            store=store or self._url,
            table=TABLE,
            out=str(self.folder / "out"),
            batch_id=batch_id,
        )

    @property
    def _file(self) -> Path:
        return self.folder / "store.db"

    @property
    def _url(self) -> str:
        return f"sqlite:///{self._file}"


class ConsistentHistory(Consistent):
    """Run a batch on streams that have 100 versions each, written four at a time by 25 batches."""

    durability = "all versions in SQLite, WAL, fsync before publishing"

    def prepare(self, log: Log, folder: Path) -> None:
        """Copy a file with the history, which the first turn makes. A log to warm up with has none."""
        super().prepare(log, folder)
        if log.messages <= _WARM_UP:
            return
        history = self.setting.folder / f"history-{log.streams}.db"
        if not history.exists():
            made = self.setting.folder / f"making-{log.streams}.db"
            for number in range(_BATCHES):
                messages = _messages_before(
                    log, number, self.setting.folder / f"before-{log.streams}-{number}"
                )
                self._run(f"before-{number}", messages, f"sqlite:///{made}")
            with closing(sqlite3.connect(made)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            made.rename(history)
        shutil.copyfile(history, self._file)

    def facts(self) -> Mapping[str, float]:
        """Return the size of the file, and its share of each version, those of the history included."""
        versions = self.log.messages + self.log.streams * _BATCHES * _PER_BATCH
        size = super().facts()["file_bytes"]
        return {"file_bytes": size, "bytes_per_version": size / versions}


_BATCHES, _PER_BATCH, _WARM_UP = 25, 4, 1_000


def _messages_before(log: Log, number: int, folder: Path) -> str:
    """Write messages for the streams of a log, and return their folder."""
    begin = BEGIN - timedelta(days=_BATCHES - number)
    rows = list(generate(log.streams, log.streams * _PER_BATCH, begin=begin))
    folder.mkdir()
    pq.write_table(pa.Table.from_pylist(rows, SCHEMA), folder / "messages.parquet")
    return str(folder)


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

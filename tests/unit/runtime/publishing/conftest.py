"""A batch that is done, and ways to publish it."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from eventstore import Table, connect
from runtime.ledger.ledger import BatchRecord
from runtime.publishing import runner
from runtime.publishing.publisher import PublishOptions, Target, TargetOptions
from runtime.publishing.runner import PublishResult
from runtime.publishing.targets.choice import open_target
from tests.publishing.servers import HttpReceiver, http_receiver
from tests.support.done_batches import TABLE, Rows, games, make_batch


@dataclass(frozen=True)
class DoneBatch:
    """A batch of some games, with its store and its outcomes."""

    store: str
    out: Path
    record: BatchRecord
    ids: frozenset[str]

    def publish(
        self, url: str | Target, options: PublishOptions | None = None, **of_target: Any
    ) -> PublishResult:
        """Publish the batch as the command does."""
        return asyncio.run(self.published(url, options, **of_target))

    def redriven(
        self, url: str | Target, options: PublishOptions | None = None, **of_target: Any
    ) -> PublishResult:
        """Send again what was refused."""
        return asyncio.run(self.published(url, options, work=runner.redrive, **of_target))

    def target(self, url: str, **of_target: Any) -> Target:
        """Return a target; a function's keys are in the table of the batch."""
        given = {"batch_id": self.record.batch_id, "keys": self.store, "keys_table": TABLE, **of_target}
        return open_target(url, TargetOptions(**given))

    async def published(
        self,
        url: str | Target,
        options: PublishOptions | None = None,
        work: Callable[..., Awaitable[PublishResult]] = runner.publish,
        **of_target: Any,
    ) -> PublishResult:
        target = self.target(url, **of_target) if isinstance(url, str) else url
        async with connect(self.store) as store:
            table = await store.table(TABLE)
            return await work(table, self.record, str(self.out), target, options or PublishOptions(slices=3))

    def on_table(self, work: Callable[[Table], Awaitable[Any]]) -> Any:
        """Return what some work on the table of the batch gives."""

        async def worked() -> Any:
            async with connect(self.store) as store:
                return await work(await store.table(TABLE))

        return asyncio.run(worked())


Make = Callable[..., DoneBatch]


@pytest.fixture
def make_of(tmp_path: Path) -> Make:
    """Make a batch of some rounds."""

    def made(rounds: Sequence[Rows]) -> DoneBatch:
        store, out = f"sqlite:///{tmp_path}/store.db", tmp_path / "out"
        ids = frozenset(each["message_id"] for rows in rounds for row in rows for each in row["outputs"])
        return DoneBatch(store, out, make_batch(store, out, rounds), ids)

    return made


@pytest.fixture
def make(make_of: Make) -> Make:
    """Make a batch of so many games with so many outputs each."""
    return lambda count=6, each=4: make_of(games(count, each))


@pytest.fixture
def batch(make: Make) -> DoneBatch:
    return make()


@pytest.fixture(scope="module")
def receiver_process() -> Iterator[HttpReceiver]:
    with http_receiver() as found:
        yield found


@pytest.fixture
def receiver(receiver_process: HttpReceiver) -> HttpReceiver:
    receiver_process.forget()
    return receiver_process


def query(path: Path, statement: str) -> list[Any]:
    """Return what an SQLite file answers."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()

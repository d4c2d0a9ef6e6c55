"""Runners and Spark workers that are killed by SIGKILL before each of their calls in turn, and then run again.

Counted are the calls to the table with the publication's record, to the publisher, and of the publisher to its target.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import astuple, dataclass
from datetime import timedelta
from functools import partial
from operator import add
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eventstore import InterceptedTable, Table, connect
from runtime.clock import system_clock
from runtime.errors import TargetError
from runtime.ledger.ledger import Ledger
from runtime.publishing.publisher import PublishOptions, Target, TargetOptions
from runtime.publishing.runner import publish
from tests.faults.children import Child
from tests.support.done_batches import BATCH, TABLE, games, make_batch, outcome, output

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

GAMES, EACH, SLICES, CHUNK = 2, 3, 2, 2
IDS = frozenset(f"g{game}-{number}" for game in range(GAMES) for number in range(EACH))


@dataclass(frozen=True)
class Counts:
    """Outputs that are lost, surplus effects, copies that the target recognised, and objects out of order."""

    lost: int = 0
    duplicates: int = 0
    recognised: int = 0
    disorder: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(*map(add, astuple(self), astuple(other)))


class Case(Protocol):
    def prepare(self) -> None:
        """Empty the target."""

    def target(self, before_call: Callable[[], Any]) -> Target:
        """Return the target, which calls `before_call` before each request to its server that runners do not see."""

    def count(self) -> Counts:
        """Compare the content of the target with the batch."""


@dataclass(frozen=True)
class Killed:
    kills: int = 0
    counts: Counts = Counts()
    refused: int = 0

    @property
    def outputs(self) -> int:
        return self.kills * len(IDS)


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


@dataclass(frozen=True)
class Fuse:
    """Strikes before one call, given by its number from 1, of the calls that all processes count in one file."""

    file: Path
    call: int
    strike: Callable[[], None] = die

    def burn(self) -> None:
        with self.file.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(b".")
            file.flush()
            number = os.fstat(file.fileno()).st_size
        if number == self.call:
            self.strike()

    @property
    def has_burnt(self) -> bool:
        return self.file.stat().st_size >= self.call


def mortal_table(table: Table, fuse: Fuse) -> Table:
    return InterceptedTable(table, before=lambda *_: fuse.burn())


class _MortalPublisher:
    def __init__(self, publisher: Any, fuse: Fuse) -> None:
        self._publisher = publisher
        self._fuse = fuse

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        async def call(*arguments: Any) -> Any:
            self._fuse.burn()
            return await getattr(self._publisher, name)(*arguments)

        return call


class MortalTarget:
    """A target with small chunks, before each call of whose publishers a fuse burns."""

    def __init__(self, target: Target, fuse: Fuse) -> None:
        self._target = target
        self._fuse = fuse
        self.chunk = min(target.chunk, CHUNK)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def publisher(self) -> Any:
        return _MortalPublisher(self._target.publisher(), self._fuse)


def make(_: Case, folder: Path) -> None:
    make_batch(f"sqlite:///{folder}/made.db", folder / "out", games(GAMES, EACH))


def make_with_copies(case: Case, folder: Path) -> None:
    """Make the batch, with duplicates of another batch that was published to the target before."""
    url, out = f"sqlite:///{folder}/made.db", folder / "out"
    old = [outcome(f"g{game}", output(f"old-{game}", number)) for game in range(GAMES) for number in range(2)]
    first = make_batch(url, out, [old], batch_id="b0")
    case.prepare()

    async def published() -> None:
        async with connect(url) as store:
            await publish(await store.table(TABLE), first, str(out), case.target(lambda: None))

    asyncio.run(published())
    made_by = {"status": "duplicate", "made_by": first.batch_id, "made_by_number": first.number}
    new, later = games(GAMES, EACH)
    make_batch(url, out, [[*({**each, **made_by} for each in old), *new], later])


def kill_everywhere(case, folder, every=1, make=make, strike=die) -> Killed:
    """Strike before every `every`th call of a runner, let another one finish each time, and count.

    `strike` kills the runner by default. If it kills a broker, the runner continues or gives up.
    """
    gave_up = () if strike is die else (TargetError,)

    def run(fuse: Fuse) -> int:
        def first() -> None:
            with suppress(*gave_up):
                asyncio.run(_published(case, folder, fuse))

        Child(first).end()
        if not fuse.has_burnt:
            return 0
        end = Child(lambda: asyncio.run(_published(case, folder, fuse))).end()
        assert not end.is_killed, "The second runner was killed too."
        return int(end.result)

    return _kill_before_each_call(case, folder, every, run, make, strike)


def kill_workers_everywhere(spark: SparkSession, case: Case, folder: Path, every: int = 1) -> Killed:
    """Kill a Spark worker before every `every`th call of all workers, let Spark run its task again, and count."""
    from runtime.spark import publish as publish_on_spark

    def run(fuse: Fuse) -> int:
        done = publish_on_spark(
            spark,
            BATCH,
            partial(_mortal, case, fuse),
            store=f"sqlite:///{folder}/store.db",
            table=TABLE,
            options=PublishOptions(slices=SLICES, concurrency=1, lease=timedelta(seconds=1)),
            wrap=partial(mortal_table, fuse=fuse),
        )
        return len(done.refused)

    return _kill_before_each_call(case, folder, every, run)


def _kill_before_each_call(case, folder, every, run, make=make, strike=die) -> Killed:
    """Publish the batch anew with a later fuse each time, until there is no call to burn it. `run` counts refusals."""
    Child(partial(make, case, folder)).end()
    total = Killed()
    while True:
        case.prepare()
        for name in ("store.db", "store.db-wal", "store.db-shm"):
            (folder / name).unlink(missing_ok=True)
        for made in folder.glob("made.db*"):
            if not made.name.endswith("-shm"):
                shutil.copy(made, folder / made.name.replace("made", "store"))
        fuse = Fuse(folder / "calls", total.kills * every + 1, strike)
        fuse.file.write_bytes(b"")
        refused = run(fuse)
        if not fuse.has_burnt:
            return total
        total = Killed(total.kills + 1, total.counts + case.count(), total.refused + refused)


async def _published(case: Case, folder: Path, fuse: Fuse) -> int:
    options = PublishOptions(slices=SLICES, concurrency=1, take_over=True)
    async with connect(f"sqlite:///{folder}/store.db") as store:
        table = await store.table(TABLE)
        record = await Ledger(table, system_clock).get(BATCH)
        target = _mortal(case, fuse)
        done = await publish(mortal_table(table, fuse), record, str(folder / "out"), target, options)
        if target.name == "tests.x:send":
            assert len(done.records) == len(IDS), "An output has no record."
        return len(done.refused)


def _mortal(case: Case, fuse: Fuse, _: TargetOptions | None = None) -> Target:
    target: Any = MortalTarget(case.target(fuse.burn), fuse)
    found: Target = target
    return found

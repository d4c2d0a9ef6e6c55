"""A runner that is killed by SIGKILL before each of its calls, in turn, and then run again.

Each runner is a process of its own, forked from this one, with the calls counted: those of the table in which it keeps
its record, those of the publisher, and what the publisher asks of its target in between.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from eventstore import connect
from runtime.clock import system_clock
from runtime.errors import TargetError
from runtime.ledger.ledger import Ledger
from runtime.publishing.publisher import CommittedOutput, Publisher, PublishOptions, Record, SliceName, Target
from runtime.publishing.runner import publish
from tests.support.done_batches import BATCH, TABLE, games, make_batch, outcome, output

if TYPE_CHECKING:
    from tests.publishing.cases import KafkaWithoutABroker

GAMES, EACH, SLICES, CHUNK = 2, 3, 2, 2
IDS = frozenset(f"g{game}-{number}" for game in range(GAMES) for number in range(EACH))


class Case(Protocol):
    """A target under test."""

    def prepare(self) -> None:
        """Begin anew, with nothing in the target."""

    def target(self, before_call: Callable[[], None]) -> Target:
        """Return the target, which calls a function before it asks anything of its server that is not seen outside."""

    def count(self) -> Counts:
        """Look into the target."""


@dataclass(frozen=True)
class Counts:
    """What is in a target: outputs that are lost, surplus effects, what was sent again and recognised, and order."""

    lost: int = 0
    duplicates: int = 0
    recognised: int = 0
    disorder: int = 0

    def __add__(self, other: Counts) -> Counts:
        return Counts(
            self.lost + other.lost,
            self.duplicates + other.duplicates,
            self.recognised + other.recognised,
            self.disorder + other.disorder,
        )


@dataclass(frozen=True)
class Killed:
    """The sum of all runs, each with one kill."""

    kills: int
    outputs: int
    counts: Counts
    refused: int


class Burns(Protocol):
    """A fuse."""

    def burn(self) -> None:
        """Count a call, and kill the process if it is the one."""


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


class Fuse:
    """Kills its process, or strikes another one, before the call with a number, from 1; never without one."""

    def __init__(self, call: int | None, strike: Callable[[], None] = _die) -> None:
        self._left = call
        self._strike = strike

    def burn(self) -> None:
        if self._left is not None:
            self._left -= 1
            if not self._left:
                self._strike()

    @property
    def has_burnt(self) -> bool:
        """Whether there was a call with the number."""
        return self._left is not None and self._left <= 0


class MortalTable:
    """A table before whose calls a fuse burns."""

    def __init__(self, table: Any, fuse: Burns) -> None:
        self._table = table
        self._fuse = fuse
        self.scope = table.scope

    def __getattr__(self, name: str) -> Any:
        return burning(getattr(self._table, name), self._fuse)


@dataclass
class MortalPublisher(Publisher):
    """A publisher before whose calls a fuse burns."""

    publisher: Publisher
    fuse: Burns

    async def open(self, name: SliceName) -> bool:
        self.fuse.burn()
        return await self.publisher.open(name)

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        self.fuse.burn()
        return await self.publisher.send(outputs)

    async def commit(self) -> None:
        self.fuse.burn()
        await self.publisher.commit()

    async def roll_back(self) -> None:
        self.fuse.burn()
        await self.publisher.roll_back()

    async def close(self) -> None:
        self.fuse.burn()
        await self.publisher.close()


class MortalTarget:
    """A target whose publishers a fuse kills, with small chunks."""

    def __init__(self, target: Target, fuse: Burns) -> None:
        self._target = target
        self._fuse = fuse
        self.chunk = min(target.chunk, CHUNK)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._target, name)

    def publisher(self) -> Publisher:
        mortal: Any = MortalPublisher(self._target.publisher(), self._fuse)
        found: Publisher = mortal
        return found


def burning(work: Callable[..., Awaitable[Any]], fuse: Burns) -> Callable[..., Awaitable[Any]]:
    """Return an asynchronous function before each of whose calls a fuse burns."""

    async def call(*arguments: Any, **named: Any) -> Any:
        fuse.burn()
        return await work(*arguments, **named)

    return call


def make(_: Case, folder: Path) -> None:
    """Make the batch that is published."""
    make_batch(f"sqlite:///{folder}/made.db", folder / "out", games(GAMES, EACH))


def make_with_copies(case: Case, folder: Path) -> None:
    """Make the batch with duplicates of another batch, which was published to the target before."""
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


def kill_everywhere(
    case: Case, folder: Path, every: int = 1, make: Callable[[Case, Path], None] = make
) -> Killed:
    """Kill a runner before each of its calls, or `every` so many, run another to the end each time, and count."""
    in_child(partial(make, case, folder))
    total, kills, refused = Counts(), 0, 0
    while True:
        case.prepare()
        copy_store(folder)
        fuse = Fuse(kills * every + 1)
        if in_child(partial(_publish, case, folder, fuse)):
            return Killed(kills, kills * len(IDS), total, refused)
        kills += 1
        assert in_child(partial(_publish, case, folder, Fuse(None))), "The second runner was killed too."
        total += case.count()
        refused += int((folder / "refused").read_text())


def kill_brokers_everywhere(case: KafkaWithoutABroker, folder: Path, every: int = 1) -> Killed:
    """Kill a broker before each of a runner's calls, or `every` so many; the runner goes on, or the next one does."""
    in_child(lambda: make_batch(f"sqlite:///{folder}/made.db", folder / "out", games(GAMES, EACH)))
    total, kills, refused = Counts(), 0, 0
    while True:
        case.prepare()
        copy_store(folder)
        fuse = Fuse(kills * every + 1, case.strike)

        def once(fuse: Fuse = fuse) -> None:
            with suppress(TargetError):  # it gave up; whoever is called again sends the rest
                _publish(case, folder, fuse)
            (folder / "burnt").write_text(str(fuse.has_burnt))

        assert in_child(once)
        assert in_child(partial(_publish, case, folder, Fuse(None)))
        if (folder / "burnt").read_text() != "True":
            return Killed(kills, kills * len(IDS), total, refused)
        kills += 1
        total += case.count()
        refused += int((folder / "refused").read_text())


def copy_store(folder: Path) -> None:
    """Let the store be as it was when the batch was made."""
    for name in ("store.db", "store.db-wal", "store.db-shm"):
        (folder / name).unlink(missing_ok=True)
    for name in ("made.db", "made.db-wal"):
        if (folder / name).exists():
            shutil.copy(folder / name, folder / name.replace("made", "store"))


def _publish(case: Case, folder: Path, fuse: Fuse) -> None:
    asyncio.run(_published(case, folder, fuse))


async def _published(case: Case, folder: Path, fuse: Fuse) -> None:
    options = PublishOptions(slices=SLICES, concurrency=1, take_over=True)
    async with connect(f"sqlite:///{folder}/store.db") as store:
        table = await store.table(TABLE)
        record = await Ledger(table, system_clock).get(BATCH)
        target: Any = MortalTarget(case.target(fuse.burn), fuse)
        mortal: Any = MortalTable(table, fuse)
        done = await publish(mortal, record, str(folder / "out"), target, options)
        (folder / "refused").write_text(str(len(done.refused)))
        if target.name == "tests.x:send":
            assert len(done.records) == len(IDS), "An output has no record."


def in_child(work: Callable[[], object]) -> bool:
    """Do something in a process of its own; False when it was killed."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException:  # noqa: BLE001 - what goes wrong is told, and nothing of the parent is run here
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(code)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return False
    assert os.WEXITSTATUS(status) == 0, "A runner failed; see above."
    return True

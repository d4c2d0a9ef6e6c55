"""Workers of Spark that are killed by SIGKILL before each of their calls, in turn; Spark runs their tasks again.

The calls are those of `tests.publishing.kills`. All workers count them in one file, and the one that makes the call
with the number dies; the task that Spark runs again in its place is not killed.
"""

from __future__ import annotations

import fcntl
import os
import signal
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from runtime.publishing.publisher import PublishOptions, Target, TargetOptions
from runtime.spark import publish
from tests.publishing.kills import (
    EACH,
    GAMES,
    IDS,
    SLICES,
    Case,
    Counts,
    Killed,
    MortalTable,
    MortalTarget,
    copy_store,
    in_child,
)
from tests.support.done_batches import BATCH, TABLE, games, make_batch

_LEASE = timedelta(seconds=1)


@dataclass(frozen=True)
class SharedFuse:
    """Kills the process that makes the call with a number, from 1, of those of all processes together."""

    file: Path
    call: int

    def burn(self) -> None:
        with self.file.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.write(b".")
            file.flush()
            if os.fstat(file.fileno()).st_size == self.call:
                os.kill(os.getpid(), signal.SIGKILL)

    @property
    def has_burnt(self) -> bool:
        """Whether there was a call with the number."""
        return self.file.stat().st_size >= self.call


def kill_workers_everywhere(spark: SparkSession, case: Case, folder: Path, every: int = 1) -> Killed:
    """Kill a worker before each of the calls, or `every` so many, let Spark go on each time, and count."""
    in_child(lambda: make_batch(f"sqlite:///{folder}/made.db", folder / "out", games(GAMES, EACH)))
    total, kills, refused = Counts(), 0, 0
    while True:
        case.prepare()
        copy_store(folder)
        fuse = SharedFuse(folder / "calls", kills * every + 1)
        fuse.file.write_bytes(b"")
        done = publish(
            spark,
            BATCH,
            partial(_mortal, case, fuse),
            store=f"sqlite:///{folder}/store.db",
            table=TABLE,
            options=PublishOptions(slices=SLICES, concurrency=1, lease=_LEASE),
            wrap=partial(MortalTable, fuse=fuse),
        )
        if not fuse.has_burnt:
            return Killed(kills, kills * len(IDS), total, refused)
        kills += 1
        total += case.count()
        refused += len(done.refused)


def _mortal(case: Case, fuse: SharedFuse, _: TargetOptions) -> Target:
    target: Any = MortalTarget(case.target(fuse.burn), fuse)
    found: Target = target
    return found

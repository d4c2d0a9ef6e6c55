"""A driver that is killed: runs a batch in a process of its own, and ends it by SIGKILL when it comes to a step.

Usage: python -m tests.support.killed_driver STORE TABLE OUT LOG BATCH_ID CLOCK STEP ALGORITHM

The step AMID_SECOND_PASS is when the first token was deleted, or id added, by a worker, which kills the driver.
"""

import os
import signal
import sys
from pathlib import Path

from runtime.spark import build_session, run_batch
from samples.shooting_range import app
from tests.plugins.spark import QUICK
from tests.support.clocks import FrozenClock
from tests.support.faults import DieOnceAfter, finishes_elsewhere

AMID_SECOND_PASS = "amid the second pass"


def main(arguments: list[str]) -> None:
    store, table, out, log, batch_id, clock, last_step, algorithm = arguments

    def die_at(step: str) -> None:
        if step == last_step:
            # Java goes down with its driver, and Spark's workers with Java.
            os.killpg(os.getpgid(0), signal.SIGKILL)

    amid = DieOnceAfter(str(Path(out).with_name("moved")), finishes_elsewhere, driver=os.getpid())
    spark = build_session("local[2]", log_file=Path(out).with_name("killed.log"), settings=QUICK)
    run_batch(
        spark, log, app, store=store, table=table, out=out, batch_id=batch_id, cascade=True,
        clock=FrozenClock(int(clock)), step=die_at, partitions=2,
        algorithm=algorithm, wrap=amid if last_step == AMID_SECOND_PASS else None,
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])

"""A driver in its own process that ends itself by SIGKILL at a step.

Usage: python -m tests.support.killed_driver STORE TABLE OUT LOG BATCH_ID CLOCK STEP ALGORITHM

The log LETTERS is a redrive of all dead letters. The step AMID_SECOND_PASS is after a worker has deleted the first
token, or added the first message id to the deduplication store.
"""

import os
import signal
import sys
from pathlib import Path

from runtime.spark import build_session, redrive, run_batch
from samples.shooting_range import app
from tests.integration.spark import test_redriving_letters
from tests.plugins.spark import QUICK
from tests.support.clocks import FrozenClock
from tests.support.faults import DieOnceAfter, finishes_elsewhere

AMID_SECOND_PASS = "amid the second pass"
LETTERS = "letters"


def main(arguments: list[str]) -> None:
    store, table, out, log, batch_id, clock, last_step, algorithm = arguments

    def die_at(step: str) -> None:
        if step == last_step:
            # Java goes down with its driver, and Spark's workers with Java.
            os.killpg(os.getpgid(0), signal.SIGKILL)

    amid = DieOnceAfter(str(Path(out).with_name("moved")), finishes_elsewhere, driver=os.getpid())
    spark = build_session("local[2]", log_file=Path(out).with_name("killed.log"), settings=QUICK)
    if log == LETTERS:
        redrive(
            spark, test_redriving_letters.app, store=store, table=table, out=out, batch_id=batch_id,
            clock=FrozenClock(int(clock)), step=die_at, partitions=2,
        )  # fmt: skip
        return
    run_batch(
        spark, log, app, store=store, table=table, out=out, batch_id=batch_id, cascade=True,
        clock=FrozenClock(int(clock)), step=die_at, partitions=2,
        algorithm=algorithm, wrap=amid if last_step == AMID_SECOND_PASS else None,
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])

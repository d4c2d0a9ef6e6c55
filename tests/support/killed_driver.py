"""A driver that is killed: runs a batch in a process of its own, and ends it by SIGKILL when it comes to a step.

Usage: python -m tests.support.killed_driver STORE TABLE OUT LOG BATCH_ID CLOCK STEP
"""

import os
import signal
import sys
from pathlib import Path

from runtime.spark import build_session, run_batch
from samples.shooting_range import app
from tests.support.clocks import FrozenClock


def main(arguments: list[str]) -> None:
    store, table, out, log, batch_id, clock, last_step = arguments

    def die_at(step: str) -> None:
        if step == last_step:
            # Java goes down with its driver, and Spark's workers with Java.
            os.killpg(os.getpgid(0), signal.SIGKILL)

    spark = build_session("local[2]", log_file=Path(out).with_name("killed.log"))
    run_batch(
        spark, log, app, store=store, table=table, out=out, batch_id=batch_id, cascade=True,
        clock=FrozenClock(int(clock)), step=die_at,
    )  # fmt: skip


if __name__ == "__main__":
    main(sys.argv[1:])

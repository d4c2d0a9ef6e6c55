"""A driver of a redrive that is killed: it ends by SIGKILL when it comes to a step.

Usage: python -m tests.support.killed_redrive STORE TABLE OUT BATCH_ID CLOCK STEP
"""

import os
import signal
import sys
from pathlib import Path

from runtime.spark import build_session, redrive
from tests.integration.spark.test_redriving_letters import app
from tests.plugins.spark import QUICK
from tests.support.clocks import FrozenClock


def main(arguments: list[str]) -> None:
    store, table, out, batch_id, clock, last_step = arguments

    def die_at(step: str) -> None:
        if step == last_step:
            # Java goes down with its driver, and Spark's workers with Java.
            os.killpg(os.getpgid(0), signal.SIGKILL)

    spark = build_session("local[2]", log_file=Path(out).with_name("killed.log"), settings=QUICK)
    redrive(
        spark,
        app,
        store=store,
        table=table,
        out=out,
        batch_id=batch_id,
        clock=FrozenClock(int(clock)),
        step=die_at,
        partitions=2,
    )


if __name__ == "__main__":
    main(sys.argv[1:])

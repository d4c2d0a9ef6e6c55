"""`consistent demo`: the sample from message log to leader board."""

from __future__ import annotations

import importlib
import time

from runtime.cli.console import Screen
from runtime.cli.demo.folder import DemoFolder
from runtime.cli.demo.narration import Narration
from runtime.cli.demo.stage import TABLE, Stage
from runtime.cli.demo.story import Story
from runtime.cli.masters import check_master
from runtime.cli.options import DEFAULT_MASTER, AsJson, Master
from runtime.cli.sessions import working
from runtime.cli.short_lives import SHORT_LIVED

SAMPLE = "samples.shooting_range"
"""By name: the runtime works without the samples."""

_SETTINGS = {**SHORT_LIVED, "spark.sql.shuffle.partitions": "4"}


def demo(*, master: Master = DEFAULT_MASTER, as_json: AsJson = False) -> None:
    """Run the ShootingRange sample from message log to leader board, and then deliver everything again.

        consistent demo

    It writes logs, an embedded store and outcomes to ./demo-output, which is removed and made anew at each start, and
    takes about half a minute. It ends with an error if anything does not come out as it must.
    """
    check_master(master)
    begun = time.monotonic()
    app = importlib.import_module(SAMPLE).app
    folder = DemoFolder.make()
    screen = Screen(as_json)
    session = working(
        master,
        folder.spark_log,
        when_stopped="Stopped. The next demo begins anew.",
        keep_steps=False,
        settings=_SETTINGS,
    )
    with session as shown:
        story = Story(Stage(app, folder, shown), Narration(screen), screen)
        story.tell()
        seconds = round(time.monotonic() - begun, 1)
        screen.give(
            {
                "folder": str(folder.path),
                "store": folder.store,
                "table": TABLE,
                "seconds": seconds,
                **story.document,
            }
        )
        screen.show(f"\nDone in {seconds} seconds. Spark's own output is in {folder.spark_log}.")

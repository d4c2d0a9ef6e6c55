"""Rounds on stores that move no folders: Azurite's blobs and a server with the protocol of S3, both through pyarrow."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pyarrow as pa
import pytest
from pyarrow import dataset

from runtime.cli.commands.outcomes import OutcomeFiles, Wanted
from runtime.file_systems import open_folder, within
from runtime.spark import outputs, rounds, run_batch
from runtime.spark.worker.outcomes import Merge, PartJob
from samples.shooting_range import app
from tests.support.clocks import FrozenClock
from tests.support.killed_placing import ledger_of
from tests.support.processes import REPOSITORY
from tests.support.relay import relayed
from tests.support.rounds import (
    COUNTS,
    ROWS,
    TYPES,
    Driver,
    Steps,
    all_steps,
    follow,
    overtake,
    rows_of,
    visible,
)
from tests.support.rounds import run as run_task


@pytest.fixture
def out(object_store: str) -> str:
    return object_store


@pytest.mark.thorough
def test_a_round_appears_as_one_object(out):
    driver = Driver(out)

    assert driver.commit().counts == COUNTS
    assert len(visible(out)) == 1
    assert rows_of(out) == ROWS
    assert sum(OutcomeFiles.open(out, None, Wanted()).counts().values()) == ROWS


@pytest.mark.thorough
def test_a_driver_that_is_killed_at_any_step_leaves_no_part_and_is_followed_by_one_that_ends_the_work(
    out, tmp_path
):
    # Given drivers, each of which was killed at another step
    command = [sys.executable, "-m", "tests.support.killed_placing", out, str(tmp_path)]
    ended = subprocess.run(
        command,
        capture_output=True,
        text=True,
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        check=False,
    )
    assert ended.returncode == 0, ended.stderr
    killed = int(ended.stdout)
    assert killed > 7

    # When each is followed by another, then nobody has seen a part, and all of the round is there
    for number in range(killed):
        driver = partial(Driver, ledger=ledger_of(tmp_path, number))
        assert not follow(driver, within(out, f"step-{number}"))


@pytest.mark.thorough
def test_of_two_drivers_one_has_all_in_place_and_what_it_committed_stays(out, monkeypatch):
    monkeypatch.setattr(rounds, "MERGED_UP_TO", 0)
    steps = Steps(monkeypatch)
    for number, where in itertools.islice(all_steps(out, steps), None, None, 4):
        overtake(number, where, steps)


@pytest.mark.thorough
@pytest.mark.connect(thorough=True)
def test_a_batch_with_a_cascade_is_run_there_and_read_by_all(spark, tmp_path, out):
    # Given a batch whose OUT is a url that Spark has no package for
    log = pa.Table.from_pylist([shot(number) for number in range(40)])

    def run() -> Any:
        return run_batch(
            spark, log, app, store=f"sqlite:///{tmp_path}/store.db", table="games", out=out, batch_id="one",
            cascade=True, partitions=2, clock=FrozenClock(NOW),
        )  # fmt: skip

    # When it is run, and found published when it is run again
    outcomes, again = run(), run()

    # Then Spark, pyarrow and the command line see the same, and nothing is left beside it
    found = outcomes.toArrow().sort_by(ORDER)
    assert found.num_rows > len(log)
    assert set(found["round"].to_pylist()) == {0, 1}
    assert again.toArrow().sort_by(ORDER).equals(found)
    folder = open_folder(out)
    plain = dataset.dataset(folder.path, filesystem=folder.files, partitioning="hive").to_table()
    assert plain.sort_by(ORDER)["message_id"].to_pylist() == found["message_id"].to_pylist()
    files = OutcomeFiles.open(out, "one", Wanted())
    assert sum(files.counts().values()) == found.num_rows
    assert outputs(outcomes).count() == len(list(files.published()))
    assert folder.sub("_staging").names() == []


@pytest.mark.thorough
def test_merging_the_files_of_a_round_costs_three_requests_for_each_and_four_more(s3_url):
    # Given two files of an attempt on a store with a relay in front of it
    (authority,) = parse_qs(urlsplit(s3_url).query)["endpoint_override"]
    with in_another_thread() as run, relayed(f"http://{authority}", run) as relay:
        out = s3_url.replace(authority, relay.endpoint.removeprefix("http://")).replace("/papers", "/merged")
        driver = Driver(out)

        for _ in range(3):
            # When they are merged, and then so with more
            relay.sent.clear()
            merge = Merge(driver.staged, tuple(part.name for part in driver.parts))
            (merged,) = run_task(PartJob(merge, driver.staged, TYPES), [pa.record_batch({"one": [1]})])

            # Then each is looked for and read in two pieces, and the new one is written
            assert merged.statuses == {"processed": sum(part.statuses["processed"] for part in driver.parts)}
            assert len(REQUEST.findall(relay.sent)) == 3 * len(driver.parts) + 4
            driver.parts += [driver.write(1), driver.write(2)]


REQUEST = re.compile(rb"(?:GET|HEAD|POST|PUT|DELETE) /\S* HTTP/1")


@contextmanager
def in_another_thread() -> Iterator[Callable[[Coroutine[Any, Any, Any]], Any]]:
    """Give what runs coroutines while this thread waits for answers of theirs."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda coroutine: asyncio.run_coroutine_threadsafe(coroutine, loop).result(60)
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()


NOW = 1_772_366_400_000_000
ORDER = [("round", "ascending"), ("message_id", "ascending")]


def shot(number: int) -> dict[str, str]:
    id_ = "00000000-0000-4000-8000-{:012d}".format
    body = f'{{"game_id": "{id_(number % 7)}", "position": {number % 10}}}'
    return {"message_id": id_(number), "type": "FireAt", "body": body}

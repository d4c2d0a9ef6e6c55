"""Workers write the outcomes: files as Spark would have written them, of which the driver knows what they hold."""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from pyarrow import parquet
from pyspark.sql import functions as sf

from runtime.batch_options import BatchOptions
from runtime.ledger.ledger import BatchRecord
from runtime.spark import Batch
from runtime.spark.commit import BatchFolders
from runtime.spark.worker.outcomes import PART, Fold, Part, PartJob
from samples.shooting_range import app
from tests.integration.spark.conftest import Place
from tests.support.batch_records import started
from tests.support.faults import FailOnceAfterWriting, KillOnceAmidAFile, as_outcomes
from tests.support.logs import fire, row, start, write_lines
from tests.support.outcomes import all_outcomes, by_status

KEY = ["message_id", "status", "reason", "delivery"]


def mixed_log(place: Place, chance: random.Random) -> str:
    """Write a log of hits, misses, duplicates and messages that cannot be handled."""
    rows = [start(1, 5)]
    for number in range(2, 60):
        rows.append(fire(number, chance.choice([5, 6]), headers={"trace": str(number)}))
        rows += [rows[-1]] * chance.choice([0, 0, 1])
    rows += [row(100, "Unheard", {}), row(101, "FireAt", "{"), row(102, "FireAt", {"game_id": None})]
    chance.shuffle(rows)
    return write_lines(place.folder / "log.jsonl", [*rows, "this is no message"])


def run(place: Place, log: str, **options) -> BatchRecord:
    batch = Batch(place.spark, app, place.store, place.table, place.out, BatchOptions(**options))
    return batch.run(log, "night").record


def test_what_the_ledger_counts_is_what_the_files_hold(place, chance):
    record = run(place, mixed_log(place, chance), cascade=True, partitions=3)

    read = place.spark.read.parquet(place.out)
    counts = Counter(each.status for each in read.collect())
    counts["outputs"] = read.select(sf.explode("outputs")).count()
    assert record.counts == counts
    assert counts["outputs"] > 10
    assert record.rounds == 2

    # ... and what a plain reader finds is in the folders of the batch, and nothing else is left
    assert {path.name for path in Path(place.out).iterdir()} == {"batch_id=night"}


@pytest.mark.thorough
def test_they_look_as_if_spark_had_written_them(place, chance):
    run(place, mixed_log(place, chance), partitions=2)
    files = Path(place.out) / "batch_id=night" / "round=0"

    # Given the same rows, written by Spark
    theirs = place.folder / "theirs" / "batch_id=night" / "round=0"
    place.spark.read.parquet(str(files)).write.parquet(str(theirs))

    # Then Spark reads the same from both: names, types, nullability and rows
    ours, spark_s = place.spark.read.parquet(place.out), place.spark.read.parquet(f"{place.folder}/theirs")
    assert ours.schema == spark_s.schema
    assert all_outcomes(ours) == all_outcomes(spark_s)

    # ... so do pyarrow and pandas
    tables = [parquet.read_table(folder) for folder in (place.out, place.folder / "theirs")]
    assert tables[0].schema.remove_metadata() == tables[1].schema.remove_metadata()
    frames = [table.to_pandas().sort_values(KEY, ignore_index=True) for table in tables]
    pd.testing.assert_frame_equal(*frames)
    pd.testing.assert_frame_equal(pd.read_parquet(place.out).sort_values(KEY, ignore_index=True), frames[0])

    # ... and the files have the same columns, level by level
    written = [
        str(parquet.ParquetFile(next(folder.glob("*.parquet"))).schema).split("\n")[2:]
        for folder in (files, theirs)
    ]
    assert written[0] == written[1]


@pytest.mark.thorough
def test_a_sweep_that_finds_nothing_leaves_a_batch_without_rows(place):
    options = BatchOptions(algorithm="outbox", cascade=True)
    swept = Batch(place.spark, app, place.store, place.table, place.out, options).sweep(batch_id="sweep")

    assert by_status(swept.outcomes) == {}
    assert swept.record.counts == {"outputs": 0}
    read = place.spark.read.parquet(place.out)
    assert read.count() == 0
    assert set(read.columns) == {*swept.outcomes.columns, "batch_id"}


def killed_amid_its_file(staged: str, marker: str) -> Fold:
    return PartJob(KillOnceAmidAFile(marker), staged, ()).run


def failed_after_its_file(staged: str, marker: str) -> Fold:
    return FailOnceAfterWriting(PartJob(as_outcomes, staged, ()), marker)


@pytest.mark.parametrize(
    "fault", [killed_amid_its_file, pytest.param(failed_after_its_file, marks=pytest.mark.thorough)]
)
def test_what_a_worker_left_behind_is_not_seen(place, fault):
    folders = BatchFolders(place.spark, started(place.out))
    attempt, marker = folders.stage(), place.folder / "died"
    staged = folders.staged(attempt)

    # Given tasks, one of which dies and is run again
    work = fault(staged, str(marker))
    rows = place.spark.range(4).repartition(2).mapInArrow(work, PART).collect()
    assert marker.exists()
    assert len(rows) == 2
    assert len(list(Path(staged).iterdir())) == 3

    # When what they tell of is put in place
    folders.propose(attempt, [Part(**each.asDict()) for each in rows])
    replace(folders, record=replace(folders.record, attempt=attempt)).put_in_place()
    folders.discard(attempt)

    # Then each outcome is there once, and nothing is left of the other attempt
    assert sorted(row.message_id for row in place.spark.read.parquet(place.out).collect()) == [*"0123"]
    assert not list((Path(place.out) / "_staging").iterdir())

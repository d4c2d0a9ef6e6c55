"""A batch that cannot begin is not in the ledger, and a store's url is read once, in the driver's process."""

from __future__ import annotations

import pytest

from runtime import LogError, UsageError
from runtime.spark import TablePlace
from runtime.spark.batch import Batch
from tests.support.logs import fire, start, write_lines
from tests.support.outcomes import by_status


@pytest.mark.thorough
def test_a_url_in_a_variable_that_the_workers_do_not_have(place, monkeypatch):
    # Given the store's url in a variable of this process; the workers were started before it
    monkeypatch.setenv("STORE_OF_A_TEST", place.store)
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 5)])
    ids = TablePlace("env:STORE_OF_A_TEST", f"{place.table}ids")

    # When batches run, with each way to name a store
    outcomes = place.run(log, store="env:STORE_OF_A_TEST")
    others = place.run(
        log,
        store="env:STORE_OF_A_TEST",
        table=f"{place.table}other",
        algorithm="deduplication-store",
        deduplication_store=ids,
    )

    # Then both found it
    assert by_status(outcomes) == by_status(others) == {("ShootingRange", "processed"): 2}


@pytest.mark.thorough
def test_a_relative_file_means_the_same_after_a_change_of_the_working_directory(place, monkeypatch):
    monkeypatch.chdir(place.folder)
    log = write_lines(place.folder / "log.jsonl", [start(1, 5)])

    place.run(log, store="sqlite:///here.db")

    assert by_status(place.run(log, store=f"sqlite:///{place.folder}/here.db")) == {
        ("ShootingRange", "duplicate"): 1
    }


@pytest.mark.thorough
@pytest.mark.parametrize("out", ["file", pytest.param("file/deeper", marks=pytest.mark.thorough)])
def test_outcomes_that_cannot_be_written(place, out):
    (place.folder / "file").write_text("")
    log = write_lines(place.folder / "log.jsonl", [start(1, 5)])

    with pytest.raises(UsageError, match=r"Outcomes cannot be written to .*/file.* Choose another --out"):
        place.run(log, out=str(place.folder / out), batch_id="b")

    # Then the id is free for other input
    write_lines(place.folder / "log.jsonl", [start(1, 6)])
    assert by_status(place.run(log, batch_id="b")) == {("ShootingRange", "processed"): 1}


def test_a_log_that_is_none_makes_no_table(place):
    log = write_lines(place.folder / "log.jsonl", [])

    with pytest.raises(LogError):
        place.run(log)

    assert not (place.folder / "store.db").exists()


@pytest.mark.thorough
def test_a_batch_without_a_committed_round_takes_another_folder(place):
    def stop(sentence):
        if "handling" in sentence:
            raise KeyboardInterrupt

    log = write_lines(place.folder / "log.jsonl", [start(1, 5)])
    with pytest.raises(KeyboardInterrupt):
        place.run(log, batch_id="b", out=str(place.folder / "wrong"), step=stop)

    outcomes = place.run(log, batch_id="b", out=str(place.folder / "right"))

    assert by_status(outcomes) == {("ShootingRange", "processed"): 1}
    assert (place.folder / "right" / "batch_id=b").is_dir()
    with pytest.raises(
        UsageError, match=r"has outcomes in .*/right: run it again with --batch-id b --out .*/right"
    ):
        place.run(log, batch_id="b", out=str(place.folder / "wrong"))


def test_a_secret_is_not_in_what_a_job_looks_like(place):
    text = repr(Batch(place.spark, place.app, "sqlite:///secret", "games", "out"))

    assert "secret" not in text
    assert "secret" not in repr(TablePlace("sqlite:///secret", "games").for_workers())

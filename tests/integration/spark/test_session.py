"""A batch runs on any session, under its own settings for as long as it lasts; what workers lack is said before."""

import importlib
import subprocess
import sys

import pytest

from runtime import UsageError
from runtime.spark import build_session
from tests.integration.cli.folder import APP, REPOSITORY
from tests.support.logs import fire, start, write_lines
from tests.support.outcomes import by_status

pytestmark = pytest.mark.connect

ODD = {
    "spark.sql.session.timeZone": "America/New_York",
    "spark.sql.caseSensitive": "true",
    "spark.sql.ansi.enabled": "false",
    "spark.sql.execution.arrow.useLargeVarTypes": "true",
    "spark.sql.sources.partitionColumnTypeInference.enabled": "true",
    "spark.sql.files.ignoreCorruptFiles": "true",
    "spark.sql.optimizer.disableHints": "true",
    "spark.sql.requireAllClusterKeysForDistribution": "true",
}


def own_app(folder, monkeypatch, name):
    """Give the app of a module that only this process finds."""
    (folder / f"{name}.py").write_text(APP)
    monkeypatch.setattr(sys, "path", [*sys.path, str(folder)])
    importlib.invalidate_caches()
    module = importlib.import_module(name)
    del sys.modules[name]
    monkeypatch.setitem(sys.modules, name, module)  # until the end of the test
    return module.app


def test_other_settings_make_no_difference_and_stay(place):
    # Given a session with settings under which times shift, and messages are lost or out of order
    session = place.spark.newSession()
    for name, value in ODD.items():
        session.conf.set(name, value)
    rows = [
        {**row, "enqueued_at": f"2026-03-29T0{hour}:30:00"}
        for hour, row in enumerate([start(1, 5), fire(2, 5), fire(3, 6), fire(2, 5)])
    ]
    log = write_lines(place.folder / "log.jsonl", rows)
    expected = sorted(place.beside("usual").run(log, batch_id="b").drop("outputs").collect())

    # When a batch runs on it
    place.spark = session
    outcomes = place.run(log, batch_id="b")

    # Then it gives what it gives anywhere, and the session is as it was
    assert by_status(outcomes) == {("ShootingRange", "processed"): 3, ("ShootingRange", "duplicate"): 1}
    assert sorted(outcomes.drop("outputs").collect()) == expected
    assert {name: session.conf.get(name) for name in ODD} == ODD
    assert session.conf.get("parquet.page.verify-checksum.enabled", None) is None


def test_a_failed_batch_leaves_the_settings_as_they_were(place):
    place.spark = place.spark.newSession()
    place.spark.conf.set("spark.sql.session.timeZone", "America/New_York")

    with pytest.raises(UsageError):
        place.run(str(place.folder / "nowhere.jsonl"))

    assert place.spark.conf.get("spark.sql.session.timeZone") == "America/New_York"


def test_a_session_that_runs_is_returned_as_it_is(spark):
    before = spark.conf.getAll

    assert build_session("local[7]", settings={"spark.sql.session.timeZone": "Asia/Tokyo"}) is spark
    assert spark.conf.getAll == before


DEPOSITED = {"message_id": "m1", "type": "Deposited", "body": {"account": "a", "amount": 1}}


@pytest.mark.thorough
@pytest.mark.connect(thorough=True)
def test_an_app_that_the_workers_lack_is_sent_to_them(place, tmp_path, monkeypatch):
    place.app = own_app(tmp_path, monkeypatch, "only_here")

    outcomes = place.run(write_lines(place.folder / "log.jsonl", [DEPOSITED]))

    assert by_status(outcomes) == {("Account", "processed"): 1}


@pytest.mark.thorough
def test_an_app_that_cannot_be_sent(place, tmp_path, monkeypatch):
    place.app = own_app(tmp_path, monkeypatch, "of_no_file")
    (tmp_path / "of_no_file.py").unlink()

    with pytest.raises(UsageError, match="of_no_file of the app: ship it with --py-files"):
        place.run(write_lines(place.folder / "log.jsonl", [DEPOSITED]))

    assert place.batches() == []


@pytest.mark.thorough
def test_workers_without_this_package(tmp_path):
    # Given a session whose workers run the interpreter without what is installed beside it
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH= exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    program = f"""
from pyspark.sql import SparkSession
from runtime.spark import run_batch
from samples.shooting_range import app

spark = SparkSession.builder.master("local[1]").config("spark.pyspark.python", {str(python)!r}).getOrCreate()
log = spark.sql("select 'a' as message_id, 'Other' as type, '{{}}' as body")
try:
    run_batch(spark, log, app, store="sqlite:///store.db", table="games", out="out")
except Exception as error:
    print(type(error).__name__, error)
"""

    done = subprocess.run(
        [sys.executable, "-c", program],
        cwd=tmp_path, env={"PYTHONPATH": str(REPOSITORY), "PATH": "/usr/bin:/bin"},
        capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert "UsageError The workers of this session have no module" in done.stdout, done.stderr
    assert "PYSPARK_PYTHON" in done.stdout

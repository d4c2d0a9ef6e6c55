"""A lopsided batch that is as small as can be, run as `make skew` runs it; and what is made of its samples."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from benchmarks.contender import DisagreementError
from benchmarks.skew import __main__ as command
from benchmarks.skew.cases import NAMES, SIZES, Case
from benchmarks.skew.memory import Sample, python_workers
from benchmarks.skew.run import Found, check_outcomes
from benchmarks.skew.table import print_table

TINY = Case("one-partition", "a few streams in one partition", 3, 20, partitions=1)
MB = 10**6


def sample(done: int, *sizes: int) -> Sample:
    workers = dict(enumerate((size * MB for size in sizes), start=100))
    return Sample(0.0, done, workers, {pid: size // 2 for pid, size in workers.items()})


@pytest.mark.thorough
def test_a_batch_is_run_and_its_workers_are_watched(tmp_path, monkeypatch):
    # So little work ends before the JVM's optimising compiler and its parallel collector have paid for themselves.
    monkeypatch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    monkeypatch.setitem(SIZES, "tiny", [TINY])

    # The case itself checks outcomes and states, and raises when they are wrong
    done = CliRunner().invoke(command.cli, ["--size", "tiny", "--results", str(tmp_path)])

    assert done.exit_code == 0, done.output
    (file,) = tmp_path.glob("*-skew-tiny.json")
    case = json.loads(file.read_text())["cases"]["one-partition"]
    assert (case["messages"], case["streams"], case["transactions"]) == (60, 3, 3)
    assert case["samples"][-1]["done"] == 3
    # One partition has one worker: neither the daemon that forked it nor the JVM is taken for another.
    assert len(case["samples"][-1]["resident"]) == 1
    # A worker with Python and Arrow in it takes more than this.
    assert 20 < case["peak_mb"] < 400
    assert case["peak_proportional_mb"] is None or 0 < case["peak_proportional_mb"] <= case["peak_mb"]
    assert case["quarters_mb"][-1] is not None
    assert "one-partition" in done.output


def test_a_process_without_spark_has_no_workers():
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        assert list(python_workers(process.pid)) == []


def test_peaks_are_those_of_the_largest_worker():
    found = Found(TINY, 2.0, 8, [sample(0, 10, 20), sample(4, 90), sample(8, 30, 40), sample(8)])

    assert (found.peak, found.peak_proportional, found.rate) == (90, 45, 30)


def test_each_quarter_of_the_work_has_its_largest_sample():
    samples = [sample(0, 10), sample(1, 50), sample(2, 30), sample(6, 20), sample(8, 25), sample(8, 5)]

    assert Found(TINY, 2.0, 8, samples).quarters == [50, 30, None, 25]


def test_the_table_says_who_takes_too_much(capsys):
    print_table([Found(TINY, 2.0, 8, [sample(8, 399)]), Found(TINY, 2.0, 8, [sample(8, 401)])])

    printed = capsys.readouterr().out
    assert (printed.count(" met "), printed.count(" missed ")) == (1, 1)


def test_wrong_outcomes_are_an_error():
    check_outcomes(TINY, {"processed": 60}, {20: 3})

    with pytest.raises(DisagreementError, match="60 messages"):
        check_outcomes(TINY, {"processed": 59, "duplicate": 1}, {20: 3})
    with pytest.raises(DisagreementError, match="all 3 should have 20"):
        check_outcomes(TINY, {"processed": 60}, {20: 2, 19: 1})


def test_the_cases_have_the_same_names_at_each_size():
    assert all(tuple(case.name for case in cases) == NAMES for cases in SIZES.values())
    assert [case.messages for case in SIZES["full"]] == [2_000_000, 2_000_000, 1_000_000]


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--size", "huge"], "huge is none of default, full"),
        (["--only", "nothing"], "There is no case nothing"),
    ],
)
def test_what_there_is_not_is_wrong_usage(options, sentence):
    done = CliRunner().invoke(command.cli, options, env={"COLUMNS": "200"})

    assert done.exit_code == 2
    assert sentence in done.output

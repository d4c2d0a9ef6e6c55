"""A batch as its user meets it: stopped, resumed, run again, followed by another one, and truncated.

The commands run once, one after the other, and each test looks at what one said. The batch that is stopped runs in a
process of its own, as a user's; the later commands in the session that all tests share.
"""

from __future__ import annotations

import shlex
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from subprocess import CompletedProcess

import pytest

from tests.integration.cli.folder import Folder
from tests.plugins.spark import Workplace
from tests.unit.cli.shapes import document_of

ON_STORE = ["--store", "sqlite:///store.db", "--table", "bank"]
RUN = ["run", "--app", "bank:app", *ON_STORE, "--out", "outcomes", "--master", "local[2]", "--cascade"]
FIRST = [*RUN, "--messages", "log.jsonl", "--batch-id", "first"]
AGAIN = f"consistent {shlex.join(FIRST)}"

# The first test waits for all commands, of which one starts Spark in a process of its own.
pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough]


@dataclass(frozen=True)
class Commands:
    """What each command gave."""

    folder: Folder
    stopped: tuple[int, str]
    listed_between: CompletedProcess[str]
    resumed: CompletedProcess[str]
    log: str
    again: CompletedProcess[str]
    later: CompletedProcess[str]
    truncated: CompletedProcess[str]
    listed: CompletedProcess[str]
    shown: CompletedProcess[str]


@pytest.fixture(scope="module")
def commands(workplace: Workplace) -> Commands:
    folder = Folder.make(workplace.path)
    cut = [
        "truncate",
        *ON_STORE,
        "--older-than",
        "0s",
        "--allow-young",
        "--yes",
        "--master",
        "local[2]",
        "--json",
    ]
    return Commands(
        folder,
        stopped=folder.interrupted("Round 0: handling", *FIRST),
        listed_between=folder.consistent("batches", *ON_STORE),
        resumed=workplace.consistent(*FIRST),
        log=(folder.path / ".consistent" / "consistent.log").read_text(),
        again=workplace.consistent(*FIRST, "--json"),
        later=workplace.consistent(
            *RUN, "--messages", "later.jsonl", "--json", "--publish", "sqlite:///published.db"
        ),
        truncated=workplace.consistent(*cut),
        listed=workplace.consistent("batches", *ON_STORE, "--json"),
        shown=workplace.consistent("show", *ON_STORE, "Account", "a1", "--diff"),
    )


def test_ctrl_c_ends_it_quietly_and_says_how_to_go_on(commands):
    code, said = commands.stopped

    assert code == 130, said
    assert f"Stopped. Nothing is lost. Resume with: {AGAIN}" in said
    assert "Traceback" not in said
    assert "ERROR" not in said


def test_a_batch_that_was_stopped_is_listed_as_started(commands):
    assert "Batch first has not ended" in commands.listed_between.stdout


def test_it_goes_on_when_it_is_run_again_with_its_id(commands):
    assert commands.resumed.returncode == 0, commands.resumed.stderr
    said = commands.resumed.stdout.split("\n")
    assert ["0", "Account", "9", "1", "0", "1", "9"] in [line.split() for line in said]
    assert ["1", "Mail", "9", "0", "0", "0", "0"] in [line.split() for line in said]


def test_dead_letters_are_shown_with_reason_and_error_and_do_not_fail_it(commands):
    said = commands.resumed.stdout

    assert "ValueError: -5 is no deposit" in said
    assert all(reason in said for reason in ("handler_error", "unknown_type", "invalid_envelope"))
    assert "the exit code is 0" in said


def test_progress_and_the_batch_id_are_on_standard_error(commands):
    said = commands.resumed.stderr.splitlines()

    assert said[0] == f"Batch first: if it stops early, resume it with: {AGAIN}"
    assert said[1] == "Starting Spark"
    assert {"Round 0: handling messages", "Round 1: handling messages"} <= set(said)


def test_spark_and_its_workers_are_heard_only_in_the_log_file(tmp_path):
    folder = Folder.make(tmp_path)

    done = folder.consistent(*FIRST, "--log-file", "chosen.log")

    assert done.returncode == 0, done.stderr
    said = done.stdout + done.stderr
    assert "WARN" not in said
    assert "this is for the log file" not in said
    log = (tmp_path / "chosen.log").read_text()
    assert "WARN" in log
    assert "this is for the log file" in log


def test_a_published_batch_is_not_run_again(commands):
    document = document_of(commands.again.stdout, "run")

    assert commands.again.returncode == 0
    assert document["was_published"]
    assert document["counts"] == {"dead_letter": 3, "duplicate": 1, "outputs": 9, "processed": 18}
    assert len(document["dead_letters"]) == 3
    assert (commands.folder.path / "outcomes" / "batch_id=first" / "round=1").is_dir()


def test_a_batch_without_an_id_gets_one_and_says_it_first(commands):
    document = document_of(commands.later.stdout, "run")

    assert commands.later.stderr.startswith(f"Batch {document['batch_id']}: ")
    assert not document["was_published"]
    assert document["counts"] == {"outputs": 3, "processed": 6}


def test_there_is_a_log_file_where_none_is_chosen(commands):
    assert "WARN" in commands.log


def test_truncation_cuts_all_but_the_newest_runs(commands):
    document = document_of(commands.truncated.stdout, "truncate")

    assert commands.truncated.returncode == 0, commands.truncated.stderr
    assert (document["streams"], document["cut"], document["versions"]) == (6, 6, 18)
    sums = {"streams": 3, "cut": 3, "versions": 9, "runs": 3, "rows": 0, "letters": 0}
    for found, handler in zip(document["handlers"], ("Account", "Mail"), strict=True):
        assert found.pop("bytes") > 0
        assert found == {"handler": handler, **sums}


def test_what_was_cut_is_no_longer_shown(commands):
    assert commands.shown.returncode == 0
    assert ["kept", "from", "4"] in [line.split() for line in commands.shown.stdout.splitlines()]
    assert "total: 12 → 13" in commands.shown.stdout


def test_both_batches_are_listed_as_published(commands):
    batches = document_of(commands.listed.stdout, "batches")["batches"]

    assert [each["status"] for each in batches] == ["published", "published"]
    assert batches[1]["batch_id"] == "first"


def test_a_batch_publishes_its_outputs_to_a_target(commands):
    batch_id = document_of(commands.later.stdout, "run")["batch_id"]

    assert f"Publishing batch {batch_id} to sqlite:///" in commands.later.stderr
    with closing(sqlite3.connect(commands.folder.path / "published.db")) as target:
        published = target.execute('SELECT DISTINCT type, handler, batch_id FROM "Credited"').fetchall()
    assert published == [("Credited", "Account", batch_id)]

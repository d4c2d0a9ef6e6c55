"""A batch as its user meets it: stopped, resumed, and run again.

The commands run once, one after the other, and each test looks at what one said. The batch that is stopped runs in a
process of its own, as a user's; the later commands in the session that all tests share.
"""

import shlex
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
    again: CompletedProcess[str]


@pytest.fixture(scope="module")
def commands(workplace: Workplace) -> Commands:
    folder = Folder.make(workplace.path)
    return Commands(
        folder,
        stopped=folder.interrupted("Round 0: handling", *FIRST),
        listed_between=folder.consistent("batches", *ON_STORE),
        resumed=workplace.consistent(*FIRST),
        again=workplace.consistent(*FIRST, "--json"),
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

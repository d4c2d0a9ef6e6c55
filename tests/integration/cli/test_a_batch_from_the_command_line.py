"""A batch as its user meets it: stopped and resumed, dead letters and exit codes, and a verification.

A batch that is stopped runs in a separate process. All other commands share the session of the tests.
"""

import json
import shlex
import sqlite3
from contextlib import closing

import pytest

from tests.integration.cli.folder import APP, Folder, deposit, write_lines
from tests.plugins.spark import Workplace
from tests.unit.cli.shapes import document_of

ON_STORE = ["--store", "sqlite:///store.db"]
RUN = ["run", "--app", "bank:app", "--messages", "log.jsonl", "--out", "outcomes"]
RUN += ["--master", "local[2]", *ON_STORE]

# Some commands start Spark in a separate process.
pytestmark = [pytest.mark.timeout(600), pytest.mark.thorough]


@pytest.fixture(scope="module")
def place(workplace: Workplace) -> Workplace:
    Folder.make(workplace.path)  # with three dead letters in thirteen deliveries
    return workplace


def test_a_stopped_batch_resumes_with_its_id_and_is_run_only_once(place):
    on_table = [*ON_STORE, "--table", "bank"]
    first = [*RUN, "--table", "bank", "--cascade", "--batch-id", "first"]
    again = f"consistent {shlex.join(first)}"

    # When it is stopped, it ends quietly, and says how to resume
    code, said = Folder(place.path).interrupted("Round 0: handling", *first)
    assert code == 130, said
    assert f"Stopped. Nothing is lost. Resume with: {again}" in said
    assert "Traceback" not in said
    assert "ERROR" not in said
    assert "Batch first has not ended" in place.consistent("batches", *on_table).stdout

    # When it is run again, it resumes, and dead letters do not fail it
    resumed = place.consistent(*first)
    assert resumed.returncode == 0, resumed.stderr
    rows = [line.split() for line in resumed.stdout.split("\n")]
    assert ["0", "Account", "9", "1", "0", "1", "9"] in rows
    assert ["1", "Mail", "9", "0", "0", "0", "0"] in rows
    assert "ValueError: -5 is no deposit" in resumed.stdout
    assert all(reason in resumed.stdout for reason in ("handler_error", "unknown_type", "invalid_envelope"))
    assert "the exit code is 0" in resumed.stdout
    progress = resumed.stderr.splitlines()
    assert progress[:2] == [f"Batch first: if it stops early, resume it with: {again}", "Starting Spark"]
    assert {"Round 0: handling messages", "Round 1: handling messages"} <= set(progress)

    # When it is run once more, it is already published
    done = place.consistent(*first, "--json")
    document = document_of(done.stdout, "run")
    assert (done.returncode, document["was_published"], len(document["dead_letters"])) == (0, True, 3)
    assert document["counts"] == {"dead_letter": 3, "duplicate": 1, "outputs": 9, "processed": 18}
    assert (place.path / "outcomes" / "batch_id=first" / "round=1").is_dir()


def test_spark_and_its_workers_write_only_to_the_log_file_and_a_line_of_45_mb_is_a_dead_letter(tmp_path):
    folder = Folder.make(tmp_path)
    huge = deposit(2, "a1", 1) | {"body": "x" * 45 * 10**6}
    write_lines(folder.path / "log.jsonl", [deposit(1, "a1", 1), huge, deposit(3, "a1", 1)])

    done = folder.consistent(*RUN, "--table", "bank", "--json", "--log-file", "chosen.log")

    assert done.returncode == 0, done.stderr
    ends = {(row["status"], row["reason"]): row["count"] for row in json.loads(done.stdout)["outcomes"]}
    assert ends == {("processed", None): 2, ("dead_letter", "too_large"): 1}
    said, log = done.stdout + done.stderr, (tmp_path / "chosen.log").read_text()
    for text in ("WARN", "this is for the log file"):
        assert (text in said, text in log) == (False, True)


def batches(place, table):
    done = place.consistent("batches", *ON_STORE, "--table", table, "--json")
    return {batch["batch_id"]: batch["status"] for batch in json.loads(done.stdout)["batches"]}


def test_more_dead_letters_than_the_limit_end_with_exit_code_3(place):
    run = [*RUN, "--table", "first", "--batch-id", "b", "--max-dead-letters"]
    done = place.consistent(*run, "2")

    assert done.returncode == 3, done.stderr
    assert "more than --max-dead-letters 2: the exit code is 3" in done.stderr
    assert batches(place, "first") == {"b": "published"}
    # ... also for a published batch, and with a share of all deliveries
    assert place.consistent(*run, "23%").returncode == 3
    again = place.consistent(*run, "23.1%")
    assert (again.returncode, "the exit code is 0" in again.stdout) == (0, True)


def test_a_strict_batch_is_held_back_until_more_dead_letters_are_allowed(place):
    strict = [*RUN, "--table", "second", "--batch-id", "s", "--strict", "--max-dead-letters"]

    held_back = place.consistent(*strict, "2")
    omitted = place.consistent("outcomes", "--out", "outcomes")
    seen = place.consistent("outcomes", "--out", "outcomes", "--batch-id", "s", "--status", "dead_letter")

    assert held_back.returncode == 3, held_back.stderr
    assert "Batch s is held back: 3 of its deliveries are dead letters, more than 2." in held_back.stderr
    assert batches(place, "second") == {"s": "started"}
    assert "ValueError: -5 is no deposit" in seen.stdout
    assert "is not published" in seen.stderr
    assert "--batch-id s" in omitted.stderr
    released = place.consistent(*strict, "3")
    assert released.returncode == 0, released.stderr
    assert batches(place, "second") == {"s": "published"}
    assert "held back" not in place.consistent("outcomes", "--out", "outcomes").stderr


def test_the_outputs_of_a_redrive_are_published_and_then_all_others(place):
    run, on_table = [*RUN, "--table", "third"], [*ON_STORE, "--table", "third"]
    assert place.consistent(*run, "--batch-id", "t").returncode == 0
    place.consistent("letters", *on_table, "--reason", "handler_error", "--export", "mended.jsonl")
    mended = place.path / "mended.jsonl"
    mended.write_text(mended.read_text().replace("-5", "5"))

    def ids():
        with closing(sqlite3.connect(place.path / "published.db")) as target:
            return [row[0] for row in target.execute("SELECT batch_id FROM Credited ORDER BY rowid")]

    to = "sqlite:///published.db"
    redrive = ["letters", "redrive", *run[1:3], *run[5:], "--edit", "mended.jsonl"]
    done = place.consistent(*redrive, "--batch-id", "r", "--publish", to)
    assert (done.returncode, ids()) == (0, ["r"]), done.stderr
    rest = place.consistent("publish", *on_table, "--to", to)

    assert (rest.returncode, ids()) == (0, ["r", *["t"] * 9]), rest.stderr


def test_a_verification_of_changed_handlers_fails_with_exit_code_1_and_examples(place):
    on_table = [*ON_STORE, "--table", "verified", "--master", "local[2]"]
    verify = ["verify", *on_table, "--messages", "log.jsonl"]
    (place.path / "changed.py").write_text(APP.replace("state.total + message.amount", "state.total + 2"))
    assert place.consistent(*RUN, "--table", "verified", "--cascade").returncode == 0

    same = place.consistent(*verify, "--app", "bank:app", "--cascade")
    changed = place.consistent(*verify, "--app", "changed:app", "--limit", "2")
    machine = place.consistent(*verify, "--app", "changed:app", "--json")

    assert (same.returncode, "Round 1: handling messages again" in same.stderr) == (0, True), same.stderr
    assert "No stored version differs: 19 of 22 deliveries match." in same.stdout
    assert (changed.returncode, "(2 of 3)" in changed.stdout) == (1, True)
    assert "A changed rule needs a new revision" in changed.stdout
    assert "nondeterministic: The replay of version 1 has" in changed.stdout
    document = document_of(machine.stdout, "verify")
    assert (machine.returncode, document["is_clean"]) == (1, False)
    assert document["matches"] + document["different"] + 3 == document["deliveries"] == 13
    first = next(each for each in document["differences"] if each["business_id"] == "a0")
    assert first["changes"] == [{"field": "total", "before": 3, "after": 2}]

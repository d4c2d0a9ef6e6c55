"""Metrics files and events in JSON, as commands write them."""

from __future__ import annotations

import json
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from tests.integration.cli.folder import REPOSITORY, Folder, deposit, write_lines
from tests.plugins.spark import Workplace
from tests.plugins.telemetry import samples

WHERE = ["--app", "bank:app", "--store", "sqlite:///store.db", "--out", "outcomes"]
TO = ["--publish", "sqlite:///published.db", "--metrics-file", "bank.prom"]
TO += ["--master", "local[2]", "--cascade"]
JSON = {"CONSISTENT_LOG_FORMAT": "json"}


def events(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_a_batch_writes_metrics_and_events(workplace: Workplace):
    Folder.make(workplace.path)
    run = ["run", *WHERE, *TO, "--table", "bank"]
    command = [*run, "--messages", "log.jsonl", "--batch-id", "night", "--json"]

    done = workplace.consistent(*command, **JSON)

    assert done.returncode == 0, done.stderr
    found = samples((workplace.path / "bank.prom").read_text())
    assert found["consistent_messages_total", "Account", "processed"] == 9
    assert found["consistent_dead_letters_total", "", "unknown_type"] == 1
    assert found["consistent_published_outputs_total",] == 9
    told = events(done.stderr)
    assert {each["batch"] for each in told if each["event"].startswith("Round")} == {"night"}
    letters = {each["reason"]: each for each in told if each["event"] == "dead letters"}
    assert letters["handler_error"]["message_ids"] == ["m20"]
    assert letters["handler_error"]["error"].startswith("ValueError: -5 is no deposit")

    # The counters continue, and the published batch adds nothing
    again = workplace.consistent(*command)
    assert again.returncode == 0, again.stderr
    assert samples((workplace.path / "bank.prom").read_text()) == found
    later = workplace.consistent(*run, "--messages", "later.jsonl")
    assert later.returncode == 0, later.stderr
    now = samples((workplace.path / "bank.prom").read_text())
    assert now["consistent_messages_total", "Account", "processed"] == 12
    assert now["consistent_batches_total",] == 2


@pytest.mark.thorough
def test_a_stream_writes_the_metrics_of_each_epoch(workplace: Workplace):
    Folder.make(workplace.path)
    incoming = workplace.path / "incoming"
    incoming.mkdir()
    for number in range(2):
        write_lines(incoming / f"{number}.jsonl", [deposit(number, "a1", 1), deposit(number, "a1", 1)])
    query = ["--source", "incoming", "--format", "json", "--query", "live", "--checkpoint", "checkpoint"]

    (workplace.path / "bank.prom").unlink(missing_ok=True)

    done = workplace.consistent(
        "stream", *WHERE, *TO, "--table", "live", *query, "--available-now", "--max-files", "1", **JSON
    )

    assert done.returncode == 0, done.stderr
    found = samples((workplace.path / "bank.prom").read_text())
    epochs = [each for each in events(done.stderr) if "counts" in each]
    assert found["consistent_batches_total",] == len(epochs) >= 2
    assert found["consistent_messages_total", "Account", "processed"] == 2
    assert found["consistent_messages_total", "Account", "duplicate"] == 2
    assert found["consistent_published_outputs_total",] == 2
    assert [each["batch"] for each in epochs] == [f"live-{number}" for number in range(len(epochs))]


def test_a_metrics_file_in_no_folder_is_refused(workplace: Workplace):
    Folder.make(workplace.path)
    where = [*WHERE, "--table", "bank", "--metrics-file", "nowhere/bank.prom", "--messages", "log.jsonl"]

    done = workplace.consistent("run", *where, **JSON)

    assert done.returncode == 2
    (told,) = events(done.stderr)
    assert (told["level"], "nowhere/bank.prom does not exist" in told["event"]) == ("error", True)


def test_a_consumer_answers_metrics_and_logs_events(tmp_path: Path):
    command = [sys.executable, "-m", "runtime", "serve", "--app", "tests.serve_kills.apps:app"]
    command += ["--from", "stdin:"]
    command += ["--store", f"sqlite:///{tmp_path}/store.db", "--table", "accounts", "--health-port", "0"]
    where: dict[str, Any] = {
        "cwd": REPOSITORY,
        "stdin": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "text": True,
    }
    with subprocess.Popen(command, env={"PATH": "/bin", **JSON}, **where) as process:
        assert process.stdin
        assert process.stderr
        port = json.loads(process.stderr.readline())["event"].rpartition(":")[2]
        invalid = {"message_id": "m2", "type": "Add", "body": {"account": "anna", "number": "x"}}
        for row in ({"message_id": "m1", "type": "Unknown", "body": {}}, invalid):
            process.stdin.write(f"{json.dumps(row)}\n")
        process.stdin.flush()
        wanted = {
            ("consistent_dead_letters_total", "", "unknown_type"): 1,
            ("consistent_dead_letters_total", "Accounts", "invalid_body"): 1,
        }
        found: dict[tuple[str, ...], float] = {}
        for _ in range(200):
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                found = samples(answer.read().decode())
            if found.items() >= wanted.items():
                break
            time.sleep(0.05)
        assert found.items() >= wanted.items(), found
        process.stdin.close()
        told = events(process.stderr.read())
        assert process.wait(60) == 0
    (letter,) = [each for each in told if each.get("message") == "m2"]
    assert [letter[name] for name in ("reason", "object", "handler")] == ["invalid_body", "anna", "Accounts"]

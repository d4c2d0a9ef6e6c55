"""Messages that kill consumers, or hang in them: others are handled, and these become dead letters."""

from __future__ import annotations

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest

from runtime.supervision import fatal_messages
from tests.support.campaigns import ROOT

APP = """
import os, signal, time
from handlers import App
from tests.serve_kills.apps import Account, Accounts, handles, Add, Context

class Poisoned(Accounts):
    @handles(by="account")
    def add(self, state: Account, message: Add, context: Context) -> Account:
        if message.account == "kills":
            os.kill(os.getpid(), signal.SIGKILL)
        if message.account == "hangs":
            time.sleep(999)
        if message.account == "ignores signals":
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGALRM})
            time.sleep(999)
        return Accounts.add(self, state, message, context)

app = App(Poisoned)
"""


def served(folder: Path, *accounts: str) -> tuple[int, dict[str, int], str]:
    """Run a consumer on one message for each account. Return its exit code, counts and log."""
    (folder / "poisoned.py").write_text(APP)
    command = [sys.executable, "-m", "runtime", "serve", "--app", "poisoned:app", "--from", "stdin:"]
    command += ["--store", f"sqlite:///{folder}/store.db", "--table", "accounts", "--json"]
    command += ["--crashes", f"{folder}/notes", "--handler-timeout", "1s"]
    lines = [
        json.dumps({"message_id": f"m-{each}", "type": "Add", "body": {"account": each, "number": 1}})
        for each in accounts
    ]
    done = subprocess.run(
        command, cwd=ROOT, env={"PATH": "", "PYTHONPATH": str(folder)},
        input="\n".join(lines), capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_a_message_that_kills_consumers_is_a_dead_letter_after_two_deaths(tmp_path):
    ends = [served(tmp_path, "anna", "kills", "bert")[0] for _ in range(2)]
    assert ends == [-9, -9]

    code, counts, log = served(tmp_path, "anna", "kills", "bert")

    assert code == 0
    assert (counts["dead_letter"], counts["processed"] + counts.get("duplicate", 0)) == (1, 2)
    assert "m-kills is a dead letter (handler_crashed)" in log


def test_notes_of_processes_that_live_and_other_files_are_no_deaths(tmp_path):
    for number in range(2):
        (tmp_path / f"{number}.note").write_bytes(b"ended in a call.")
        (tmp_path / f"raffle.{number}").touch()  # no note
    with (tmp_path / "lives.note").open("wb") as file:
        file.write(b"is in this call.")
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert fatal_messages(tmp_path) == {b"ended in a call."}
        assert len(list(tmp_path.glob("*.note"))) == 1


def test_a_message_that_hangs_is_a_dead_letter_at_once(tmp_path):
    assert served(tmp_path, "hangs", "anna")[:2] == (0, {"dead_letter": 1, "processed": 1, "published": 1})


@pytest.mark.thorough
def test_a_handler_that_ignores_signals_ends_its_process(tmp_path):
    ends = [served(tmp_path, "ignores signals")[0] for _ in range(3)]

    assert ends == [1, 1, 0]

"""A folder with an app and logs, and the command line as a user calls it there: in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
SHORT_LIVED_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Halves the time of a Spark that lives for seconds."""

APP = """
from handlers import App, Context, Handler, Message, State, handles


class Deposited(Message):
    account: str
    amount: int


class Credited(Message):
    account: str
    total: int


class Balance(State):
    total: int = 0


class Letters(State):
    sent: int = 0


class Account(Handler[Balance]):
    @handles(by="account")
    def deposited(self, state: Balance, message: Deposited, context: Context) -> Balance:
        print("this is for the log file")
        if message.amount < 0:
            raise ValueError(f"{message.amount} is no deposit")
        total = state.total + message.amount
        context.publish(Credited(account=message.account, total=total))
        return Balance(total=total)


class Mail(Handler[Letters]):
    @handles(by="account")
    def credited(self, state: Letters, message: Credited, context: Context) -> Letters:
        return Letters(sent=state.sent + 1)


app = App(Account, Mail)
"""


@dataclass(frozen=True)
class Folder:
    """A folder to work in, with an app, a log with all sorts of deliveries, and a later log."""

    path: Path

    @classmethod
    def make(cls, path: Path) -> Folder:
        (path / "bank.py").write_text(APP)
        first = [deposit(number, f"a{number % 3}", number) for number in range(1, 10)]
        strange = [
            deposit(20, "a1", -5),
            {"message_id": "m21", "type": "Withdrawn", "body": "{}"},
            "no message",
        ]
        write_lines(path / "log.jsonl", [*first, first[0], *strange])
        write_lines(
            path / "later.jsonl", [deposit(number, f"a{number % 3}", 1, day=2) for number in range(30, 33)]
        )
        return cls(path)

    def consistent(self, *arguments: str, java: str = SHORT_LIVED_JAVA) -> subprocess.CompletedProcess[str]:
        """Run a command to its end, with these options for Java."""
        where = self._where(java)
        return subprocess.run(self._command(arguments), **where, capture_output=True, check=False)

    def interrupted(self, after: str, *arguments: str) -> tuple[int, str]:
        """Run a command until it says something, press Ctrl-C, and return its exit code and all that it said."""
        pipes: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "start_new_session": True,
            # A shell that runs the tests in the background has told them, and so their children, to ignore Ctrl-C.
            "preexec_fn": lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        }
        with subprocess.Popen(self._command(arguments), **self._where(), **pipes) as process:
            said = ""
            assert process.stdout is not None
            assert process.stderr is not None
            for line in process.stderr:
                said += line
                if after in line:
                    os.killpg(process.pid, signal.SIGINT)
            return process.wait(), said + process.stdout.read()

    def _command(self, arguments) -> list[str]:
        return [sys.executable, "-m", "runtime", *arguments]

    def _where(self, java: str = SHORT_LIVED_JAVA) -> dict[str, Any]:
        environment = {
            name: value for name, value in os.environ.items() if not name.startswith("CONSISTENT_")
        }
        added = {"PYTHONPATH": str(REPOSITORY), "JDK_JAVA_OPTIONS": java}
        return {"cwd": self.path, "env": {**environment, **added}, "text": True}


def deposit(number: int, account: str, amount: int, day: int = 1) -> dict[str, Any]:
    return {
        "message_id": f"m{number}",
        "type": "Deposited",
        "body": json.dumps({"account": account, "amount": amount}),
        "sequence": number,
        "enqueued_at": f"2026-01-0{day}T00:00:{number:02}Z",
    }


def write_lines(path: Path, rows) -> None:
    path.write_text("".join(f"{row if isinstance(row, str) else json.dumps(row)}\n" for row in rows))

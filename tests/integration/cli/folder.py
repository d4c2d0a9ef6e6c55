"""A folder with an app and logs, in which commands run in separate processes, as a user calls them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parents[3]
SHORT_LIVED_JAVA = (
    "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"  # halves the time of a Spark that lives for seconds
)

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
    """A folder with an app, a log with valid and invalid deliveries, and a later log."""

    path: Path

    @classmethod
    def make(cls, path: Path) -> Folder:
        (path / "bank.py").write_text(APP)
        first = [deposit(number, f"a{number % 3}", number) for number in range(1, 10)]
        later = [deposit(number, f"a{number % 3}", 1, day=2) for number in range(30, 33)]
        unknown = {"message_id": "m21", "type": "Withdrawn", "body": "{}"}
        write_lines(path / "log.jsonl", [*first, first[0], deposit(20, "a1", -5), unknown, "no message"])
        write_lines(path / "later.jsonl", later)
        return cls(path)

    def consistent(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        return subprocess.run(self.command(*arguments), **self.where(), capture_output=True, check=False)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        """Start a command in a session of its own, which a signal can interrupt."""
        pipes: dict[str, Any] = {
            "stdout": subprocess.PIPE,
            "stderr": subprocess.PIPE,
            "start_new_session": True,
        }
        # A shell that runs the tests in the background has told them, and so their children, to ignore Ctrl-C.
        listen = partial(signal.signal, signal.SIGINT, signal.SIG_DFL)
        return subprocess.Popen(self.command(*arguments), **self.where(), **pipes, preexec_fn=listen)  # noqa: PLW1509

    def interrupted(self, after: str, *arguments: str) -> tuple[int, str]:
        """Run a command until it prints `after`, press Ctrl-C, and return its exit code and output."""
        with self.start(*arguments) as process:
            said = ""
            assert process.stdout is not None
            assert process.stderr is not None
            for line in process.stderr:
                said += line
                if after in line:
                    os.killpg(process.pid, signal.SIGINT)
            return process.wait(), said + process.stdout.read()

    def command(self, *arguments: str) -> list[str]:
        return [sys.executable, "-m", "runtime", *arguments]

    def where(self) -> dict[str, Any]:
        """Return the working directory and the environment of a command."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("CONSISTENT_")}
        added = {"PYTHONPATH": str(REPOSITORY), "JDK_JAVA_OPTIONS": SHORT_LIVED_JAVA}
        return {"cwd": self.path, "env": {**kept, **added}, "text": True}


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

"""Drivers that are killed: each puts a round in place, and ends itself by SIGKILL at another step of that.

Usage: python -m tests.support.killed_placing OUT FOLDER. Driver N writes to OUT/step-N, and has its ledger in
FOLDER/N.db. Prints how many were killed, which is how many steps there are.
"""

import itertools
import os
import signal
import sys
from pathlib import Path

import pytest

from eventstore import connect, drive
from runtime.file_systems import within
from runtime.ledger.ledger import Ledger
from tests.support.rounds import Driver, Steps
from tests.unit.runtime.worker import ToldClock


def ledger_of(folder: Path, number: int) -> Ledger:
    store = connect(f"sqlite:///{folder}/{number}.db")
    return Ledger(drive(store.table("games")), ToldClock())


def main(out: str, folder: Path) -> None:
    steps = Steps(pytest.MonkeyPatch())
    for number in itertools.count():
        # Each in a process of its own: what speaks to an object store does not survive a fork.
        child = os.fork()
        if child == 0:
            driver = Driver(within(out, f"step-{number}"), ledger_of(folder, number))
            steps.before(number, lambda: os.kill(os.getpid(), signal.SIGKILL))
            driver.commit()
            os._exit(0)
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            continue
        print(number)
        sys.exit(os.WEXITSTATUS(status))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))

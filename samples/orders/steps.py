"""From the log to the warehouse and the letters: each step is a command that can be typed.

Killed at any step, or run twice, each does what it has not done yet: so all of them can be run again.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from samples.orders.log import generate

LOG = "orders.jsonl"
BATCH = "orders-1"
_ORDERS = 40


class Places(NamedTuple):
    """Where things are kept, as urls: states, documents, what the warehouse gets, and the keys of letters.

    Without a url keys are in the table of the states.
    """

    store: str = "sqlite:///store.db"
    documents: str = "documents"
    warehouse: str = "sqlite:///warehouse.db"
    keys: str | None = None


EMBEDDED = Places()
"""Files in the folder that the steps run in."""


def steps(places: Places) -> Iterator[str]:
    """Yield the commands in their order: handle, publish, tell the customers, and see what the warehouse has got."""
    batch = f"--batch {BATCH} --store {places.store} --table orders"
    yield (
        f"consistent run --app samples.orders:app --messages {LOG} --cascade --batch-id {BATCH} --out outcomes "
        f"--store {places.store} --table orders --documents {places.documents}"
    )
    yield f"consistent publish {batch} --to {places.warehouse} --types OrderPaid --map OrderPaid=paid_orders"
    letters = "--types CustomerTold --customer customer --strategy at-most-once"
    keys = f" --keys {places.keys}" if places.keys else ""
    yield f"consistent publish {batch} --to samples.orders.post:send {letters}{keys}"
    yield f"python -m samples.orders.warehouse {places.warehouse} {places.documents}"


def run(places: Places, folder: Path) -> None:
    """Write the log into a folder, and run each step there. Exits with the code of one that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    write_log(folder)
    for step in steps(places):
        print(f"\n{step}", flush=True)
        done = subprocess.run(command(step), cwd=folder, check=False)
        if done.returncode:
            sys.exit(done.returncode)


def write_log(folder: Path) -> None:
    """Write the log into a folder, unless it is there."""
    file = folder / LOG
    if not file.exists():
        file.write_text("".join(f"{json.dumps(row)}\n" for row in generate(_ORDERS)))


def command(step: str) -> Sequence[str]:
    """Return what runs a step, in the Python that runs this."""
    program, *arguments = shlex.split(step)
    module = ["-m", "runtime"] if program == "consistent" else []
    return [sys.executable, *module, *arguments]

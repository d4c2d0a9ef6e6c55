"""`python -m samples.orders`: the sample from its log to the warehouse and the letters, in the folder `orders-output`.

Each step is a command, which is shown before it runs: all of them can be typed again, and change nothing then.
"""

import json
import shlex
import subprocess
import sys
from pathlib import Path

from samples.orders.log import generate

FOLDER = Path("orders-output")
STORE = "--store sqlite:///store.db --table orders"
BATCH = "orders-1"
RUN = f"run --app samples.orders:app --messages orders.jsonl {STORE} --out outcomes --batch-id {BATCH} --cascade"
PUBLISH = f"publish --batch {BATCH} {STORE} --to sqlite:///warehouse.db --types OrderPaid --map OrderPaid=paid_orders"
DELIVER = (
    f"deliver --batch {BATCH} {STORE} --types CustomerTold --customer customer --sender samples.orders.post:send "
    f"--strategy at-most-once --keys sqlite:///keys.db --records letters"
)
STEPS = (RUN, PUBLISH, DELIVER)
_ORDERS = 40


def main() -> None:
    """Write the log, if there is none yet, and run each step."""
    FOLDER.mkdir(exist_ok=True)
    write_log(FOLDER / "orders.jsonl")
    for step in STEPS:
        print(f"\nconsistent {step}", flush=True)
        command = [sys.executable, "-m", "consistent_messaging", *shlex.split(step)]
        if subprocess.run(command, cwd=FOLDER, check=False).returncode:
            sys.exit(1)
    print(f"\nPaid orders are in {FOLDER}/warehouse.db, what customers were told in {FOLDER}/letters.txt.")


def write_log(file: Path) -> None:
    """Write the log, unless it is there."""
    if not file.exists():
        file.write_text("".join(f"{json.dumps(row)}\n" for row in generate(_ORDERS)))


if __name__ == "__main__":
    main()

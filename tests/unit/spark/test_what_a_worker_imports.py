"""What a Python worker of Spark imports before it handles its first message: every new worker waits for that.

Pandas is not among what is looked for: Spark imports it in every worker that returns a batch.
"""

import json
import pickle
import subprocess
import sys

from runtime.ledger.batch import BatchContext
from runtime.spark.worker.job import FoldJob
from samples.shooting_range import app

NOT_NEEDED = {"aiohttp", "asyncio", "azure", "hypothesis", "rich", "tenacity", "typer"}
OF_THE_DRIVER = {"batch", "logs", "redrives", "rounds", "sources", "streaming", "truncation", "verification"}
WORKER = """
import json, pickle, sys
import pyspark.worker
before = set(sys.modules)
fold = pickle.loads(bytes.fromhex(sys.argv[1])).fold
outcomes = list(fold([]))
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported(store: str) -> set[str]:
    """Return the modules that a worker imports to fold a partition without messages."""
    job = pickle.dumps(FoldJob(app, store, "games", BatchContext("night"))).hex()
    done = subprocess.run([sys.executable, "-c", WORKER, job], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_on_a_file_it_imports_neither_an_event_loop_nor_what_other_commands_and_stores_need(tmp_path):
    found = imported(f"sqlite:///{tmp_path}/store.db")

    assert {"runtime", "handlers", "eventstore", "pydantic", "sqlite3", "samples"} <= found
    assert {name.partition(".")[0] for name in found} & NOT_NEEDED == set()


def test_it_imports_nothing_of_what_the_driver_does(tmp_path):
    found = imported(f"sqlite:///{tmp_path}/store.db")

    assert "runtime.spark.worker.job" in found
    assert found & {f"runtime.spark.{name}" for name in OF_THE_DRIVER} == set()

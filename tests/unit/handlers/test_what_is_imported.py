"""Handlers are written, tested and linted without Spark, Azure, or what the command line needs."""

import json

from tests.unit.handlers.processes import REPOSITORY, run_python

NOT_NEEDED = {
    "aiohttp",
    "azure",
    "eventstore",
    "hypothesis",
    "numpy",
    "pandas",
    "py4j",
    "pyarrow",
    "pyspark",
    "rich",
    "runtime",
    "typer",
}
IMPORT = """
import json, sys
import handlers, handlers.guard, handlers.lint, handlers.testing
print(json.dumps(sorted({name.partition(".")[0] for name in sys.modules})))
"""
USE = """
import json, sys
sys.modules.update(dict.fromkeys(json.loads(sys.argv[1])))  # importing them fails from here on

from pathlib import Path
from handlers.lint import Target, check
from handlers.testing import HandlerSpec
from samples.shooting_range.domain import StartNewRound
from samples.shooting_range.handlers import ShootingRange

start = StartNewRound(game_id="5d2a4a34-6d0b-4d3c-9b4e-0d9a2a6f0f6e", position=7)
HandlerSpec(ShootingRange).when(start).then(publishes=[])
report = check([Target(Path(sys.argv[2]))])
print(report.handlers, len(report.findings))
"""


def test_importing_handlers_imports_none_of_it():
    imported = set(json.loads(run_python(IMPORT, hash_seed=0)))

    assert {"handlers", "pydantic", "msgpack"} <= imported
    assert imported & NOT_NEEDED == set()


def test_handlers_are_tested_and_linted_where_it_cannot_be_imported():
    source = REPOSITORY / "samples" / "shooting_range" / "handlers.py"

    assert run_python(USE, json.dumps(sorted(NOT_NEEDED)), str(source), hash_seed=0) == "2 0\n"

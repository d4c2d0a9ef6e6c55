"""Handlers are written, tested and linted without Spark, Azure, or what the command line needs."""

import json

from tests.unit.handlers.processes import run_python

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


def test_importing_handlers_imports_none_of_it():
    imported = set(json.loads(run_python(IMPORT, hash_seed=0)))

    assert {"handlers", "pydantic", "msgpack"} <= imported
    assert imported & NOT_NEEDED == set()

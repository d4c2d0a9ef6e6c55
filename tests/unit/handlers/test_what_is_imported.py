"""Handlers are written, tested and linted without Spark, Azure, or what the command line needs."""

import json

import pytest

from tests.unit.handlers.processes import run_python

NOT_NEEDED = {
    "aiohttp", "azure", "eventstore", "hypothesis", "numpy", "pandas", "py4j", "pyarrow", "pyspark", "rich", "runtime",
    "typer",
}  # fmt: skip


@pytest.mark.parametrize(
    ("imported", "not_needed"),
    [
        ("handlers", {"handlers.guard", "handlers.lint", "handlers.testing"}),
        ("handlers, handlers.guard, handlers.lint, handlers.testing", NOT_NEEDED),
    ],
)
def test_importing_handlers_imports_none_of_it(imported, not_needed):
    loaded = json.loads(
        run_python(f"import json, sys, {imported}; print(json.dumps([*sys.modules]))", hash_seed=0)
    )

    assert {"handlers", "pydantic", "msgpack"} <= set(loaded)
    assert not_needed.isdisjoint(loaded)

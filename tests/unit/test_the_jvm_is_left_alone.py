"""Spark is used through what sessions of both kinds have: nothing reaches for the JVM of a session of this process."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PRODUCT = ("eventstore", "handlers", "runtime", "samples")
OF_CLASSIC_SESSIONS = frozenset(
    {
        "_jdf",
        "_jsc",
        "_jsparkSession",
        "_jvm",
        "_sc",
        "accumulator",
        "broadcast",
        "rdd",
        "sparkContext",
        "statusTracker",
    }
)
"""What a session of Spark Connect, or a DataFrame of it, does not have."""


def sources() -> Iterator[Path]:
    for name in PRODUCT:
        path = REPOSITORY / name
        yield from [path] if path.is_file() else path.rglob("*.py")


def reached_for(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Attribute) and node.attr in OF_CLASSIC_SESSIONS:
            yield f"{node.lineno}: {node.attr}"


def test_no_code_of_the_product_uses_what_only_classic_sessions_have():
    found = {str(path): list(reached_for(path.read_text())) for path in sources()}
    assert len(found) > 150
    assert {path: uses for path, uses in found.items() if uses} == {}


@pytest.mark.parametrize(
    "code", ["spark.sparkContext.defaultParallelism", "jvm = spark._jvm", "frame.rdd.count()"]
)
def test_it_would_be_found(code):
    assert list(reached_for(code))

"""Print the weight of the code, and fail where a figure is over its ceiling: `python scripts/weight.py`.

A figure may rise only with its ceiling, in a commit that says why.
"""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grimp

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("eventstore", "handlers", "runtime", "samples")

CEILINGS = {
    "product lines": 47_335,
    "product modules": 188,
    "import lines, % of product": 6.7,
    "modules with a single importer": 19,
    "modules that runtime.spark.batch imports": 70,
    "test lines": 64_379,
    "make targets": 12,
    "extras": 9,
}
"""They are lowered as the code becomes lighter: 45,000 lines, and 50,000 of tests, are aimed at."""

_INTERCHANGEABLE = re.compile(r"\.(backends|targets|commands)\b")
"""Modules that are one of several alike are imported where one is chosen, and nowhere else."""


def figures() -> Iterator[float]:
    """Yield the figures in the order of the ceilings."""
    product = [file for package in PACKAGES for file in sorted((ROOT / package).rglob("*.py"))]
    lines = _lines(product)
    yield lines
    yield len(product)
    yield round(100 * sum(map(_import_lines, product)) / lines, 1)
    graph = grimp.build_graph(*PACKAGES, cache_dir=None)
    parts = (module for module in graph.modules if not _INTERCHANGEABLE.search(module))
    yield sum(len(graph.find_modules_that_directly_import(module)) == 1 for module in parts)
    yield len(graph.find_upstream_modules("runtime.spark.batch"))
    listed = subprocess.run(
        ["git", "ls-files", "tests/*.py"], cwd=ROOT, capture_output=True, check=True, text=True
    )
    yield _lines([ROOT / name for name in listed.stdout.split() if (ROOT / name).exists()])
    yield len(re.findall(r"^[a-z-]+:.*## ", (ROOT / "Makefile").read_text(), re.MULTILINE))
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    yield len(config["options.extras_require"])


def _lines(files: list[Path]) -> int:
    return sum(file.read_text().count("\n") for file in files)


def _import_lines(file: Path) -> int:
    imports = (
        node
        for node in ast.walk(ast.parse(file.read_text()))
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    return sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in imports)


def main() -> None:
    """Print a table, and exit with 1 where a figure is over its ceiling."""
    is_too_heavy = False
    for (name, ceiling), figure in zip(CEILINGS.items(), figures(), strict=True):
        is_over = figure > ceiling
        is_too_heavy |= is_over
        print(f"{name:<42} {figure:>8,} of {ceiling:>8,}{'  too heavy' if is_over else ''}")
    sys.exit(is_too_heavy)


if __name__ == "__main__":
    main()

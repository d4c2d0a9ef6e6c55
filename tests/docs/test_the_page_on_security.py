"""SECURITY.md: each promise names tests that hold it, which are there."""

from __future__ import annotations

import ast
import re

import pytest

from tests.docs.pages import ROOT, text

_LINK = re.compile(r"\[[^]]+\]\(([^)]+)\)")


def rows() -> list[list[str]]:
    """Return the cells of each threat."""
    _, _, table = text("SECURITY.md").partition("## Threats")
    lines = [line for line in table.partition("\n## ")[0].splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines[1:]]


def named_in(path: str) -> list[str]:
    """Return the names of the tests in a file."""
    tree = ast.parse((ROOT / path).read_text())
    return [
        each.name
        for each in ast.walk(tree)
        if isinstance(each, ast.FunctionDef) and each.name.startswith("test_")
    ]


def test_there_are_threats():
    assert len(rows()) > 10


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0][:40])
def test_each_promise_names_tests_that_hold_it(row):
    _, promise, held_by, *_ = row

    assert promise, "a threat without a promise belongs into the last column of another"
    assert _LINK.findall(held_by), f"no test holds: {promise}"
    for path in _LINK.findall(held_by):
        assert path.startswith("tests/")
        assert named_in(path), path

"""The tables of docs/algorithms.md say what `python -m benchmarks algorithms` finds now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks.__main__ import BENCHMARKS
from benchmarks.algorithms.__main__ import PARTS, cli
from benchmarks.marks import marks, put_parts

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "algorithms.md"


@pytest.mark.thorough
def test_its_tables_are_those_that_the_command_writes(tmp_path):
    # Given the page without its tables
    page = tmp_path / "algorithms.md"
    page.write_text(PAGE.read_text())
    put_parts(page, dict.fromkeys(PARTS, "to be measured\n"))
    assert page.read_text().count("to be measured") == len(PARTS)

    done = CliRunner().invoke(cli, ["--document", str(page)])

    assert done.exit_code == 0, done.output
    assert page.read_text() == PAGE.read_text(), "`python -m benchmarks algorithms` writes the page anew"


@pytest.mark.parametrize("part", PARTS)
def test_a_document_without_marks_is_refused_before_anything_is_written(part, tmp_path):
    page = tmp_path / "page.md"
    text = PAGE.read_text().replace(marks(part)[1], "")
    page.write_text(text)

    done = CliRunner().invoke(cli, ["--document", str(page)])

    assert done.exit_code == 2
    assert f"<!-- end of {part} -->" in " ".join(re.findall(r"[^\s│]+", done.output))
    assert page.read_text() == text


def test_a_document_that_is_not_there_is_refused(tmp_path):
    done = CliRunner().invoke(cli, ["--document", str(tmp_path / "none.md")])

    assert done.exit_code == 2


def test_the_command_that_it_names_is_there_and_listed():
    (name,) = re.findall(r"`python -m benchmarks (\w+) --document docs/algorithms\.md`", PAGE.read_text())

    assert BENCHMARKS[name].endswith("writes docs/algorithms.md")

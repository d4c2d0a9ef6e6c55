"""What `docs/determinism.md` says of the linter is true: its rules, its figures, its commands, its settings."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path

from handlers.lint import RULES
from tests.unit.handlers.lint.corpus_check import handlers, marks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "determinism.md").read_text()
HOOKS = (ROOT / ".pre-commit-hooks.yaml").read_text()
FOLDERS = ["bad", "good", "unseen"]


def counted(kind: str, folder: str) -> int:
    return len(marks(folder, kind))


def consistent(folder: Path, command: str) -> subprocess.CompletedProcess[str]:
    program, *arguments = shlex.split(command)
    assert program == "consistent"
    return subprocess.run(
        [sys.executable, "-m", "runtime", *arguments],
        cwd=folder,
        env={"PYTHONPATH": str(ROOT), "COLUMNS": "250"},
        capture_output=True,
        text=True,
        check=False,
    )


def test_its_table_lists_every_rule_as_it_is():
    rows = re.findall(r"^\| (CM\d{3}) \|.*$", PAGE, re.MULTILINE)
    assert rows == list(RULES)
    for rule in RULES.values():
        assert f"| {rule.code} | {rule.name} | {rule.why} | {rule.instead} |" in PAGE


def test_its_figures_are_those_of_the_corpus():
    found, missed = counted("expect", "bad"), counted("miss", "bad")
    also_found, also_missed = counted("expect", "unseen"), counted("miss", "unseen")
    good, false = len(handlers("good")), counted("false", "good")
    unseen, also_false = len(handlers("unseen")), counted("false", "unseen")

    assert f"| handlers | {len(handlers('bad'))} bad, {good} good | {unseen} |" in PAGE
    assert f"| mistakes in them | {found + missed} | {also_found + also_missed} |" in PAGE
    assert (
        f"| found, at their line and with their code | {found} ({found / (found + missed):.0%}) "
        f"| {also_found} ({also_found / (also_found + also_missed):.0%}) |"
    ) in PAGE
    assert f"| false alarms | {false} | {also_false} |" in PAGE


def test_each_known_miss_and_false_alarm_is_told():
    for folder in FOLDERS:
        for mark in [*marks(folder, "miss"), *marks(folder, "false")]:
            assert f"| `{folder}/{mark.file}:{mark.line}` | {mark.kind} | {mark.code} | {mark.why} |" in PAGE


def test_the_hook_that_it_names_is_there_and_calls_the_command():
    assert re.search(r"^- id: consistent-lint$", HOOKS, re.MULTILINE)
    assert "- id: consistent-lint" in PAGE
    (entry,) = re.findall(r"^  entry: (.*)$", HOOKS, re.MULTILINE)
    assert consistent(ROOT, f"{entry} samples/shooting_range/handlers.py").returncode == 0

"""Help teaches, fits 80 columns, and starts at once: nothing heavy is imported for it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from runtime.cli.application import application
from tests.unit.cli.shapes import shapes
from tests.unit.cli.stores import ON_STORE

REPOSITORY = Path(__file__).parents[3]
COMMANDS = [
    "init", "demo", "lint", "config", "run", "stream", "serve", "outcomes", "publish", "letters redrive",
    "letters discard", "batches", "truncate", "verify", "reprocess", "switch", "fork", "show", "sql", "explore",
    "check", "export", "import", "forget", "tokens",
]  # fmt: skip
HEAVY = ("pyspark", "py4j", "pandas", "numpy", "pyarrow", "azure", "aiohttp")
HELP = [
    *(
        f"{name} --help"
        for name in ("run", "stream", "outcomes", "truncate", "demo", "verify", "show", "tokens")
    )
]


def options(command):
    found: Any = typer.main.get_command(application)
    for word in command.split():
        found = found.commands[word]
    return {name for parameter in found.params for name in parameter.opts}


def test_all_commands_are_listed_and_a_missing_one_is_a_usage_error(consistent):
    said, without = consistent("--help"), consistent()

    assert (said.code, without.code) == (0, 2)
    assert all(command.split()[0] in said.out for command in COMMANDS)
    assert "--install-completion" in said.out
    assert "truncate" in without.out + without.err


def test_a_variable_of_no_option_is_named(consistent, monkeypatch):
    monkeypatch.setenv("CONSISTENT_TABEL", "games")
    monkeypatch.setenv("CONSISTENT_TRUNCATE_OLDER_THAN", "3d")
    monkeypatch.setenv("CONSISTENT_TARGET", "file:///there")
    monkeypatch.setenv("CONSISTENT_ENV", "")

    said = consistent("show", *ON_STORE)

    (warning,) = (line for line in said.err.splitlines() if line.startswith("Warning"))
    assert "CONSISTENT_TABEL is ignored" in warning
    assert "Did you mean CONSISTENT_TABLE?" in warning


def test_letters_lists_dead_letters_by_default(consistent):
    assert consistent("letters", *ON_STORE).err == consistent("letters", "list", *ON_STORE).err != ""


def test_help_imports_nothing_heavy():
    program = (
        "import contextlib, sys\n"
        "from runtime.cli import main\n"
        "for each in sys.argv[1:]:\n"
        "    with contextlib.suppress(SystemExit):\n"
        "        main(each.split())\n"
        "print(*sys.modules, file=sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, "--help", *HELP, "lint --rules"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)}, capture_output=True, text=True, check=True,
    )  # fmt: skip

    assert done.stdout.count("Usage: ") == 1 + len(HELP)
    imported = {name.partition(".")[0] for name in done.stderr.split()}
    assert "typer" in imported
    assert imported.isdisjoint(HEAVY)


@pytest.fixture
def narrow(consistent, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    return lambda *arguments: consistent(*arguments, "--help").out


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_examples_to_paste_on_80_columns_and_whole_defaults(narrow, command):
    said = narrow(*command.split())

    examples = re.findall(r"^      consistent (?:.*\\\n)*.*$", said, re.MULTILINE)
    assert examples
    for example in examples:
        words = shlex.split(example)  # which joins the lines as a shell does
        assert words[1 : 1 + len(command.split())] == command.split()
        assert {word for word in words if word.startswith("--")} <= options(command)
    assert max(map(len, said.splitlines())) <= 80
    assert "…" not in said
    assert ("sqlite:///FILE" in said) == ("--store " in said.partition("Options:")[2])


def test_the_first_sentence_of_each_command_is_whole(narrow):
    assert "..." not in narrow().partition("\n\nOptions:")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_describes_the_json_of_each_command(command):
    described = {*shapes(), "letters redrive", "letters discard", "import"}

    assert ("--json" in options(command)) == (command in described)


@pytest.mark.parametrize("command", ["run", "stream", "publish", "truncate", "letters redrive"])
def test_rare_options_are_left_to_help_all(narrow, consistent, command):
    usual = narrow(*command.split())
    said = consistent(*command.split(), "--help-all").out

    shown = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", usual, re.MULTILINE))
    everything = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", said, re.MULTILINE))
    assert len(shown - {"--help", "--help-all", "--env", "--json"}) <= 15
    assert shown < everything == {name for name in options(command) if name.startswith("--")} | {"--help"}
    assert "[spark] in consistent.toml:" in said or command == "publish"
    assert max(map(len, said.splitlines())) <= 80

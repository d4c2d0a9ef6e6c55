"""Help teaches, survives 80 columns, and starts at once: nothing heavy is imported for it."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import typer.main

from runtime.cli.application import RENAMED, application
from tests.unit.cli.shapes import shapes

REPOSITORY = Path(__file__).parents[3]
COMMANDS = [
    "init",
    "demo",
    "lint",
    "config",
    "run",
    "stream",
    "outcomes",
    "publish",
    "letters redrive",
    "letters discard",
    "batches",
    "truncate",
    "verify",
    "show",
    "sql",
    "explore",
    "check",
    "export",
    "import",
    "forget",
    "tokens",
]
HEAVY = ("pyspark", "py4j", "pandas", "numpy", "pyarrow", "azure", "aiohttp")


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_has_an_example_of_itself(consistent, command):
    said = consistent(*command.split(), "--help")

    assert said.code == 0
    assert f"consistent {command}" in said.out.partition("Options")[0].replace("Usage: consistent", "")


def test_all_commands_are_listed(consistent):
    said = consistent("--help")

    assert said.code == 0
    assert all(command.split()[0] in said.out for command in COMMANDS)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_an_old_name_is_answered_with_the_new_one(consistent, old, new):
    said = consistent(old, "--store", "sqlite:///store.db")

    assert (said.code, said.out) == (2, "")
    assert said.err.endswith(f"Error: `consistent {old}` was renamed: use `consistent {new}`.\n")


def test_a_variable_of_no_option_is_told(consistent, monkeypatch):
    monkeypatch.setenv("CONSISTENT_TABEL", "games")
    monkeypatch.setenv("CONSISTENT_TRUNCATE_OLDER_THAN", "3d")
    monkeypatch.setenv("CONSISTENT_TARGET", "file:///there")

    said = consistent("show", "--store", "sqlite:///store.db", "--table", "games")

    (warning,) = (line for line in said.err.splitlines() if line.startswith("Warning"))
    assert "CONSISTENT_TABEL is ignored" in warning
    assert "Did you mean CONSISTENT_TABLE?" in warning


def test_letters_are_listed_where_nothing_else_is_named(consistent):
    given = ["--store", "sqlite:///none.db", "--table", "games"]

    assert consistent("letters", *given).err == consistent("letters", "list", *given).err != ""


def test_without_a_command_help_is_shown_and_the_usage_is_wrong(consistent):
    said = consistent()

    assert said.code == 2
    assert "truncate" in said.out + said.err


HELP = [
    "--help",
    "run --help",
    "stream --help",
    "outcomes --help",
    "truncate --help",
    "demo --help",
    "verify --help",
    "show --help",
    "tokens --help",
    "lint --rules",
]


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
        [sys.executable, "-c", program, *HELP],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout.count("Usage: ") == len(HELP) - 1
    imported = {name.partition(".")[0] for name in done.stderr.split()}
    assert "typer" in imported
    assert imported.isdisjoint(HEAVY)


@pytest.fixture
def narrow(consistent, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("TERMINAL_WIDTH", "80")
    return lambda *arguments: consistent(*arguments, "--help").out


@pytest.mark.parametrize("command", COMMANDS)
def test_examples_are_pasted_as_they_stand(narrow, command):
    said = narrow(*command.split())

    examples = re.findall(r"^      consistent (?:.*\\\n)*.*$", said, re.MULTILINE)
    assert examples
    for example in examples:
        words = shlex.split(example)  # which joins the lines as a shell does
        assert words[1 : 1 + len(command.split())] == command.split()
        assert {word for word in words if word.startswith("--")} <= options(command)
    assert max(map(len, said.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_urls_and_defaults_are_whole(narrow, command):
    said = narrow(*command.split())

    assert "…" not in said
    assert ("sqlite:///FILE" in said) == ("--store " in said.partition("Options:")[2])
    assert ("[default: local[*,4]]" in " ".join(said.split())) == (
        "Where Spark works" in " ".join(said.split())
    )


def test_the_first_sentence_of_each_command_is_whole(narrow):
    assert "..." not in narrow().partition("\n\nOptions:")[2]


@pytest.mark.parametrize("command", COMMANDS)
def test_the_page_tells_what_each_command_prints_as_json(command):
    told = {*shapes(), "letters redrive", "letters discard", "import"}

    assert ("--json" in options(command)) == (command in told)


def test_completion_of_the_shell(consistent):
    assert "--install-completion" in consistent("--help").out


def options(command):
    found: Any = typer.main.get_command(application)
    for word in command.split():
        found = found.commands[word]
    return {name for parameter in found.params for name in parameter.opts}


@pytest.mark.parametrize("command", ["run", "stream", "publish", "truncate", "letters redrive"])
def test_seldom_options_are_left_to_help_all(narrow, consistent, command):
    usual = narrow(*command.split())
    said = consistent(*command.split(), "--help-all").out

    shown = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", usual, re.MULTILINE))
    everything = set(re.findall(r"^  (?:-h, )?(--[a-z-]+)", said, re.MULTILINE))
    assert len(shown - {"--help", "--help-all", "--env", "--json"}) <= 15
    assert shown < everything == {name for name in options(command) if name.startswith("--")} | {"--help"}
    assert "[spark] in consistent.toml:" in said or command == "publish"
    assert max(map(len, said.splitlines())) <= 80

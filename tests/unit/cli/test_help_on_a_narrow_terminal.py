"""Help survives 80 columns: examples can be pasted, and nothing that is to be typed is cut."""

import re
import shlex
from typing import Any

import pytest
import typer.main

from runtime.cli.application import application
from tests.unit.cli.test_help import COMMANDS


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
    assert "..." not in narrow().partition("Commands:")[2]


def test_completion_of_the_shell(consistent):
    assert "--install-completion" in consistent("--help").out


def options(command):
    found: Any = typer.main.get_command(application)
    for word in command.split():
        found = found.commands[word]
    return {name for parameter in found.params for name in parameter.opts}

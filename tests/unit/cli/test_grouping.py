"""A dataclass whose fields are options is one parameter of a command, and several options on the command line."""

import inspect
from dataclasses import dataclass
from typing import Annotated

import pytest
import typer
from typer.testing import CliRunner

from runtime.cli.options import with_groups

Name = Annotated[str, typer.Option("--name")]
Loud = Annotated[bool, typer.Option("--loud")]
Where = Annotated[str, typer.Option("--where")]
Pages = Annotated[int, typer.Option("--pages")]


@dataclass(frozen=True)
class Place:
    where: Where = "here"


@dataclass(frozen=True, kw_only=True)
class Greeting:
    name: Name
    loud: Loud = False
    place: Place


@pytest.fixture
def called():
    """Register a command, and give what calls it and returns what it was given."""
    given = []

    def greet(*, greeting: Greeting, pages: Pages = 1) -> None:
        given.append((greeting, pages))

    application = typer.Typer()
    application.command()(with_groups(greet))

    def call(*arguments):
        result = CliRunner().invoke(application, arguments)
        return given.pop() if not result.exit_code else result.exit_code

    return call


def test_options_of_a_group_and_of_groups_in_it_are_given_as_such(called):
    found = called("--name", "Ada", "--where", "there", "--pages", "3")

    assert found == (Greeting(name="Ada", place=Place("there")), 3)


def test_defaults_are_those_of_the_fields(called):
    assert called("--name", "Ada") == (Greeting(name="Ada", loud=False, place=Place("here")), 1)


def test_a_field_without_a_default_must_be_given(called):
    assert called("--pages", "3") == 2


def test_what_must_be_given_comes_first_and_groups_in_groups_last():
    def command(*, pages: Pages = 1, greeting: Greeting) -> None: ...

    assert list(inspect.signature(with_groups(command)).parameters) == ["name", "pages", "loud", "where"]


def test_a_command_without_groups_stays_as_it_is():
    def command(*, pages: Pages = 1) -> None: ...

    assert with_groups(command) is command

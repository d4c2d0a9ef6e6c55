"""A dataclass parameter of a command is an option for each of its fields."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated, Literal

import pytest
import typer
from typer.testing import CliRunner

from runtime.cli.options import (
    duration_text,
    only,
    parse_duration,
    parse_size,
    parse_time,
    size_text,
    with_options,
)
from runtime.options import REQUIRED, option


@dataclass(frozen=True)
class Place:
    where: str = option("Where.", default="here")
    name: str = option("Its name there.", default="", name="--called")


@dataclass(frozen=True, kw_only=True)
class Greeting:
    name: str = option("Who.", default=REQUIRED)
    loud: bool = option("Shout.", default=False)
    tone: Literal["kind", "rude"] | None = option("How.", default=None)
    wait: timedelta = option("How long.", default=timedelta(minutes=1), metavar="TIME")
    age: int | None = option("Since when.", default=None, parse="duration")
    size: int = option("How much.", default=2048, parse="size")
    titles: Sequence[str] = option("What else.", default=())
    gifts: Mapping[str, str] = option("For whom.", default=dict, name="--gift")
    place: Place = field(default_factory=Place)
    untold: int = 7


@pytest.fixture
def called():
    """Register a command. Return a function that calls it, and returns its arguments or its exit code."""
    given = []

    def greet(*, pages: Annotated[int, typer.Option("--pages")] = 1, greeting: Greeting) -> None:
        given.append((pages, greeting))

    application = typer.Typer()
    application.command()(with_options(greet))

    def call(*arguments):
        result = CliRunner().invoke(application, arguments)
        return given.pop() if not result.exit_code else result.exit_code

    return call


def test_each_field_is_an_option_and_so_are_those_of_a_nested_dataclass(called):
    words = "--name Ada --loud --tone kind --wait 2m --age 1h --size 1KiB --where there --called x"
    many = "--titles Dr,Prof --titles Countess --gift a=b --gift c=d=e"
    expected = Greeting(
        name="Ada", loud=True, tone="kind", wait=timedelta(minutes=2), age=3_600_000_000, size=1024,
        place=Place("there", "x"), titles=["Dr", "Prof", "Countess"], gifts={"a": "b", "c": "d=e"},
    )  # fmt: skip

    assert called("--name", "Ada") == (1, Greeting(name="Ada"))
    assert called("--pages", "3", *words.split(), *many.split()) == (3, expected)


@pytest.mark.parametrize("words", ["--tone loud", "--wait soon", "--size 1MB", "--gift x", "--untold 8"])
def test_missing_and_invalid_options_are_usage_errors(called, words):
    assert called("--name", "Ada", *words.split()) == 2
    assert called() == 2


def test_a_command_may_have_only_some_fields():
    found = []

    def command(place: Annotated[Place, only("name")]) -> None:
        found.append(place)

    application = typer.Typer()
    application.command()(with_options(command))

    assert CliRunner().invoke(application, ["--called", "x"]).exit_code == 0
    assert CliRunner().invoke(application, ["--where", "x"]).exit_code == 2
    assert found == [Place("here", "x")]


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("0s", 0),
        ("30s", 30),
        ("15m", 900),
        ("24h", 86_400),
        ("7d", 604_800),
        ("2w", 1_209_600),
        (" 1H ", 3600),
    ],
)
def test_a_duration_is_read_as_microseconds(text, seconds):
    assert parse_duration(text) == seconds * 1_000_000
    assert parse_time(text) == timedelta(seconds=seconds)
    assert parse_duration(duration_text(seconds * 1_000_000)) == seconds * 1_000_000


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("64KiB", 65536), (" 1 mib", 2**20), ("2GiB", 2**31), ("7B", 7)]
)
def test_a_size_is_read_as_bytes(text, size):
    assert parse_size(text) == parse_size(size_text(size)) == size


DURATIONS = ["", "7", "d", "-1d", "1.5h", "7 d", "1y", "1d12h", "٣d", "9999999999s"]
SIZES = ["", "0", "0MiB", "-1", "1MB", "1.5MiB", "MiB", "1TiB", "٣", "1 2"]


@pytest.mark.parametrize(
    ("parse", "text", "forms"),
    [
        *((parse_duration, text, "30s, 15m, 24h, 7d or 2w") for text in DURATIONS),
        *((parse_size, text, "64KiB") for text in SIZES),
        (parse_time, "999999999w", "too long"),
    ],
)
def test_other_text_is_no_duration_or_size(parse, text, forms):
    with pytest.raises(typer.BadParameter, match=forms):
        parse(text)

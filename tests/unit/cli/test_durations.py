"""Durations are a whole number and one of s, m, h, d, w."""

import pytest
import typer

from runtime.cli.options import parse_duration

SECOND = 1_000_000


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
    assert parse_duration(text) == seconds * SECOND


@pytest.mark.parametrize("text", ["", "7", "d", "-1d", "1.5h", "7 d", "1y", "1d12h", "٣d", "9999999999s"])
def test_anything_else_is_refused_with_the_forms_there_are(text):
    with pytest.raises(typer.BadParameter, match="30s, 15m, 24h, 7d or 2w"):
        parse_duration(text)

"""Sizes are read as they are written."""

from __future__ import annotations

import pytest
import typer

from runtime.cli.options import parse_size


@pytest.mark.parametrize(
    ("text", "size"), [("1000", 1000), ("64KiB", 65536), (" 1 mib", 2**20), ("2GiB", 2**31), ("7B", 7)]
)
def test_sizes(text, size):
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "0", "0MiB", "-1", "1MB", "1.5MiB", "MiB", "1TiB", "٣", "1 2"])
def test_what_is_none(text):
    with pytest.raises(typer.BadParameter, match="64KiB"):
        parse_size(text)

"""The pages about the benchmarks: they show every series and name commands that there are."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from benchmarks.catalogue import CONTENDERS
from benchmarks.growth.catalogue import SERIES
from benchmarks.skew.cases import NAMES, SIZES

ROOT = Path(__file__).parents[2]
PAGES = {name: (ROOT / name).read_text() for name in ("docs/growth.md", "benchmarks/README.md")}
CHOICES = {"bench": CONTENDERS, "growth": SERIES, "skew": NAMES}
LARGEST_PLOT = 60_000


def test_each_series_has_a_plot_that_is_shown():
    shown = re.findall(r"!\[.+\]\(growth/([a-z-]+)\.png\)", PAGES["docs/growth.md"])

    assert shown == list(SERIES)
    for name in shown:
        plot = (ROOT / "docs" / "growth" / f"{name}.png").read_bytes()
        assert plot.startswith(b"\x89PNG")
        assert len(plot) < LARGEST_PLOT


@pytest.mark.parametrize("page", PAGES)
def test_the_make_targets_that_are_named_exist(page):
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", PAGES[page], re.MULTILINE))

    assert named
    assert named <= set(targets)


def test_what_is_chosen_with_only_can_be_chosen():
    found = re.findall(r'^make ([a-z]+) ARGS="(.*--only .*)"', PAGES["benchmarks/README.md"], re.MULTILINE)

    assert [target for target, _ in found] == list(CHOICES)
    for target, arguments in found:
        words = shlex.split(arguments)
        chosen = {words[index + 1] for index, word in enumerate(words) if word == "--only"}
        assert chosen <= set(CHOICES[target])
        assert chosen


def test_the_numbers_of_messages_are_those_of_the_cases():
    for default, full in zip(SIZES["default"], SIZES["full"], strict=True):
        row = rf"\| `{default.name}`: .* \| {default.messages:,} \| {full.messages:,} \|"
        assert re.search(row, PAGES["benchmarks/README.md"])

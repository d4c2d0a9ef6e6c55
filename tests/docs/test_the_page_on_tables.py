"""The options and figures of docs/tables.md are those of the code."""

from __future__ import annotations

import re

from runtime.spark.sources import _OPTIONS
from runtime.tables.streams import _READ_ONE_BY_ONE
from tests.docs.pages import text

PAGE = text("docs/tables.md")


def test_all_options_are_told():
    told = set(re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", PAGE, re.MULTILINE))
    named = {name for names in told for name in re.findall(r"\w+", names)}

    known = {name for options in _OPTIONS.values() for name in options}
    assert named & known == known - {"store", "table"}


def test_its_figures_are_those_of_the_code():
    assert f"for more than {_READ_ONE_BY_ONE} of 1,000" in PAGE

"""Bad handlers are found, at the line and with the code that they are marked with; good ones are left alone.

`unseen` was written when the linter was ready, to see what it makes of handlers that it was not made for: right and
wrong ones beside each other.
"""

from collections import Counter

import pytest

from handlers.lint import RULES
from tests.unit.handlers.lint.corpus_check import checked, handlers, marks, places

FOLDERS = ["bad", "good", "unseen"]
OF_THE_LINTER_ITSELF = {"CM901", "CM902", "CM903"}
ONLY_NOTED = {"CM206"}


def test_the_corpus_is_large_enough_to_say_something():
    assert len(marks("bad", "expect")) >= 185
    assert len(handlers("good")) >= 9
    assert (
        checked("bad").handlers == len(set(handlers("bad"))) + 1
    )  # a base class without a method that handles
    assert checked("good").handlers == len(set(handlers("good")))
    assert all(mark.why for folder in FOLDERS for kind in ("miss", "false") for mark in marks(folder, kind))


@pytest.mark.parametrize("folder", FOLDERS)
def test_what_is_marked_is_found_and_nothing_else(folder):
    expected = Counter(mark.place for kind in ("expect", "false") for mark in marks(folder, kind))

    assert expected - places(checked(folder)) == Counter()
    assert places(checked(folder)) - expected == Counter()


def test_marks_are_where_they_belong():
    assert marks("bad", "false") == marks("good", "expect") == marks("good", "miss") == []


def test_every_rule_is_broken_somewhere():
    assert {mark.code for mark in marks("bad", "expect")} == set(RULES) - OF_THE_LINTER_ITSELF - ONLY_NOTED

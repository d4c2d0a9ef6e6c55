"""Bad handlers are found, at the line and with the code that they are marked with; good ones are left alone."""

from collections import Counter

from handlers.lint import RULES
from tests.unit.handlers.lint.corpus_check import checked, handlers, marks, places

OF_THE_LINTER_ITSELF = {"CM901", "CM902", "CM903"}


def test_the_corpus_is_large_enough_to_say_something():
    assert len(set(handlers("bad"))) == len(handlers("bad")) >= 60
    assert len(set(handlers("good"))) == len(handlers("good")) >= 30
    assert all(mark.why for mark in [*marks("bad", "miss"), *marks("good", "false")])


def test_each_mark_is_found_and_nothing_else():
    expected = Counter(mark.place for mark in marks("bad", "expect"))

    assert expected - places(checked("bad")) == Counter()
    assert places(checked("bad")) - expected == Counter()


def test_known_misses_are_still_missed_so_that_the_figures_stay_true():
    found = places(checked("bad"))

    assert [mark for mark in marks("bad", "miss") if mark.place in found] == []


def test_good_handlers_have_no_findings_but_the_known_false_alarms():
    assert places(checked("good")) == Counter(mark.place for mark in marks("good", "false"))


def test_every_rule_is_broken_somewhere():
    assert {mark.code for mark in marks("bad", "expect")} == set(RULES) - OF_THE_LINTER_ITSELF


def test_all_handlers_of_the_corpus_are_counted():
    assert checked("bad").handlers == len(handlers("bad")) + 1  # a base class without a method that handles
    assert checked("good").handlers == len(handlers("good"))

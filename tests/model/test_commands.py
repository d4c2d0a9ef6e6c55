"""The command that walks everything also plants one mistake, or carries out one schedule."""

import pytest

from tests.model.__main__ import main
from tests.model.beside import reports
from tests.model.quick import QUICK, report_of

ONE = ["--scenario", "1 message, 1 copy"]


def test_walks_beside_each_other_report_what_they_would_alone():
    numbers = QUICK[:2]

    assert list(reports(numbers)) == [report_of(number) for number in numbers]


def test_a_planted_mistake_is_shown_with_its_schedule_and_seed(capsys):
    assert main(["--mistake", "published before the append"]) == 0

    shown = capsys.readouterr().out
    assert "NoGhost: Wrote of version 1 is published, which is not committed" in shown
    assert "Seed: +x 0 0\n" in shown


def test_a_schedule_is_carried_out_with_the_code_as_it_is(capsys):
    assert main([*ONE, "--replay", "+x 0 0 0 0! +x 1"]) == 0

    shown = capsys.readouterr().out
    assert "dies before publish Wrote" in shown
    assert "Nothing is broken." in shown


def test_a_schedule_that_breaks_something_ends_with_code_1(capsys, monkeypatch):
    from tests.model.mistakes import protocol

    protocol.publish_first(monkeypatch)

    assert main([*ONE, "--replay", "+x 0 0"]) == 1
    assert "NoGhost" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--mistake", "none such"], "There is no mistake 'none such'. There are:\n  ids are not seeded"),
        (["--replay", "+x"], "There is no scenario None. There are:\n  1 message, 1 copy"),
        ([*ONE, "--replay", "+x 0#"], "'0#' is no word of a schedule"),
        ([*ONE, "--replay", "+y"], "There is no job 'y' in 1 message, 1 copy; there are x."),
    ],
)
def test_what_is_not_there_is_named(arguments, said, capsys):
    assert main(arguments) == 2
    assert said in capsys.readouterr().out

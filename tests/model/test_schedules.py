"""A violation is shown as a table of who did what, and its seed carries it out again."""

import pytest

from tests.model.mistakes import protocol
from tests.model.mistakes.mistake import Mistake
from tests.model.scenarios.state_based import messages
from tests.model.schedule import replay, seed, table


def mistake(name: str) -> Mistake:
    return next(each for each in protocol.MISTAKES if each.name == name)


def test_a_schedule_shows_who_did_what_and_what_came_of_it():
    shown = table(replay(messages("x", copies=2), "+x +x 0 1 0 1 0 0 0!")).splitlines()

    assert "who" in shown[0]
    assert "1 (x)  is delivered" in shown[2]
    assert "query Scribe-b" in shown[3]
    assert shown[5].rstrip().endswith("Scribe/1 by x: x"), "what it commits"
    assert "RowExistsError" in shown[6], "what it is answered"
    assert "publish Wrote" in shown[8]
    assert "0 (x)  dies before publish Turned" in shown[9]
    assert shown[-1] == "Nothing is broken."


def test_every_kind_of_accident_has_a_word():
    replayed = replay(messages("x"), "+x 0? 0 0& 0 0~ *0 0 0! +x 1 % +x 2 2 2 2 2")

    text = table(replayed)
    assert "times out without effect: query" in text
    assert "times out and takes effect later: transact" in text
    assert "lands: transact" in text
    assert "dies before" in text
    assert "the power is cut" in text
    assert replayed.problem is None


@pytest.mark.parametrize(
    ("words", "effects"),
    [
        ("0?", [""]),
        ("0~", ["Scribe/1 by x: x"]),
        ("0& *0", ["", "Scribe/1 by x: x"]),
        ("0& 0! *0", ["", "", "Scribe/1 by x: x"]),
    ],
)
def test_a_write_without_an_answer_takes_effect_never_or_at_once_or_later(words, effects):
    lines = replay(messages("x"), f"+x 0 {words}").lines

    assert [line.effect for line in lines[2:]] == effects


def test_the_schedule_of_a_violation_is_the_shortest():
    found = mistake("published before the append").look_for().violation

    assert found is not None
    assert seed(messages("x"), found.schedule) == "+x 0 0"


def test_a_seed_is_carried_out_as_far_as_the_code_goes_the_same_way():
    replayed = replay(messages("x"), "+x 0 0 0 0 0 0 0 0 0 0 0")

    assert len(replayed.lines) == 7
    assert replayed.problem is None


def test_a_word_that_is_none_is_named():
    with pytest.raises(ValueError, match="'0#' is no word of a schedule"):
        replay(messages("x"), "+x 0#")

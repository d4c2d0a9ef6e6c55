"""`# noqa: CODE reason` silences one rule in one statement, and must say why."""

from tests.unit.handlers.lint.conftest import codes

TIME = "import time, random"


def test_a_reason_is_enough(lint):
    assert codes(lint("time.time()  # noqa: CM101 shown to nobody", before=TIME)) == []


def test_without_a_reason_it_is_itself_a_finding(lint):
    assert codes(lint("time.time()  # noqa: CM101", before=TIME)) == ["CM902"]


def test_only_the_codes_that_are_named_are_silenced(lint):
    line = "time.time(); random.random()  # noqa: CM101 shown to nobody"

    assert codes(lint(line, before=TIME)) == ["CM201"]


def test_several_codes(lint):
    line = "time.time(); random.random()  # noqa: CM101, CM201 shown to nobody"

    assert codes(lint(line, before=TIME)) == []


def test_codes_of_other_linters_may_stand_beside_ours(lint):
    assert codes(lint("random.random()  # noqa: S311, CM201 shown to nobody", before=TIME)) == []
    assert codes(lint("random.random()  # noqa: S311", before=TIME)) == ["CM201"]
    assert codes(lint("random.random()  # noqa", before=TIME)) == ["CM201"]


def test_it_may_stand_at_the_start_of_the_statement(lint):
    body = "print(  # noqa: CM101 shown to nobody\n    time.time(),\n)"

    assert codes(lint(body, before=TIME)) == []


def test_another_line_is_not_silenced(lint):
    body = "print(1)  # noqa: CM101 shown to nobody\ntime.time()"

    assert codes(lint(body, before=TIME)) == ["CM903", "CM101"]


def test_one_that_silences_nothing_is_a_finding_where_all_was_looked_at(lint):
    assert codes(lint("print(1)  # noqa: CM101 it was once", before=TIME)) == ["CM903"]
    before = f"{TIME}\n\ndef unused():\n    return time.time()  # noqa: CM101 another app calls it\n"
    assert codes(lint("print(1)", before=before)) == []


def test_in_a_helper_it_silences_too(lint):
    helpers = "import time\n\ndef now():\n    return time.time()  # noqa: CM101 shown to nobody\n"

    assert codes(lint("helpers.now()", before="import helpers", helpers=helpers)) == []


def test_text_that_looks_like_one_is_none(lint):
    assert codes(lint("time.time(); print('# noqa: CM101 why')", before=TIME)) == ["CM101"]

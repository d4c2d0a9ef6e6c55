"""What differs in a replay is told field by field, as far as that is known."""

from typing import Any

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime.algorithms.state_based.replay import Difference
from runtime.errors import DifferenceError
from runtime.ledger.batch import BatchContext
from runtime.versions.readable import Change
from tests.unit.runtime.diary import delivery
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import Worker, ends

RULE: dict[str, Any] = {"step": 1, "said": 1, "word": "ring", "many": 0}
"""What the handler does: a test changes it between a message and its duplicate."""


class Rang(Message):
    tower: str


class Heard(Message):
    word: str
    number: int


class Silent(Message):
    pass


class Inner(State):
    last: str = ""


class Data(State):
    rings: int = 0
    inner: Inner = Inner()
    many: tuple[int, ...] = ()


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        for number in range(RULE["said"]):
            context.publish(Heard(word=RULE["word"], number=number), headers={"loud": RULE["word"]})
        return Data(
            rings=state.rings + RULE["step"],
            inner=Inner(last=RULE["word"]),
            many=tuple(range(RULE["many"])),
        )


app = App(Bell)


def rang(message_id: str = "a"):
    return delivery(message_id, "Rang", {"tower": "east"})


def worker(table, batch=None, using: App = app) -> Worker:
    return Worker(table, using, business_id="east", batch=batch)


def error_of(monkeypatch: pytest.MonkeyPatch, *, at_first: dict | None = None, **changed) -> str:
    """Handle a message, change the rule, handle its copy, and return what is said of it."""
    table = memory_table()
    for name, value in (at_first or {}).items():
        monkeypatch.setitem(RULE, name, value)
    worker(table).process(rang())
    for name, value in changed.items():
        monkeypatch.setitem(RULE, name, value)
    (outcome,) = worker(table).process(rang())
    assert ends([outcome]) == ["nondeterministic"]
    assert outcome.error is not None
    return outcome.error


def test_each_field_of_the_state_that_differs_is_named_with_both_values(monkeypatch):
    assert error_of(monkeypatch, step=2) == (
        "The replay of version 1 has another next state than recorded: rings was 1 and is 2. "
        "The handler is not deterministic, or was changed without a new revision."
    )
    assert 'inner.last was "ring" and is "ding"' in error_of(monkeypatch, said=0, word="ding")


def test_long_values_are_cut_short(monkeypatch):
    error = error_of(monkeypatch, many=1000)

    assert "many was [] and is [0, 1, 2" in error
    assert len(error) < 350


def test_of_many_fields_that_differ_a_few_are_named():
    found = tuple(Change(f"field{number}", 1, 2) for number in range(9))

    said = str(Difference(3, found, None))

    assert "field4 was 1 and is 2 and 4 fields more" in said
    assert "field5" not in said


@pytest.mark.parametrize(
    ("at_first", "now", "said"),
    [
        (0, 2, "other outputs than recorded: Heard, Heard are published, and nothing was."),
        (0, 1, "other outputs than recorded: Heard is published, and nothing was."),
        (
            1,
            3,
            "other outputs than recorded: Heard, Heard, Heard are published; of what was, only the digest",
        ),
        (2, 0, "other outputs than recorded: nothing is published, and something was."),
        (2, 1, "Heard is published; of what was, only the digest is known."),
        (0, 8, "Heard, Heard, Heard, Heard, Heard and 3 more are published, and nothing was."),
    ],
)
def test_of_outputs_known_by_their_digest_it_is_said_what_can_be(monkeypatch, at_first, now, said):
    assert said in error_of(monkeypatch, at_first={"said": at_first}, said=now)


def test_outputs_and_state_that_differ_are_both_told(monkeypatch):
    error = error_of(monkeypatch, step=3, said=0)

    assert (
        "has other outputs and another next state than recorded: rings was 1 and is 3; nothing is pub"
        in error
    )


def test_a_state_of_an_older_schema_version_is_compared_as_it_is_upcast():
    class OldData(State):
        count: int = 0

    class Old(Handler[OldData], name="Bell"):
        @handles(by="tower")
        def rang(self, state: OldData, message: Rang, context: Context) -> OldData:
            return OldData(count=state.count + 1)

    class NewData(State, version=2, upcasters={1: lambda fields: {"rings": fields["count"]}}):
        rings: int = 0

    class New(Handler[NewData], name="Bell"):
        @handles(by="tower")
        def rang(self, state: NewData, message: Rang, context: Context) -> NewData:
            return NewData(rings=state.rings + 5)

    table = memory_table()
    worker(table, using=App(Old)).process(rang())

    (outcome,) = worker(table, using=App(New)).process(rang())

    assert "rings was 1 and is 5 (compared in schema version 2, upcast from 1)." in str(outcome.error)


def test_a_batch_can_be_told_to_fail_on_a_difference(monkeypatch):
    table = memory_table()
    worker(table).process(rang())
    before = contents(table)
    monkeypatch.setitem(RULE, "step", 2)
    strict = BatchContext("night", on_difference="fail")

    with pytest.raises(
        DifferenceError, match=r"^Message a of Bell-east was redelivered\. The replay of version 1 has"
    ):
        worker(table, strict).process(rang("b"), rang("a"))

    assert contents(table) == before
    assert ends(worker(table, BatchContext("night")).process(rang("b"), rang("a"))) == [
        "processed",
        "nondeterministic",
    ]

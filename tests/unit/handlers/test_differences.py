"""What differs is told field by field."""

from datetime import UTC, datetime

import pytest
from pydantic import BaseModel, ConfigDict

from handlers import Message
from handlers.testing.spec import differences, differences_of_messages


class Part(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str
    sizes: tuple[int, ...] = ()


class Whole(Message):
    parts: tuple[Part, ...] = ()
    words: frozenset[str] = frozenset()
    count: float = 0.0


class Other(Message):
    count: float = 0.0


def told(expected: object, actual: object) -> list[str]:
    return list(differences(expected, actual, "state"))


def test_equal_values_do_not_differ():
    whole = Whole(parts=(Part(name="a", sizes=(1,)),), words=frozenset({"x"}), count=float("nan"))

    assert not told(whole, whole.model_copy(update={"count": float("nan")}))


def test_a_field_deep_inside_is_named_by_its_path():
    one = Whole(parts=(Part(name="a"), Part(name="b", sizes=(1, 2))))
    other = Whole(parts=(Part(name="a"), Part(name="b", sizes=(1, 3))))

    assert told(one, other) == ["state.parts[1].sizes[1]: expected 2, got 3"]


def test_what_is_missing_and_what_is_too_much_in_a_tuple_is_named():
    assert told((1,), (1, 2)) == ["state[1]: expected nothing, got 2"]
    assert told((1, 2), (1,)) == ["state[1]: expected 2, got nothing"]


def test_members_of_a_set_are_named_in_order():
    assert told(frozenset("abc"), frozenset("cde")) == [
        "state: expected 'a' in it",
        "state: expected 'b' in it",
        "state: got 'd' in it, not expected",
        "state: got 'e' in it, not expected",
    ]


@pytest.mark.parametrize(
    ("one", "other"), [(1, 1.0), (True, 1), (None, ""), ("1", 1), (datetime(2026, 1, 1, tzinfo=UTC), "2026")]
)
def test_values_of_other_types_differ(one, other):
    assert told(one, other) == [f"state: expected {one!r}, got {other!r}"]


def test_messages_of_another_type_differ_as_a_whole():
    assert list(differences_of_messages([Whole()], [Other(count=2.0)])) == [
        f"published[0]: expected {Whole()!r}, got Other(count=2.0)"
    ]


def test_a_type_stands_for_any_message_of_it():
    assert not list(differences_of_messages([Whole, Other], [Whole(count=1), Other(count=2)]))
    assert list(differences_of_messages([Whole, Other], [Other(count=2.0)])) == [
        "published[0]: expected a Whole, got Other(count=2.0)",
        "published[1]: expected a Other, got nothing",
    ]

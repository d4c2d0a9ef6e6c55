"""What differs is told field by field."""

from datetime import UTC, datetime

import pytest
from pydantic import BaseModel, ConfigDict

from handlers import Message
from handlers.testing.spec import differences, differences_of_messages

AT = datetime(2026, 1, 1, tzinfo=UTC)


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


PARTS = (Part(name="a"), Part(name="b", sizes=(1, 2)))
NAN = Whole(parts=PARTS, words=frozenset({"x"}), count=float("nan"))


@pytest.mark.parametrize(
    ("expected", "actual", "told"),
    [
        (NAN, NAN.model_copy(update={"count": float("nan")}), []),
        (
            Whole(parts=PARTS),
            Whole(parts=(PARTS[0], Part(name="b", sizes=(1, 3)))),
            [".parts[1].sizes[1]: expected 2, got 3"],
        ),
        ((1,), (1, 2), ["[1]: expected nothing, got 2"]),
        ((1, 2), (1,), ["[1]: expected 2, got nothing"]),
        (
            frozenset("abc"),
            frozenset("cde"),
            [
                ": expected 'a' in it",
                ": expected 'b' in it",
                ": got 'd' in it, not expected",
                ": got 'e' in it, not expected",
            ],
        ),
        *[
            (one, other, [f": expected {one!r}, got {other!r}"])
            for one, other in [(1, 1.0), (True, 1), (None, ""), ("1", 1), (AT, "2026")]
        ],
    ],
)
def test_what_differs_is_named_by_its_path_and_in_order(expected, actual, told):
    assert list(differences(expected, actual, "state")) == [f"state{each}" for each in told]


def test_messages_of_another_type_differ_as_a_whole_and_a_type_stands_for_any_message_of_it():
    assert not list(differences_of_messages([Whole, Other], [Whole(count=1), Other(count=2)]))
    assert list(differences_of_messages([Whole(), Whole, Other], [Other(count=2.0)] * 2)) == [
        f"published[0]: expected {Whole()!r}, got Other(count=2.0)",
        "published[1]: expected a Whole, got Other(count=2.0)",
        "published[2]: expected a Other, got nothing",
    ]

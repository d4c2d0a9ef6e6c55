"""Draws are the message's own: the same each time, others for another message, handler or business object.

Each kind of draw counts for itself, so that one more of one kind never shifts another.
"""

from itertools import permutations
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers import Context, Message
from handlers.draws import Seed


class Rang(Message):
    times: int = 1


def context(handler: str = "Bell", business_id: str = "east", message_id: str = "m-1") -> Context:
    return Context(handler, business_id, message_id, 0)


def draws(drawn: Context) -> tuple[list[UUID], list[str], list[float]]:
    guids = [drawn.new_guid() for _ in range(3)]
    for _ in range(3):
        drawn.publish(Rang())
    return guids, [output.message_id for output in drawn.published], [drawn.random.random() for _ in range(3)]


@pytest.mark.parametrize("other", [{"handler": "Clock"}, {"business_id": "west"}, {"message_id": "m-2"}])
def test_no_draw_is_that_of_another_message_handler_business_object_or_kind(other):
    one, another = draws(context()), draws(context(**other))

    for kind in range(3):
        assert {*map(str, one[kind])}.isdisjoint(map(str, another[kind]))
    assert {str(guid) for guid in one[0]}.isdisjoint(one[1])


def test_one_more_draw_of_a_kind_never_shifts_another():
    draw_of = {
        "guid": lambda drawn: drawn.new_guid(),
        "message": lambda drawn: drawn.publish(Rang()) or drawn.published[-1].message_id,
        "random": lambda drawn: drawn.random.getrandbits(64),
    }
    alone = {kind: draw(context()) for kind, draw in draw_of.items()}

    for order in permutations(draw_of):
        drawn = context()
        found = {kind: next(iter([draw_of[kind](drawn) for _ in range(3)])) for kind in order}
        assert found == alone


@given(st.text(alphabet="ab-\x00", min_size=1, max_size=8), st.data())
def test_parts_that_read_alike_when_joined_draw_differently(joined, data):
    cuts = st.lists(st.integers(0, len(joined)), min_size=3, max_size=3).map(sorted)
    one, other = data.draw(cuts), data.draw(cuts)

    def draw(first: int, second: int, third: int) -> bytes:
        seed = Seed(joined[:first], joined[first:second], joined[second:third])
        return seed.draw(joined[third:], 0)

    assert (draw(*one) == draw(*other)) == (one == other)

"""Draws are the message's own: the same each time, others for another message, handler or business object.

Each kind of draw counts for itself, so that one more of one kind never shifts another.
"""

from hashlib import sha256
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


def test_draws_are_the_same_each_time_that_a_message_is_handled():
    assert draws(context()) == draws(context())


@pytest.mark.parametrize("other", [{"handler": "Clock"}, {"business_id": "west"}, {"message_id": "m-2"}])
def test_draws_differ_for_another_message_handler_and_business_object(other):
    guids, ids, numbers = draws(context())
    other_guids, other_ids, other_numbers = draws(context(**other))

    assert set(guids).isdisjoint(other_guids)
    assert set(ids).isdisjoint(other_ids)
    assert set(numbers).isdisjoint(other_numbers)


def test_no_guid_is_the_id_of_an_output():
    guids, ids, _ = draws(context())

    assert {str(guid) for guid in guids}.isdisjoint(ids)
    assert len({*guids}) == len({*ids}) == 3


def draw_several(draw, drawn: Context) -> list[object]:
    return [draw(drawn) for _ in range(3)]


def test_one_more_draw_of_a_kind_never_shifts_another():
    draw_of = {
        "guid": lambda drawn: drawn.new_guid(),
        "message": lambda drawn: drawn.publish(Rang()) or drawn.published[-1].message_id,
        "random": lambda drawn: drawn.random.getrandbits(64),
    }
    alone = {kind: draw(context()) for kind, draw in draw_of.items()}

    for order in permutations(draw_of):
        drawn = context()
        found = {kind: draw_several(draw_of[kind], drawn)[0] for kind in order}
        assert found == alone


def test_guids_are_version_8_uuids():
    # RFC 9562: version 8 is for values of one's own making; 4 would claim that they are random.
    guid = context().new_guid()

    assert guid.version == 8
    assert guid.variant == "specified in RFC 4122"


def test_a_draw_is_sha_256_over_parts_with_their_lengths():
    def with_length(text: str) -> bytes:
        return len(text.encode()).to_bytes(4, "big") + text.encode()

    parts = b"".join(map(with_length, ("m-ä", "Bell", "east", "guid")))

    assert Seed("m-ä", "Bell", "east").draw("guid", 7) == sha256(parts + (7).to_bytes(8, "big")).digest()


@given(st.text(alphabet="ab-\x00", min_size=1, max_size=8), st.data())
def test_parts_that_read_alike_when_joined_draw_differently(joined, data):
    cuts = st.lists(st.integers(0, len(joined)), min_size=3, max_size=3).map(sorted)
    one, other = data.draw(cuts), data.draw(cuts)

    def draw(first: int, second: int, third: int) -> bytes:
        seed = Seed(joined[:first], joined[first:second], joined[second:third])
        return seed.draw(joined[third:], 0)

    assert (draw(*one) == draw(*other)) == (one == other)


def test_a_character_moved_from_one_part_to_the_next_changes_the_draw():
    assert context("Bell", "eastm", "1").new_guid() != context("Bell", "east", "m1").new_guid()
    assert context("Bella", "b", "m").new_guid() != context("Bell", "ab", "m").new_guid()

"""The values that a context draws are part of what is stored: written down here, they must never change.

A changed value would give new ids to the outputs of messages that were handled long ago.
"""

from uuid import UUID

from handlers import Context, Message


class Rang(Message):
    times: int = 1


def context(message_id: str = "0190d0c5-6a7b-7c8d-9e0f-a1b2c3d4e5f6") -> Context:
    return Context("Bell", "tower-7", message_id, 1_767_225_600_123_456)


def test_guids():
    drawn = context()

    assert [drawn.new_guid() for _ in range(3)] == [
        UUID("c6f3590d-071c-85de-9fc5-20c2638418c4"),
        UUID("1c78d14f-39c9-85c6-a781-19be5b1ba217"),
        UUID("0d9f4526-8a7b-835a-b407-f096e21f1f77"),
    ]


def test_message_ids():
    drawn = context()

    drawn.publish(Rang())
    drawn.publish(Rang())

    assert [published.message_id for published in drawn.published] == [
        "586576fa-42f7-81f4-b33c-72a9b57dad4a",
        "c0f9e23c-4c4d-8f70-ad8f-5019cd5efc86",
    ]


def test_random_floats():
    random = context().random

    assert [random.random() for _ in range(3)] == [0.8150590439314631, 0.06910106994656517, 0.761393662320973]


def test_random_numbers_of_a_range():
    random = context().random

    assert [random.randrange(100) for _ in range(8)] == [68, 40, 33, 30, 5, 61, 11, 80]


def test_everything_else_that_random_gives():
    random = context().random
    cards = list(range(8))

    random.shuffle(cards)

    assert cards == [6, 1, 3, 2, 5, 0, 7, 4]
    assert random.getrandbits(64) == 7793167866684481871
    assert random.randbytes(8) == b"\xc4\xe7fx\x8fU\x17\xfe"
    assert random.choice("abcdefgh") == "b"
    assert [random.random(), random.random()] == [0.7257508061318374, 0.9081823732429988]
    assert random.uniform(-1, 1) == -0.4972176238976145
    assert random.sample(range(1000), 3) == [878, 573, 498]


def test_a_text_for_a_message_id():
    drawn = context("order 66/ä")

    assert drawn.new_guid() == UUID("21ddb6a8-8df1-89ab-95fd-b7f5956efff2")
    assert drawn.random.randrange(10**9) == 548339604

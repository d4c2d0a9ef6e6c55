"""States of any size up to the limit are stored and replayed, whether they fit the header or not."""

import random

import pytest

from eventstore.limits import MAX_BINARY_BYTES
from runtime.versions.limits import MAX_HEAD_STATE_BYTES as HEADER_LIMIT
from runtime.versions.limits import MAX_STATE_BYTES
from tests.unit.runtime.diary import DEEDS, DIARY, SKY, Wrote, misbehave, ponder, write
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import Worker, ends, made_by, outputs, stored

FRAME = len('{"lines":[""],"words":[""],"weight":0.0}')


def noise(count: int) -> str:
    """Return text that does not get smaller by compression, of so many bytes."""
    chance = random.Random(count)
    return "".join(chr(chance.randrange(0x10000, 0x10FFFF)) for _ in range(count // 4)) + "x" * (count % 4)


def line_for_state_of(size: int) -> str:
    """Return a line that makes a state of so many bytes: it stands there as a line and as a word."""
    odd = (size - FRAME) % 2
    assert not odd, "choose an odd size"
    return noise((size - FRAME) // 2)


@pytest.mark.parametrize(
    "size", [HEADER_LIMIT - 10, HEADER_LIMIT, HEADER_LIMIT + 2, 100_000, MAX_STATE_BYTES]
)
def test_a_large_state_is_stored_replayed_and_gone_on_from(size):
    table = memory_table()
    large = write(line_for_state_of(size), message_id="large")

    (first,) = Worker(table).process(large)
    (again,) = Worker(table).process(large)
    (pondered,) = Worker(table).process(ponder("p"))

    assert ends([first, again, pondered]) == ["processed", "duplicate", "processed"]
    assert again.outputs == first.outputs
    assert len(stored(table)[0].after) == size
    assert pondered.outputs[0].body == '{"lines":1}'
    assert ("State" in rows(table)[f"Diary-{DIARY}", "SS-HEAD"]) == (size <= HEADER_LIMIT)


def test_a_state_one_byte_over_the_limit_is_a_dead_letter():
    table = memory_table()
    line = line_for_state_of(MAX_STATE_BYTES)

    outcomes = Worker(table).process(write(line + "x", message_id="large"), write("a"))

    assert ends(outcomes) == ["state_too_large", "processed"]
    assert made_by(table) == ["a"]


def test_a_large_state_that_becomes_small_again_returns_to_the_header():
    table = memory_table()
    Worker(table).process(write(line_for_state_of(100_000), message_id="large"))
    assert "State" not in rows(table)[f"Diary-{DIARY}", "SS-HEAD"]

    Worker(table).process(misbehave("burn the diary"))

    assert rows(table)[f"Diary-{DIARY}", "SS-HEAD"]["State"] == b'{"lines":[],"words":[],"weight":0.0}'


def test_the_largest_version_that_is_taken_can_be_stored(monkeypatch: pytest.MonkeyPatch):
    # Two states of the largest size and as much captured noise, none of which compression makes smaller.
    table = memory_table()
    monkeypatch.setitem(SKY, "colour", "")
    Worker(table).process(write(line_for_state_of(MAX_STATE_BYTES), message_id="large"))

    def burn_and_fill(state, context):
        context.capture("noise", lambda: random.Random(1).randbytes(MAX_STATE_BYTES - 200))
        line = line_for_state_of(MAX_STATE_BYTES)[::-1]
        return state.model_copy(update={"lines": (line,), "words": frozenset({line})})

    monkeypatch.setitem(DEEDS, "burn and fill", burn_and_fill)
    filling = misbehave("burn and fill", message_id="filled")

    (outcome,) = Worker(table).process(filling)
    (again,) = Worker(table).process(filling)

    assert ends([outcome, again]) == ["processed", "duplicate"]
    assert len(stored(table)[1].after) == MAX_STATE_BYTES
    largest = max(
        len(value) for row in rows(table).values() for value in row.values() if isinstance(value, bytes)
    )
    assert largest == MAX_BINARY_BYTES


def test_many_large_states_in_one_call_go_into_several_events():
    table = memory_table()
    messages = [write(noise(30_000) + str(number), message_id=f"m-{number}") for number in range(6)]

    outcomes = Worker(table).process(*messages)
    again = Worker(table, batch="other").process(*messages)

    assert ends(outcomes) == ["processed"] * 5 + ["state_too_large"]
    assert outputs(again) == outputs(outcomes)
    assert Wrote.model_validate_json(outputs(outcomes)[-1].body).on_page[-1].endswith("4")

"""Streams: which there are, what one of them holds, and what changed between two states."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import InterceptedTable, KeyRange, Operation, Table, drive, split_streams
from runtime.ledger.ledger import Ledger
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Reason
from runtime.versions import dead_letter_rows as letters
from runtime.versions import limits
from runtime.versions.dead_letter_rows import NO_LETTERS, Letter, LetterState, read_letters
from runtime.versions.readable import ABSENT, Change, changes, decode
from runtime.versions.stream import stream_keys, summaries
from tests.unit.runtime.algorithms.game import start
from tests.unit.runtime.algorithms.world import World
from tests.unit.runtime.diary import write
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import ToldClock, Worker

# Looking at streams: which there are, and what one of them holds.


def found(table: Table, handler: str | None = None, prefix: str = "") -> list[str]:
    async def keys() -> list[str]:
        return [summary.key async for summary in summaries(table, handler, prefix)]

    return drive(keys())


def keys_in(table: Table, keys: KeyRange) -> list[str]:
    async def found() -> list[str]:
        return [key async for page in stream_keys(table, keys) for key in page]

    return drive(found())


@pytest.fixture
def table() -> Table:
    """Give a table with streams of two handlers, a ledger, and a row of someone else."""
    game = World("state-based")
    game.deliver(start(1, 1))
    for diary in DIARIES:
        Worker(game.states, business_id=diary).process(write("x", diary=diary))
    drive(Ledger(game.states, ToldClock()).begin("SS-HEAD", "", ""))
    drive(game.states.transact("someone-else", [Operation.insert("SS-HEAD", {"Version": 7})]))
    return game.states


DIARIES = {"a", "ab", "b", "a/b", "ä", "-", "日", "a~b"}


def test_all_streams_are_found_and_nothing_else_whole_by_range_or_by_handler(table: Table):
    keys = keys_in(table, KeyRange())
    assert {key for key in keys if key.startswith("Diary")} == {f"Diary-{diary}" for diary in DIARIES}
    assert len(keys) == 9

    ranges = drive(split_streams(table, 3))
    assert len(ranges) > 1
    assert [key for part in ranges for key in keys_in(table, part)] == keys

    assert len(found(table, "Diary")) == len(DIARIES)
    assert found(table, "Dia") == []
    assert len(found(table, "ShootingRange")) == 1


@pytest.mark.parametrize("prefix", ["a", "ab", "a/", "a~", "ä", "日", "-", "x"])
def test_streams_are_found_by_what_their_business_ids_begin_with(table: Table, prefix):
    expected = {f"Diary-{diary}" for diary in DIARIES if diary.startswith(prefix)}

    assert set(found(table, "Diary", prefix)) == expected


def test_very_many_streams_are_found_page_by_page():
    table = memory_table()
    header = {"Version": 1, "StateVersions": 1, "StateSchema": 1}
    for number in range(1100):
        drive(table.transact(f"Diary-{number}", [Operation.insert("SS-HEAD", header)]))
    counted = InterceptedTable(table)

    assert len(found(counted)) == 1100
    assert counted.counts == {"scan": 2}


# What changed between two states, field by field.


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ({"a": 1}, {"a": 1}, []),
        ({"a": 1, "b": 2}, {"a": 1, "b": 3}, [Change("b", 2, 3)]),
        ({}, {"a": 1}, [Change("a", ABSENT, 1)]),
        ({"a": 1}, {}, [Change("a", 1, ABSENT)]),
        ({"a": {"b": 1, "c": 2}}, {"a": {"b": 1, "c": 3}}, [Change("a.c", 2, 3)]),
        ({"a": [1, 2]}, {"a": [1, 3]}, [Change("a", [1, 2], [1, 3])]),
        ({"a": None}, {"a": {"b": 1}}, [Change("a", None, {"b": 1})]),
        ({"a": 1}, {"a": 1.0}, [Change("a", 1, 1.0)]),
        ({"a": 1}, {"a": True}, [Change("a", 1, True)]),
        ([1], [2], [Change("", [1], [2])]),
    ],
)
def test_changes(before, after, expected):
    found = changes(before, after)

    assert found == expected
    assert [type(each.after) for each in found] == [type(each.after) for each in expected]


def test_what_is_no_json_is_shown_as_digits():
    assert decode(b'{"a": 1}') == {"a": 1}
    assert decode(b"\xff\x00") == "ff00"


# Letters keep their rows when they change, and no row takes more than it holds.


KEY = "Diary-d-1"


def letter(number: int, size: int) -> Letter:
    body = "".join(chr(33 + (number * 7919 + at * at) % 90) for at in range(size))
    envelope = Envelope(f"m-{number}", "Write", body)
    key, reason = f"m-{number}", Reason.HANDLER_ERROR
    return Letter(number, LetterState.WAITING, key, b"c", None, envelope, reason, "", 0, None, None, 0)


row_changes = st.lists(
    st.dictionaries(st.integers(1, 300), st.sampled_from([0, 10, 5_000]), max_size=60), max_size=5
)


@given(row_changes)
def test_what_was_written_is_read_after_any_changes(steps):
    table, kept = memory_table(), NO_LETTERS
    now: dict[int, Letter] = {}
    for step in steps:
        now |= {number: letter(number, size) for number, size in step.items() if size}
        now = {number: each for number, each in now.items() if step.get(number) != 0}
        kept, includes = kept.changed([now[number] for number in sorted(now)])
        if includes:
            drive(table.transact(KEY, includes))

        page = drive(table.query(KEY, letters.PREFIX, letters.LAST))
        assert read_letters(page.rows) == kept
        assert list(kept.all) == [now[number] for number in sorted(now)]


def test_a_row_in_the_middle_that_grows_too_large_becomes_two():
    few = limits.MAX_LETTER_BYTES // 100
    before, _ = NO_LETTERS.changed([letter(number, few) for number in range(1, 150)])

    large = [letter(n, limits.MAX_LETTER_BYTES - 1000 if n == 3 else few) for n in range(1, 150)]
    after, includes = before.changed(large)

    assert len(after.rows) > len(before.rows)
    rows = [Operation.insert(each.row_key, each.properties) for each in includes]
    drive(memory_table().transact(KEY, rows))

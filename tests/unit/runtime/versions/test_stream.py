"""Streams: which there are, what changed between two states, and the rows of dead letters."""

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

    assert [len(found(table, name)) for name in ("Diary", "Dia", "ShootingRange")] == [len(DIARIES), 0, 1]
    for prefix in ("a", "ab", "a/", "a~", "ä", "日", "-", "x"):
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
def test_states_that_differ_are_compared_field_by_field(before, after, expected):
    assert repr(changes(before, after)) == repr(expected)  # which tells 1, 1.0 and True apart


def test_a_state_that_is_no_json_is_shown_as_digits():
    assert decode(b'{"a": 1}') == {"a": 1}
    assert decode(b"\xff\x00") == "ff00"


KEY = "Diary-d-1"


def letter(number: int, size: int) -> Letter:
    body = "".join(chr(33 + (number * 7919 + at * at) % 90) for at in range(size))
    envelope = Envelope(f"m-{number}", "Write", body)
    key, reason = f"m-{number}", Reason.HANDLER_ERROR
    return Letter(number, LetterState.WAITING, key, b"c", None, envelope, reason, "", 0, None, None, 0)


@given(
    st.lists(st.dictionaries(st.integers(1, 300), st.sampled_from([0, 10, 5_000]), max_size=60), max_size=5)
)
def test_letters_are_read_as_they_were_written_after_any_changes(steps):
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


def test_a_row_of_letters_in_the_middle_that_grows_too_large_becomes_two():
    few = limits.MAX_LETTER_BYTES // 100
    before, _ = NO_LETTERS.changed([letter(number, few) for number in range(1, 150)])

    large = [letter(n, limits.MAX_LETTER_BYTES - 1000 if n == 3 else few) for n in range(1, 150)]
    after, includes = before.changed(large)

    assert len(after.rows) > len(before.rows)
    rows = [Operation.insert(each.row_key, each.properties) for each in includes]
    drive(memory_table().transact(KEY, rows))

"""Letters keep their rows when they change, and no row takes more than it holds."""

from hypothesis import given
from hypothesis import strategies as st

from eventstore import Operation, drive
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Reason
from runtime.versions import dead_letters as letters
from runtime.versions import limits
from runtime.versions.dead_letters import NO_LETTERS, Kind, Letter, read_letters
from tests.unit.runtime.tables import memory_table

KEY = "Diary-d-1"


def letter(number: int, size: int) -> Letter:
    body = "".join(chr(33 + (number * 7919 + at * at) % 90) for at in range(size))
    envelope = Envelope(f"m-{number}", "Write", body)
    return Letter(
        number, Kind.WAITING, f"m-{number}", b"c", None, envelope, Reason.HANDLER_ERROR, "", 0, None, None, 0
    )


changes = st.lists(
    st.dictionaries(st.integers(1, 300), st.sampled_from([0, 10, 5_000]), max_size=60), max_size=5
)


@given(changes)
def test_what_was_written_is_read_after_any_changes(steps):
    table, kept = memory_table(), NO_LETTERS
    now: dict[int, Letter] = {}
    for step in steps:
        now |= {number: letter(number, size) for number, size in step.items() if size}
        now = {number: each for number, each in now.items() if step.get(number) != 0}
        kept, includes = kept.changed([now[number] for number in sorted(now)])
        if includes:
            drive(table.transact(KEY, [include.operation() for include in includes]))

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

"""Truncation: which versions may go, what each rule keeps, and what a crash or a dry run leaves."""

from itertools import product
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import InterceptedTable, Row, Table, drive
from eventstore import writing as event_truncation
from eventstore.limits import row_bytes
from handlers import App, Context, Handler, Message, State, handles
from runtime.algorithms.state_based.truncation import (
    HeldBy,
    Truncated,
    TruncationChoices,
    TruncationRules,
    truncate_stream,
)
from runtime.errors import UsageError
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.versions import limits
from runtime.versions.dead_letter_rows import LetterState
from runtime.versions.stream import summaries
from tests.unit.runtime.accidents import At, CrashError, crash, disturbed, lose_answer
from tests.unit.runtime.diary import SKY, delivery, misbehave, ponder, write
from tests.unit.runtime.indexes import check_index, index_of
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, copy_of, memory_table, rows
from tests.unit.runtime.worker import (
    DAY,
    HOUR,
    NOW,
    ToldClock,
    Worker,
    ends,
    letters,
    made_by,
    open_batches,
    outputs,
    stored,
)

# Which versions may go: each rule alone keeps what it is there to keep.


KEY = "Diary-d-1"
OLD = NOW - 10 * DAY
"""When the versions of these tests were written and their messages enqueued, unless they say otherwise."""


def truncate(
    table: Table,
    *,
    key: str = KEY,
    running: tuple[str, ...] = ("running",),
    **rules: Any,
) -> Truncated:
    """Truncate the stream as of `NOW`: what is older than a day may go, unless a test says otherwise."""
    made = TruncationChoices(**{"older_than": DAY, **rules}).as_of(NOW, open_batches(*running))
    return by(table, made, key=key)


def by(table: Table, rules: TruncationRules, *, key: str = KEY, dry_run: bool = False) -> Truncated:
    truncated = drive(truncate_stream(table, key, rules, PATIENCE, dry_run=dry_run))
    assert truncated is not None
    return truncated


def add(table: Table, line: str, *, written_at: int = OLD, batch: str | None = "done", **fields: Any) -> None:
    worker = Worker(table, clock=ToldClock(written_at), batch=batch)
    assert ends(worker.process(write(line, **{"enqueued_at": OLD, **fields}))) == ["processed"]


def table_with(**second: Any) -> Table:
    """Return a table with a stream of four runs, the second of which is as a test says, and the rest may go."""
    table = memory_table()
    add(table, "a")
    add(table, "b", **second)
    add(table, "c", written_at=max(OLD, second.get("written_at", OLD)))
    add(table, "newest", written_at=NOW)
    return table


LAST = {"older_than": None, "keep_last": 1}


@pytest.mark.parametrize(
    ("second", "rules", "held"),
    [
        ({"batch": "running"}, {}, HeldBy.OPEN_BATCH),
        ({"batch": None}, {}, HeldBy.UNACKNOWLEDGED),
        ({"written_at": NOW - DAY}, {}, None),
        ({"written_at": NOW - DAY - 1, "enqueued_at": NOW - DAY}, {}, None),
        ({"enqueued_at": None}, {}, HeldBy.UNDATED),
        ({"enqueued_at": None, "written_at": NOW - DAY}, {}, None),
        # A day is the least also where only a number is kept.
        ({"written_at": NOW - HOUR}, LAST, None),
        ({"written_at": NOW - 3 * DAY}, {"older_than": 5 * DAY, "keep_last": 1}, None),
    ],
)
def test_each_rule_alone_keeps_a_version_and_all_after_it(second, rules, held):
    table = table_with(**second)

    truncated = truncate(table, **rules)

    assert made_by(table) == ["b", "c", "newest"]
    assert (truncated.versions, truncated.runs, truncated.kept_from) == (1, 1, 2)
    assert truncated.held == held


@pytest.mark.parametrize(
    ("second", "allowed"),
    [
        ({"batch": None}, {"acknowledged_after": 9 * DAY}),
        ({"batch": "running"}, {"running": ()}),
        ({"written_at": NOW - DAY - 1}, {}),
        ({"written_at": NOW - DAY - 1, "enqueued_at": NOW - DAY - 1}, {}),
        ({"enqueued_at": None}, {"allow_undated": True}),
        (
            {"written_at": NOW - HOUR, "enqueued_at": NOW - HOUR},
            {"older_than": HOUR - 1, "allow_young": True},
        ),
        ({"written_at": NOW - HOUR, "enqueued_at": NOW - HOUR}, {**LAST, "allow_young": True}),
        ({"written_at": NOW - 3 * DAY}, {"older_than": 2 * DAY, "keep_last": 1}),
    ],
)
def test_and_lets_it_go_when_it_does_not_apply(second, allowed):
    table = table_with(**second)

    truncate(table, **allowed)

    assert made_by(table) == ["newest"]


def test_the_newest_run_is_kept_whatever_its_age(table):
    # It holds the newest state, or the state before it: nothing could be handled or replayed without it.
    add(table, "a")
    assert truncate(table) == Truncated(KEY, 0, 0, 1, 1, None)
    Worker(table, clock=ToldClock(OLD), batch="done").process(
        write("b", enqueued_at=OLD), write("c", enqueued_at=OLD)
    )

    truncated = truncate(table)

    assert made_by(table) == ["b", "c"]
    assert truncated.kept_from == 2


def test_a_run_goes_only_when_all_its_versions_may_go(table):
    Worker(table, clock=ToldClock(NOW - 2 * DAY), batch="done").process(
        write("a", enqueued_at=OLD), write("young", enqueued_at=NOW - 2 * DAY), write("c", enqueued_at=OLD)
    )
    add(table, "d", written_at=NOW - 2 * DAY)

    assert truncate(table, older_than=2 * DAY).versions == 0, "one message is too young"
    assert truncate(table, keep_last=2).versions == 0
    assert truncate(table, keep_last=1).versions == 3


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({}, "^Specify the versions to delete: --older-than AGE, --keep-last N, or both.$"),
        ({"older_than": DAY - 1}, "^Versions younger than 24h are kept"),
    ],
)
def test_rules_that_could_cut_too_much_are_refused(options, sentence):
    with pytest.raises(UsageError, match=sentence):
        TruncationChoices(**options).as_of(NOW, OpenBatches())


def test_a_run_of_several_batches_goes_only_when_all_of_them_are_finished(table, monkeypatch):
    monkeypatch.setattr(limits, "MAX_TAIL_BYTES", 400)
    for number in range(12):
        add(table, f"m-{number}", batch=f"batch-{number}")
    assert index_of(table)[0].ends[0] > 1

    assert truncate(table, running=("batch-1",)).versions == 0
    truncate(table, running=())
    assert made_by(table) == ["m-11"]


def test_index_rows_go_with_the_last_of_their_versions(table, monkeypatch):
    monkeypatch.setattr(limits, "MAX_SEGMENT_BYTES", 0)
    monkeypatch.setattr(limits, "MAX_INDEX_HASHES", 3)
    for number in range(9):
        add(table, f"m-{number}")
    assert [row.last for row in index_of(table)] == [3, 6, 9]

    for kept, left in ((7, 3), (6, 2), (4, 2), (3, 1)):
        truncate(table, keep_last=kept)
        assert (len(made_by(table)), len(index_of(table))) == (kept, left)
        check_index(table)


# Versions of single messages whose outputs may be unpublished are kept, until somebody says otherwise.


class Rung(Message):
    door: str
    is_loud: bool = False


class Heard(Message):
    """A loud bell is heard."""


class Bell(Handler[State]):
    @handles(by="door")
    def ring(self, state: State, message: Rung, context: Context) -> State:
        if message.is_loud:
            context.publish(Heard())
        return state


@pytest.fixture(params=[limits.MAX_SEGMENT_VERSIONS, 0], ids=["tail", "runs"])
def _place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SEGMENT_VERSIONS", request.param)


@pytest.mark.usefixtures("_place")
def test_what_has_no_outputs_has_nothing_to_lose(table):
    # Given a stream of rings, the fourth of which is loud
    for number, is_loud in enumerate([False, False, False, True, False, False]):
        body = {"door": "east", "is_loud": is_loud}
        worker = Worker(table, App(Bell), clock=ToldClock(OLD), business_id="east")
        worker.process(delivery(f"m{number}", "Rung", body, enqueued_at=OLD))

    # Then what was made before that goes by default, and all but the newest with a promise
    truncated = truncate(table, key="Bell-east")
    assert (truncated.kept_from, truncated.held) == (4, HeldBy.UNACKNOWLEDGED)
    truncated = truncate(table, key="Bell-east", acknowledged_after=0)
    assert (truncated.kept_from, truncated.held) == (6, None)


@pytest.mark.usefixtures("_place")
def test_a_promise_lets_go_what_is_older_than_it_and_counts_for_no_batch(table):
    for number, batch in enumerate([None, "done", None, "running", "done"]):
        add(table, str(number), batch=batch, written_at=OLD + number)

    assert truncate(table, acknowledged_after=NOW - OLD - 2).kept_from == 3
    truncated = truncate(table, acknowledged_after=DAY)
    assert (truncated.kept_from, truncated.held) == (4, HeldBy.OPEN_BATCH)
    assert made_by(table) == ["3", "4"]


# After a truncation: the horizon has moved and never moves back, and what is kept works as before.


LATE = BatchContext(late="process")


def head(table):
    async def first():
        return [summary async for summary in summaries(table)]

    (summary,) = drive(first())
    return summary.head


def test_the_redelivery_window_moves_the_horizon_further():
    # For logs whose broker stamps each copy anew: a copy of a cut message may seem newer than it was.
    table = table_with()

    truncate(table, redelivery_window=HOUR)

    assert head(table).horizon == OLD + HOUR
    assert ends(Worker(table).process(write("a", enqueued_at=OLD + HOUR))) == ["too_late"]
    assert ends(Worker(table).process(write("x", enqueued_at=OLD + HOUR + 1))) == ["processed"]


@given(
    times=st.lists(st.none() | st.integers(-5, 5), min_size=2, max_size=8),
    windows=st.lists(st.integers(0, 4), min_size=8, max_size=8),
)
def test_the_horizon_never_moves_back(times, windows):
    table, before = memory_table(), None
    for number, (time, window) in enumerate(zip(times, windows, strict=False)):
        Worker(table, clock=ToldClock(OLD), batch=LATE).process(
            write(str(number), enqueued_at=None if time is None else OLD + time)
        )
        truncate(table, redelivery_window=window, allow_undated=True)

        horizon = head(table).horizon
        assert before is None or (horizon is not None and horizon >= before)
        before = horizon


def test_a_truncation_of_messages_without_a_time_leaves_the_horizon_but_marks_the_stream(table):
    add(table, "a", enqueued_at=None)
    add(table, "b")

    assert truncate(table).versions == 0
    assert not head(table).undated_cut

    assert truncate(table, allow_undated=True).versions == 1
    assert (head(table).horizon, head(table).undated_cut) == (None, True)
    add(table, "c")
    assert truncate(table).versions == 1
    assert head(table).undated_cut, "the mark stays when others are cut later"


@pytest.mark.parametrize("size", [1, 20_000], ids=["state in the header", "state in the run"])
def test_what_is_kept_gives_the_outputs_that_it_gave_and_the_state_goes_on_from_where_it_was(table, size):
    first = [
        Worker(table, clock=ToldClock(OLD), batch="done").process(write(line * size, line, enqueued_at=OLD))
        for line in "abcd"
    ]
    other = Worker(table, clock=ToldClock(OLD), business_id="d-2", batch="done")
    other.process(write("a", diary="d-2"))
    other.process(write("b", diary="d-2"))

    truncate(table, keep_last=2)
    again = Worker(table).process(write("d" * size, "d"), write("c" * size, "c"), ponder("p"))

    assert ends(again) == ["duplicate", "duplicate", "processed"]
    assert outputs(again[:2]) == [*outputs(first[3]), *outputs(first[2])]
    assert again[2].outputs[0].body == '{"lines":4}'
    assert [version.number for version in stored(table)] == [3, 4, 5]
    assert made_by(table, business_id="d-2") == ["a", "b"]


@pytest.mark.parametrize("keep_last", [1, 3])
def test_now_does_not_go_back_after_a_truncation(table, keep_last):
    for line in "abcd":
        add(table, line, written_at=OLD + DAY)
    truncate(table, keep_last=keep_last)

    Worker(table, clock=ToldClock(OLD)).process(write("e", enqueued_at=NOW - DAY * 2))

    assert stored(table)[-1].record.now == OLD + DAY


# A letter that waits holds the horizon of its stream, so that a redrive is never too late.


REDRIVE = BatchContext("redrive", number=90, is_redrive=True)


def at(day: int, *deliveries, table: Table) -> list[str]:
    """Handle deliveries in a batch of that day, and say what became of them."""
    worker = Worker(table, clock=ToldClock(NOW + day * DAY), batch=BatchContext(f"day-{day}", number=day))
    return ends(worker.process(*(each._replace(enqueued_at=NOW + day * DAY) for each in deliveries)))


def history(*, refused_on: int) -> Table:
    """Return a table with a stream of ten days, and a message that was refused on one of them."""
    table = memory_table()
    for day in range(1, 11):
        bad = [misbehave("fail under a dark sky", "bad")] if day == refused_on else []
        at(day, *bad, write(f"line {day}"), table=table)
    return table


def cut(table: Table, *, dry_run: bool = False, **rules: int) -> Truncated:
    given: dict[str, Any] = {"older_than": DAY, **rules}
    made = TruncationChoices(**given).as_of(NOW + 30 * DAY, OpenBatches(next=90))
    return by(table, made, dry_run=dry_run)


def test_nothing_is_cut_that_would_make_its_redrive_too_late(monkeypatch):
    monkeypatch.setitem(SKY, "colour", "black")
    table = history(refused_on=5)
    monkeypatch.setitem(SKY, "colour", "blue")

    found = cut(table, redelivery_window=2 * DAY)

    assert (found.held, found.versions) == (HeldBy.LETTER, 2)
    assert cut(table).versions == 2, "two more without the window"
    redriven = misbehave("fail under a dark sky", "bad")._replace(enqueued_at=NOW + 5 * DAY)
    worker = Worker(table, clock=ToldClock(NOW + 31 * DAY), batch=REDRIVE)
    assert ends(worker.process(redriven)) == ["processed"]
    assert cut(table).held is None


def test_an_undated_letter_holds_undated_versions(table, monkeypatch):
    monkeypatch.setitem(SKY, "colour", "black")
    for number in range(3):
        Worker(table, batch=BatchContext(f"b-{number}", number=number)).process(
            write(f"line {number}"), misbehave("fail under a dark sky", "bad")
        )

    assert cut(table, allow_undated=True).held is HeldBy.LETTER


def test_letters_can_be_given_up_by_their_age_and_their_message_stays_refused(monkeypatch):
    monkeypatch.setitem(SKY, "colour", "black")
    table = history(refused_on=5)
    before = contents(table)

    younger = cut(table, dry_run=True, give_up_letters_older_than=26 * DAY - HOUR)
    assert (younger.letters, younger.held) == (0, HeldBy.LETTER)
    planned = cut(table, dry_run=True, give_up_letters_older_than=20 * DAY)
    assert contents(table) == before
    unanswered = disturbed(table, lose_answer, numbers=[1, 2], after=True)
    found = cut(unanswered, give_up_letters_older_than=20 * DAY)

    assert found == planned
    assert (found.letters, found.versions, found.held) == (1, 9, None)
    (letter,) = letters(table)
    assert (letter.state, letter.envelope) == (LetterState.GIVEN_UP, None)
    assert made_by(table) == ["line 10"]
    assert at(31, misbehave("fail under a dark sky", "bad"), table=table) == ["handler_error"]


# A truncation may die at any of its calls.


COUNT = 210
"""So many runs that their rows are deleted in three transactions."""

RULES = TruncationChoices(older_than=DAY, acknowledged_after=0).as_of(NOW, OpenBatches())


@pytest.fixture(scope="module", params=[0, 200, 2**15], ids=["runs", "runs and a tail", "a tail"])
def long_stream(request: pytest.FixtureRequest) -> Table:
    """Give a stream of many commits, all but the newest of which may go; the last but one was enqueued last."""
    table = memory_table()
    worker = Worker(table, clock=ToldClock(OLD))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_SEGMENT_BYTES", request.param)
        patch.setattr(limits, "MAX_TAIL_BYTES", 10 * request.param)
        for number in range(COUNT):
            worker.process(ponder(f"m-{number}", enqueued_at=OLD + number))
    return table


@pytest.fixture(scope="module")
def truncated(long_stream: Table) -> Table:
    table = copy_of(long_stream)
    by(table, RULES)
    assert made_by(table) == [f"m-{COUNT - 1}"]
    return table


def crashing(table: Table, call: int, *, effect: bool) -> InterceptedTable:
    """Return the table, where the process dies at a call: before it, or after it took effect."""
    return InterceptedTable(table, **{"after" if effect else "before": At(call, crash)})


def test_after_any_crash_the_stream_can_be_read_and_running_again_finishes(long_stream, truncated):
    counted = InterceptedTable(copy_of(long_stream))
    by(counted, RULES)
    events = sum(key.startswith("SS-SE-") for _, key in rows(long_stream))
    assert counted.counts["transact"] == (3 if events == COUNT else 1)
    newest = Worker(copy_of(long_stream)).process(ponder(f"m-{COUNT - 1}"))

    for call, effect in product(range(1, counted.calls + 1), (False, True)):
        crashed = copy_of(long_stream)
        with pytest.raises(CrashError):
            by(crashing(crashed, call, effect=effect), RULES)

        # The stream can be read: its newest version is known, and gives the outputs that it gave.
        assert outputs(Worker(crashed).process(ponder(f"m-{COUNT - 1}"))) == outputs(newest)
        assert made_by(crashed)[-1] == f"m-{COUNT - 1}"
        check_index(crashed)

        # Truncating again leaves exactly what a truncation without a crash leaves.
        by(crashed, RULES)
        assert rows(crashed) == rows(truncated)


@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("numbers", [[1], [2], [1, 2, 3]])
def test_what_is_told_is_what_all_attempts_have_cut(long_stream, truncated, numbers, after):
    table = copy_of(long_stream)

    told = by(disturbed(table, lose_answer, numbers=numbers, after=after), RULES)

    assert told == by(copy_of(long_stream), RULES, dry_run=True)
    assert rows(table) == rows(truncated)


# A dry run tells exactly what a run does: versions, rows and bytes, and what of each stream is held.


commits = st.lists(
    st.tuples(
        st.integers(1, 4),  # messages
        st.integers(1, 20),  # days ago
        st.sampled_from([None, "published", "open"]),
        st.booleans(),  # with enqueued_at
    ),
    min_size=1,
    max_size=12,
)
drawn_rules = st.builds(
    lambda **given: TruncationChoices(**given).as_of(NOW, open_batches("open")),
    older_than=st.integers(1, 20).map(lambda days: days * DAY),
    keep_last=st.integers(0, 10),
    allow_undated=st.booleans(),
    acknowledged_after=st.sampled_from([None, 0, 5 * DAY]),
)
layouts = st.fixed_dictionaries(
    {
        "MAX_TAIL_BYTES": st.sampled_from([0, 400, limits.MAX_TAIL_BYTES]),
        "MAX_SEGMENT_BYTES": st.sampled_from([0, limits.MAX_SEGMENT_BYTES]),
        "MAX_INDEX_HASHES": st.sampled_from([3, limits.MAX_INDEX_HASHES]),
    }
)


def stream_of(made) -> Table:
    table = memory_table()
    ages = sorted((each[1] for each in made), reverse=True)
    for number, ((messages, _, batch, is_dated), age) in enumerate(zip(made, ages, strict=True)):
        sent = NOW - age * DAY
        Worker(table, clock=ToldClock(sent), batch=batch).process(
            *(ponder(f"{number}-{each}", enqueued_at=sent if is_dated else None) for each in range(messages))
        )
    return table


def rows_of(table: Table) -> list[Row]:
    return list(drive(table.scan(None)).rows)


def size(table: Table) -> int:
    return sum(map(row_bytes, rows_of(table)))


def check(table: Table, rules: TruncationRules) -> Truncated:
    """Truncate a table, dry and then really; what both tell is what is gone."""
    rows_before, size_before = rows_of(table), size(table)

    told = by(table, rules, dry_run=True)
    assert rows_of(table) == rows_before

    done = by(table, rules)
    assert done == told
    assert done.rows == len(rows_before) - len(rows_of(table))
    assert done.bytes == size_before - size(table)
    return done


@given(commits, layouts, drawn_rules, drawn_rules)
def test_what_a_dry_run_tells_is_what_goes(made, layout, first, second):
    with patch.multiple(limits, **layout):
        table = stream_of(made)

        check(table, first)
        check(table, second)
        again = check(table, second)

    assert (again.versions, again.rows, again.bytes) == (0, 0, 0)


@pytest.mark.parametrize("at_once", [1, 3, 64])
def test_rows_that_a_crash_has_left_are_told_too(at_once, monkeypatch):
    # Given a truncation that dies after its first transaction, which deletes two of ten rows_of
    monkeypatch.setattr(limits, "MAX_SEGMENT_BYTES", 0)
    monkeypatch.setattr(event_truncation, "_CHANGES", 3)
    monkeypatch.setattr(event_truncation, "_MEASURED_AT_ONCE", at_once)
    table = stream_of([(1, 9, None, True)] * 11)
    whole = copy_of(table)
    with monkeypatch.context() as patched:
        patched.setattr(event_truncation, "_delete", _first_only)
        by(table, RULES)
    deleted = len(rows_of(whole)) - len(rows_of(table))

    # When it is told what is left to do, and that is done
    left = check(table, RULES)

    # Then both together have deleted what one run deletes
    assert left.rows > 0
    assert left.rows + deleted == check(whole, RULES).rows


_delete = event_truncation._delete


async def _first_only(partition, header, mark, doomed, included=()):
    return await _delete(partition, header, mark, doomed[: 3 - len(included)], included)

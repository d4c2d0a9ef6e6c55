"""Truncation: which versions may go, and what each rule keeps."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Table, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime.algorithms.state_based.truncation import (
    HeldBy,
    Truncated,
    TruncationChoices,
    truncate_stream,
)
from runtime.errors import UsageError
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.versions import limits
from runtime.versions.dead_letter_rows import LetterState
from runtime.versions.stream import summaries
from tests.unit.runtime.diary import SKY, delivery, misbehave, ponder, write
from tests.unit.runtime.indexes import check_index, index_of
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, memory_table
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
    dry_run: bool = False,
    running: tuple[str, ...] = ("running",),
    **rules: Any,
) -> Truncated:
    """Truncate the stream as of `NOW`: what is older than a day may go, unless a test says otherwise."""
    made = TruncationChoices(**{"older_than": DAY, **rules}).as_of(NOW, open_batches(*running))
    truncated = drive(truncate_stream(table, key, made, PATIENCE, dry_run=dry_run))
    assert truncated is not None
    return truncated


def add(table: Table, line: str, *, written_at: int = OLD, batch: str | None = "done", **fields: Any) -> None:
    """Add a run of one version."""
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
    """Somebody rings, loudly or not."""

    door: str
    is_loud: bool = False


class Heard(Message):
    """A loud bell is heard."""


class Bell(Handler[State]):
    """Publishes something for loud rings only."""

    @handles(by="door")
    def ring(self, state: State, message: Rung, context: Context) -> State:
        if message.is_loud:
            context.publish(Heard())
        return state


@pytest.fixture(params=[limits.MAX_SEGMENT_VERSIONS, 0], ids=["tail", "runs"])
def _place(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let versions stand in the tail, or each in a run."""
    monkeypatch.setattr(limits, "MAX_SEGMENT_VERSIONS", request.param)


@pytest.mark.usefixtures("_place")
def test_a_message_whose_worker_died_before_it_published_is_not_too_late(table):
    # Given a message whose outputs are lost, and newer ones
    for line in ("lost", "a", "b"):
        add(table, line, batch=None)

    # When the stream is truncated by default, and the queue delivers the message again
    truncated = truncate(table)
    again = Worker(table).process(write("lost", enqueued_at=OLD))

    # Then it gives its outputs
    assert (truncated.versions, truncated.held) == (0, HeldBy.UNACKNOWLEDGED)
    assert ends(again) == ["duplicate"]
    assert outputs(again)


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
    found = drive(truncate_stream(table, "Diary-d-1", made, PATIENCE, dry_run=dry_run))
    assert found is not None
    return found


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
    found = cut(table, give_up_letters_older_than=20 * DAY)

    assert found == planned
    assert (found.letters, found.versions, found.held) == (1, 9, None)
    (letter,) = letters(table)
    assert (letter.state, letter.envelope) == (LetterState.GIVEN_UP, None)
    assert made_by(table) == ["line 10"]
    assert at(31, misbehave("fail under a dark sky", "bad"), table=table) == ["handler_error"]

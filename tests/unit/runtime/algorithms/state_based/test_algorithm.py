"""The state-based algorithm: new messages, duplicates, lost races and answers, and what each costs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import InterceptedTable, StoreUnavailableError, drive
from runtime import Envelope
from runtime.errors import RetriesExhaustedError
from runtime.retries import Retries, RetryPolicy
from runtime.versions import limits
from runtime.versions.run import Version
from tests.unit.runtime.diary import misbehave, ponder, write
from tests.unit.runtime.tables import contents, memory_table, rows
from tests.unit.runtime.worker import (
    NOW,
    ToldClock,
    Worker,
    ends,
    made_by,
    stored,
)

# `now` never goes back within a stream, whatever the clock does.


def times(found: list[Version]) -> list[int]:
    return [version.record.now for version in found]


@given(st.lists(st.lists(st.integers(-5, 5), min_size=1, max_size=3), min_size=1, max_size=6))
def test_now_never_goes_back_and_is_never_ahead_of_all_clocks(batches):
    table, number = memory_table(), 0
    latest: list[int] = []
    for batch in batches:
        clock = ToldClock()
        worker = Worker(table, clock=clock)
        for shift in batch:
            clock.now = NOW + shift
            number += 1
            worker.process(write(f"m-{number}"))
            latest.append(max([*latest, NOW + shift]))

    assert times(stored(table)) == latest


# Lost races are tried again a bounded number of times in a row; the bound starts anew after progress.


def unreachable(table, *, times: int):
    """Return the table, each transaction of which fails so often in a row before it succeeds."""
    failures: list[str] = []

    def fail(name: str, *_: object) -> None:
        if name != "transact":
            return
        if len(failures) < times:
            failures.append(name)
            raise StoreUnavailableError("no answer")
        failures.clear()

    return InterceptedTable(table, before=fail)


def test_a_store_that_never_answers_fails_the_work_after_the_attempts(table):
    gone = unreachable(table, times=10**9)

    with pytest.raises(RetriesExhaustedError, match="Gave up after 5 attempts in a row: no answer") as failed:
        Worker(gone, attempts=5).process(write("a"))

    assert gone.counts == {"query": 5, "transact": 5}
    assert isinstance(failed.value.__cause__, StoreUnavailableError)
    assert contents(table) == {}


def test_the_bound_starts_anew_after_each_part_that_is_stored(table, monkeypatch: pytest.MonkeyPatch):
    # Given parts of one version each, and three failures before each of them
    monkeypatch.setattr(limits, "MAX_RUN_VERSIONS", 1)
    monkeypatch.setattr(limits, "MAX_TRANSACTION_RUNS", 1)
    flaky = unreachable(table, times=3)

    # When there are more failures than attempts, but never as many in a row
    outcomes = Worker(flaky, attempts=4).process(*(write(line) for line in "abcdef"))

    # Then all is stored
    assert flaky.counts["transact"] == 6 * 4
    assert ends(outcomes) == ["processed"] * 6
    assert made_by(table) == list("abcdef")


class Pauses:
    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def fail_often(retries: Retries, times: int) -> None:
    for _ in range(times):
        drive(retries.pause(StoreUnavailableError("no answer")))


def test_pauses_double_up_to_the_longest_are_drawn_from_their_upper_half_and_end_with_progress():
    pauses, others = Pauses(), Pauses()
    retries = RetryPolicy(attempts=7, first=1, longest=8, sleep=pauses).start()

    fail_often(retries, 6)
    for seconds, longest in zip(pauses.seconds, [1, 2, 4, 8, 8, 8], strict=True):
        assert longest / 2 <= seconds <= longest
    fail_often(RetryPolicy(attempts=7, first=1, longest=8, sleep=others).start(), 6)
    assert others.seconds != pauses.seconds, "two that collided pause for different times"

    # Progress takes pauses and attempts back to the start; there is no pause after the last attempt.
    retries.progress()
    with pytest.raises(RetriesExhaustedError):
        fail_often(retries, 7)
    assert len(pauses.seconds) == 12
    assert pauses.seconds[6] <= 1


# What a stream and batch cost: one query and one transaction, whatever the history.


NEW, AGAIN = {"query": 1, "transact": 1}, {"query": 1}
LARGE = write("x" * 40_000, message_id="large")


def lines(text: str) -> list[Envelope]:
    return [write(each) for each in text]


def cost(table, *deliveries) -> dict[str, int]:
    counted = InterceptedTable(table)
    Worker(counted).process(*deliveries)
    return dict(counted.counts)


@pytest.mark.parametrize(
    ("commits", "deliveries", "requests"),
    [
        ([], [], {}),
        ([], [write(f"m-{number}") for number in range(100)], NEW),
        ([[write(f"old-{number}")] for number in range(40)], lines("ab"), NEW),
        ([[ponder(f"old-{run}-{number}") for number in range(400)] for run in range(30)], lines("ab"), NEW),
        ([lines("ab")], lines("ab"), AGAIN),
        ([lines("ab")], lines("ac"), NEW),
        ([], lines("aaa"), NEW),
        ([], [misbehave("fail"), *lines("a")], NEW),
        ([[misbehave("fail")]], [misbehave("fail")], AGAIN),
        # A state that is too large for the header is in a run, which is not read twice for a duplicate in it.
        ([[LARGE]], lines("a"), {"query": 2, "transact": 1}),
        ([[LARGE], lines("a")], lines("a"), {"query": 2}),
    ],
)
def test_a_stream_and_batch_cost_one_query_and_one_transaction(table, commits, deliveries, requests):
    for commit in commits:
        Worker(table).process(*commit)
    if len(commits) == 30:
        assert sum(key.startswith("SS-SE-") for _, key in rows(table)) >= 5

    assert cost(table, *deliveries) == requests


@pytest.mark.usefixtures("no_tail")
@pytest.mark.parametrize(("deliveries", "queries"), [("ac", 3), ("bcd", 2), ("acf", 4), ("ag", 2)])
def test_duplicates_in_runs_cost_a_query_for_each_series_of_runs(table, deliveries, queries):
    for line in "abcdef":
        Worker(table).process(write(line))

    new = {"transact": 1} if "g" in deliveries else {}
    assert cost(table, *lines(deliveries)) == {"query": queries, **new}

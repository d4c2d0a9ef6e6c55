"""Lost races are tried again a bounded number of times in a row; the bound starts anew after progress."""

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, drive
from runtime.errors import RetriesExhaustedError
from runtime.retries import Retries, RetryPolicy
from runtime.versions import limits
from tests.unit.runtime.diary import write
from tests.unit.runtime.tables import contents, memory_table
from tests.unit.runtime.worker import Worker, ends, made_by


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


def test_a_store_that_never_answers_fails_the_work_after_the_attempts():
    table = memory_table()
    gone = unreachable(table, times=10**9)

    with pytest.raises(
        RetriesExhaustedError, match=r"^Gave up after 5 attempts in a row: no answer$"
    ) as failed:
        Worker(gone, attempts=5).process(write("a"))

    assert gone.counts == {"query": 5, "transact": 5}
    assert isinstance(failed.value.__cause__, StoreUnavailableError)
    assert contents(table) == {}


def test_a_store_that_answers_at_the_last_attempt_does_not():
    table = memory_table()

    assert ends(Worker(unreachable(table, times=4), attempts=5).process(write("a"))) == ["processed"]


def test_a_writer_that_loses_every_race_fails_after_the_attempts():
    table, number = memory_table(), iter(range(10**9))

    def win(name: str, *_: object):
        return Worker(table).handle(write(f"theirs-{next(number)}")) if name == "transact" else None

    with pytest.raises(
        RetriesExhaustedError, match=r"^Gave up after 4 attempts in a row: The stream at Diary-d-1"
    ):
        Worker(InterceptedTable(table, before=win), attempts=4).process(write("ours"))

    assert made_by(table) == [f"theirs-{number}" for number in range(4)]


def test_the_bound_starts_anew_after_each_part_that_is_stored(monkeypatch: pytest.MonkeyPatch):
    # Given parts of one version each, and three failures before each of them
    monkeypatch.setattr(limits, "MAX_RUN_VERSIONS", 1)
    monkeypatch.setattr(limits, "MAX_TRANSACTION_RUNS", 1)
    table = memory_table()
    flaky = unreachable(table, times=3)

    # When there are more failures than attempts, but never as many in a row
    outcomes = Worker(flaky, attempts=4).process(*(write(line) for line in "abcdef"))

    # Then all is stored
    assert flaky.counts["transact"] == 6 * 4
    assert ends(outcomes) == ["processed"] * 6
    assert made_by(table) == list("abcdef")


class Pauses:
    """Sleeps not at all, and tells for how long it was asked to."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)


def fail_often(retries: Retries, times: int) -> None:
    for _ in range(times):
        drive(retries.pause(StoreUnavailableError("no answer")))


def test_pauses_double_up_to_the_longest_and_are_drawn_from_their_upper_half():
    pauses = Pauses()

    fail_often(RetryPolicy(attempts=9, first=1, longest=8, sleep=pauses).start(), 6)

    for seconds, longest in zip(pauses.seconds, [1, 2, 4, 8, 8, 8], strict=True):
        assert longest / 2 <= seconds <= longest


def test_pauses_of_two_that_collided_differ():
    one, other = Pauses(), Pauses()

    fail_often(RetryPolicy(sleep=one).start(), 8)
    fail_often(RetryPolicy(sleep=other).start(), 8)

    assert one.seconds != other.seconds


def test_progress_takes_pauses_and_attempts_back_to_the_start():
    pauses = Pauses()
    retries = RetryPolicy(attempts=4, first=1, longest=8, sleep=pauses).start()

    fail_often(retries, 3)
    retries.progress()
    fail_often(retries, 3)

    assert pauses.seconds[3] <= 1
    with pytest.raises(RetriesExhaustedError):
        fail_often(retries, 1)


def test_there_is_no_pause_after_the_last_attempt():
    pauses = Pauses()

    with pytest.raises(RetriesExhaustedError):
        fail_often(RetryPolicy(attempts=3, sleep=pauses).start(), 3)

    assert len(pauses.seconds) == 2

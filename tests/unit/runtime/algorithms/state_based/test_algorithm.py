"""The state-based algorithm: new messages, duplicates, lost races and answers, and what each costs."""

from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import InterceptedTable, Operation, RowChangedError, StoreUnavailableError, Table, drive
from runtime import Envelope
from runtime.algorithms.state_based.truncation import TruncationChoices, truncate_stream
from runtime.clock import to_datetime
from runtime.errors import RetriesExhaustedError
from runtime.ledger.batch import OpenBatches
from runtime.retries import Retries, RetryPolicy
from runtime.versions import limits
from runtime.versions.head import read_tail
from runtime.versions.run import Version
from tests.unit.runtime import diary
from tests.unit.runtime.algorithms.game import fire, start
from tests.unit.runtime.algorithms.world import World
from tests.unit.runtime.diary import DIARY, Wrote, misbehave, ponder, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, memory_table, rows
from tests.unit.runtime.worker import (
    DAY,
    HOUR,
    NOW,
    SECOND,
    ToldClock,
    Worker,
    ends,
    made_by,
    outputs,
    stored,
)

# A new message is handled on the newest state, and adds a version that records all that a replay needs.


def test_messages_are_handled_in_their_order_each_on_the_state_before(table):
    outcomes = Worker(table, batch="one").process(write("a"), write("b"))
    outcomes += Worker(table, batch="two").process(write("c"))

    assert ends(outcomes) == ["processed"] * 3
    assert [outcome.version for outcome in outcomes] == [1, 2, 3]
    pages = [Wrote.model_validate_json(output.body).on_page for output in outputs(outcomes)]
    assert pages == [("a",), ("a", "b"), ("a", "b", "c")]
    assert [version.after for version in stored(table)[:-1]] == [
        version.before for version in stored(table)[1:]
    ]
    assert stored(table)[-1].after == b'{"lines":["a","b","c"],"words":["a","b","c"],"weight":0.0}'


def test_a_message_that_changes_nothing_is_recorded_all_the_same(table):
    (outcome,) = Worker(table).process(ponder("p"))
    (again,) = Worker(table).process(ponder("p"))

    assert ends([outcome, again]) == ["processed", "duplicate"]
    assert outcome.outputs == again.outputs
    assert made_by(table) == ["p"]
    assert stored(table)[0].record.after is None


def test_outputs_are_messages_of_a_log():
    outcomes = Worker(memory_table(), clock=ToldClock(NOW + 5)).process(write("a"), write("b"))

    first, second = outputs(outcomes)
    assert (first.type, first.headers, first.enqueued_at) == ("Wrote", {"line": "1"}, NOW + 5)
    assert (first.sequence, second.sequence) == (1 << 20, 2 << 20)
    assert first.envelope().message_id == first.message_id
    assert first.message_id != second.message_id


def test_all_that_the_handler_was_told_is_recorded(table):
    envelope = write("a", headers={"trace": "t-1"}, enqueued_at=NOW - SECOND)

    Worker(table, clock=ToldClock(NOW + 7), batch="batch-1").process(envelope)

    (found,) = stored(table)
    assert found.message_id == "a"
    assert found.batch == "batch-1"
    assert found.written_at == NOW + 7
    assert found.before == b'{"lines":[],"words":[],"weight":0.0}'
    assert (found.record.now, found.record.enqueued_at) == (NOW + 7, NOW - SECOND)
    assert (found.record.headers, found.record.revision) == ({"trace": "t-1"}, 1)
    assert found.record.captured == {"sky": b"\xa4blue"}


def test_the_header_tells_the_newest_state(table):
    Worker(table, clock=ToldClock(NOW)).process(write("a"), write("b"))

    header = dict(rows(table)[f"Diary-{DIARY}", "SS-HEAD"])
    assert read_tail(header.pop("Tail")).count == 2
    assert header == {
        "Version": 0,
        "State": b'{"lines":["a","b"],"words":["a","b"],"weight":0.0}',
        "StateSchema": 1,
        "StateVersions": 2,
        "LastNow": to_datetime(NOW),
    }


# What the article's published code gets wrong; the outbox's tests play its scenarios with every algorithm.


def test_the_target_moves_after_two_shots_and_moves_alike_for_copies():
    game = World("state-based")
    game.deliver(start(1, 1), fire(1, 1), fire(2, 1))

    # Where the target is now, only the shots tell: one of a hundred hits.
    misses = game.deliver(*(fire(number, number - 100) for number in range(100, 102)))
    again = game.deliver(*(fire(number, number - 100) for number in range(100, 102)))

    assert [outcome.outputs for outcome in misses] == [outcome.outputs for outcome in again]


def test_a_duplicate_in_the_middle_of_a_run_is_handled_on_the_state_just_before_its_own():
    worker = Worker(memory_table())
    first = worker.process(*(write(line) for line in "abcdef"))

    again = worker.process(write("c"))

    assert again[0].outputs == first[2].outputs
    assert '"on_page":["a","b","c"]' in again[0].outputs[0].body


# `processed` and `duplicate` are told relative to the batch that added a version, and to its first delivery there.


def test_a_batch_that_is_run_again_gives_the_same_statuses_and_outputs(table):
    # A task that is tried again must not turn what its batch processed into duplicates.
    deliveries = [write("a"), write("a"), ponder("p"), write("b"), misbehave("fail"), write("a")]
    first = Worker(table, batch="batch-1").process(*deliveries)
    before = contents(table)

    again = Worker(table, batch="batch-1").process(*deliveries)

    assert ends(first) == ["processed", "duplicate", "processed", "processed", "handler_error", "duplicate"]
    assert again == first
    assert contents(table) == before


def test_only_the_first_delivery_in_a_batch_has_outputs():
    outcomes = Worker(memory_table(), batch="batch-1").process(write("a"), write("a"), write("a"))

    assert ends(outcomes) == ["processed", "duplicate", "duplicate"]
    assert [len(outcome.outputs) for outcome in outcomes] == [1, 0, 0]
    assert [outcome.version for outcome in outcomes] == [1, 1, 1]


def test_copies_of_a_message_that_was_refused_are_refused_too():
    outcomes = Worker(memory_table()).process(
        write("b", message_id="m-1", enqueued_at=2**60),
        write("b", message_id="m-1"),
        write("b", message_id="m-1"),
    )

    assert ends(outcomes) == ["enqueued_in_future"] * 3
    assert [len(outcome.outputs) for outcome in outcomes] == [0, 0, 0]


def test_duplicates_of_another_batch_have_its_outputs_once_and_store_nothing(table):
    first = Worker(table, batch="batch-1").process(write("a"), ponder("p"))
    before = contents(table)

    outcomes = Worker(table, batch="batch-2").process(ponder("p"), write("a"), write("a"))

    assert ends(outcomes) == ["duplicate"] * 3
    assert [outcome.outputs for outcome in outcomes] == [first[1].outputs, first[0].outputs, ()]
    assert contents(table) == before


# `now` never goes back within a stream, whatever the clock does.


def times(found: list[Version]) -> list[int]:
    return [version.record.now for version in found]


def test_a_clock_that_goes_back_within_a_batch_does_not_take_now_back(table):
    moments = iter([NOW, NOW - HOUR, NOW - HOUR, NOW + 1, NOW + 1, NOW + 1])

    Worker(table, clock=lambda: next(moments)).process(write("a"), write("b"), ponder("p"), write("c"))

    assert times(stored(table)) == [NOW, NOW, NOW, NOW + 1]


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


# Whoever lost a race drops what it computed, reads again and runs again: nothing is lost, or stored twice.


class Interruption:
    """Runs something once, just before or just after the first call of a name."""

    def __init__(self, call: str, action) -> None:
        self.done = False
        self._call = call
        self._action = action

    def __call__(self, name: str, *_: object):
        if name != self._call or self.done:
            return None
        self.done = True
        return self._action()


def before(table: Table, call: str, action) -> InterceptedTable:
    return InterceptedTable(table, before=Interruption(call, action))


@pytest.mark.parametrize("known", [[], [write("old")]])
def test_another_writer_between_load_and_store_is_not_overwritten(table, known):
    # Given a stream that is new, or has a version
    Worker(table).process(*known)
    other = Worker(table, batch="other")

    # When another worker stores its version while this one holds what it loaded
    raced = before(table, "transact", lambda: other.handle(write("theirs")))
    (outcome,) = Worker(raced, batch="ours").process(write("ours"))

    # Then both versions are there, and ours was made on theirs
    assert made_by(table) == [*(message.message_id for message in known), "theirs", "ours"]
    assert ends([outcome]) == ["processed"]
    assert Wrote.model_validate_json(outcome.outputs[0].body).on_page[-2:] == ("theirs", "ours")
    assert outcome.version == len(known) + 2


def test_the_outputs_of_two_racing_copies_are_those_of_the_winners_clock(table):
    # Finding one's message id stored is not enough: it may be stored with another worker's clock.
    winner = Worker(table, clock=ToldClock(NOW), batch="batch-1")
    won = []

    async def win() -> None:
        won.extend(await winner.handle(write("a")))

    raced = before(table, "transact", win)
    lost = Worker(raced, clock=ToldClock(NOW + 7), batch="batch-1").process(write("a"))

    assert outputs(lost) == outputs(won)
    assert Wrote.model_validate_json(outputs(lost)[0].body).now == "2026-01-01T00:00:00+00:00"
    # Two attempts of one batch agree on statuses too.
    assert ends(lost) == ends(won) == ["processed"]
    assert len(stored(table)) == 1


@pytest.mark.usefixtures("no_tail")
def test_a_run_that_is_cut_between_two_reads_is_not_missed_but_read_again(table):
    # Given a version whose run is read in a second query
    aged = Worker(table, clock=ToldClock(NOW - 9 * DAY))
    aged.process(write("a", enqueued_at=NOW - 9 * DAY))
    aged.process(write("b", enqueued_at=NOW - 9 * DAY + 1))
    rules = TruncationChoices(older_than=DAY, acknowledged_after=0).as_of(NOW, OpenBatches())
    requests = []

    # When it is cut in between
    def cut(name: str, *_: object):
        requests.append(name)
        if requests != ["query", "query"]:
            return None
        return truncate_stream(table, "Diary-d-1", rules, PATIENCE)

    raced = InterceptedTable(table, before=cut)
    outcomes = Worker(raced).process(write("a", enqueued_at=NOW - 9 * DAY))

    # Then the stream is read again, and the message is known to be too late
    assert ends(outcomes) == ["too_late"]
    assert made_by(table) == ["b"]


def test_a_change_of_the_header_alone_is_a_conflict(table):
    # As truncation moves the horizon: a message judged by the old one must be judged again.
    Worker(table, clock=ToldClock(NOW - 9 * DAY)).process(write("a", enqueued_at=NOW - 9 * DAY))
    Worker(table, clock=ToldClock(NOW - 9 * DAY)).process(write("b", enqueued_at=NOW - 9 * DAY))
    rules = TruncationChoices(older_than=DAY, acknowledged_after=0).as_of(NOW, OpenBatches())

    raced = before(table, "transact", lambda: truncate_stream(table, "Diary-d-1", rules, PATIENCE))
    (outcome,) = Worker(raced).process(write("c", enqueued_at=NOW - 9 * DAY))

    assert ends([outcome]) == ["too_late"]
    assert made_by(table) == ["b"]


def test_a_header_made_anew_with_the_same_properties_is_a_conflict(table):
    # ETags never repeat: a row that was deleted and made anew is another one.
    Worker(table).process(write("old"))

    async def make_anew() -> None:
        header = await table.get("Diary-d-1", "SS-HEAD")
        assert header is not None
        await table.transact("Diary-d-1", [Operation.delete("SS-HEAD")])
        await table.transact("Diary-d-1", [Operation.insert("SS-HEAD", header.properties)])

    raced = before(table, "transact", make_anew)
    (outcome,) = Worker(raced).process(write("a"))

    assert raced.counts["transact"] == 2
    assert outcome.version == 2
    with pytest.raises(RowChangedError):
        drive(table.transact("Diary-d-1", [Operation.delete("SS-HEAD", "1")]))


# An answer that is lost after the store committed is as good as a crash: read again, and believe what is stored.


class ChangingSky:
    """A sky that has another colour each time that one looks."""

    def __init__(self) -> None:
        self._colours: Iterator[str] = iter(["red", "green"])

    def __getitem__(self, name: str) -> str:
        return next(self._colours)


def losing(table, clock: ToldClock, *, effect: bool, calls: tuple[str, ...] = ("transact",), times: int = 1):
    """Return the table, but the first answers of some calls are lost, with or without effect; time goes on."""
    lost: list[str] = []

    def lose(name: str, *_: object) -> None:
        if name in calls and len(lost) < times:
            lost.append(name)
            clock.now += 60_000_000
            raise StoreUnavailableError("no answer", outcome_unknown=effect)

    return InterceptedTable(table, after=lose) if effect else InterceptedTable(table, before=lose)


def test_its_outputs_are_those_of_the_captured_values_that_are_stored(monkeypatch: pytest.MonkeyPatch):
    table, clock = memory_table(), ToldClock()
    monkeypatch.setattr(diary, "SKY", ChangingSky())

    (outcome,) = Worker(losing(table, clock, effect=True), clock=clock).process(write("a"))

    assert Wrote.model_validate_json(outcome.outputs[0].body).colour == "red"


def test_a_message_that_was_not_stored_is_handled_again_with_the_time_that_it_is_now():
    table, clock = memory_table(), ToldClock()

    (outcome,) = Worker(losing(table, clock, effect=False), clock=clock, batch="batch-1").process(write("a"))

    assert ends([outcome]) == ["processed"]
    assert made_by(table) == ["a"]
    assert stored(table)[0].record.now == clock.now == NOW + 60_000_000


@pytest.mark.parametrize("effect", [True, False])
def test_a_read_without_an_answer_is_read_again(effect):
    table, clock = memory_table(), ToldClock()
    Worker(table).process(write("old"))

    outcomes = Worker(losing(table, clock, effect=effect, calls=("query",), times=3), clock=clock).process(
        write("old"), write("a")
    )

    assert ends(outcomes) == ["duplicate", "processed"]
    assert made_by(table) == ["old", "a"]


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


def test_a_writer_that_loses_every_race_fails_after_the_attempts():
    table, number = memory_table(), iter(range(10**9))

    def win(name: str, *_: object):
        return Worker(table).handle(write(f"theirs-{next(number)}")) if name == "transact" else None

    with pytest.raises(RetriesExhaustedError, match="4 attempts in a row: The stream at Diary-d-1"):
        Worker(InterceptedTable(table, before=win), attempts=4).process(write("ours"))

    assert made_by(table) == [f"theirs-{number}" for number in range(4)]


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
    """Sleeps not at all, and tells for how long it was asked to."""

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

"""The ledger: a batch begins once, its rounds are committed once, and what is published stays as it is."""

import re
from collections.abc import Awaitable, Callable, Container, Coroutine, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from itertools import chain, islice, repeat
from typing import Any, NamedTuple

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eventstore import InterceptedTable, Operation, Page, Row, StoreUnavailableError, Table, drive
from runtime.algorithms.choice import Dependencies, make_outboxes
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.algorithms.state_based.truncation import TruncationChoices, truncate_stream
from runtime.errors import BatchRefusedError, ReplayFailedError, RetriesExhaustedError
from runtime.ledger.batch import BatchContext, BatchKey, OpenBatches
from runtime.ledger.ledger import (
    PARTITION,
    STATE_BASED,
    BatchRecord,
    BatchStatus,
    Ledger,
    past_marker,
    record_properties,
)
from runtime.messages.parsing import prepare
from tests.unit.runtime.accidents import disturbed, lose_answer, pause, resume
from tests.unit.runtime.diary import DIARY, SKY, app, misbehave, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, memory_table, rows
from tests.unit.runtime.worker import DAY, HOUR, NOW, SECOND, ToldClock, Worker, ends, made_by, stored

INPUT, OUT = "100 messages, checksum 7", "/out"


class Driver:
    """Drives batches of one table, and prunes them."""

    def __init__(self, table: Table, now: int = NOW) -> None:
        self.table = table
        self.clock = ToldClock(now)
        self.ledger = Ledger(table, self.clock, PATIENCE)

    def begin(
        self, batch_id: str = "batch-1", input_: str = INPUT, out: str = OUT, algorithm: str = STATE_BASED
    ) -> BatchRecord:
        return drive(self.ledger.begin(batch_id, input_, out, algorithm))

    def get(self, batch_id: str = "batch-1") -> BatchRecord:
        return drive(self.ledger.get(batch_id))

    def commit(self, record: BatchRecord, number: int, routable: int = 0, **counts: int) -> BatchRecord:
        return drive(self.ledger.commit_round(record, number, counts, routable))

    def decide(self, record: BatchRecord, attempt: str) -> BatchRecord:
        return drive(self.ledger.choose_attempt(record, attempt))

    def publish(self, record: BatchRecord) -> BatchRecord:
        return drive(self.ledger.publish(record))

    def abandon(self, batch_id: str = "batch-1") -> BatchRecord:
        return drive(self.ledger.abandon(batch_id))

    def prune(self, later: int = 0) -> int:
        self.clock.now += later
        return drive(self.ledger.prune(self.clock.now))

    def context(self, record: BatchRecord) -> BatchContext:
        return BatchContext(record.batch_id, drive(self.ledger.open_batches()), number=record.number)

    def run(self, record: BatchRecord, *lines: str) -> list[str]:
        worker = Worker(self.table, clock=self.clock, batch=self.context(record))
        return ends(worker.process(*[write(line, enqueued_at=NOW - 10 * DAY) for line in lines]))

    def keys(self) -> list[str]:
        return sorted(key for partition, key in rows(self.table) if partition == PARTITION)


@pytest.fixture
def driver(table: Table) -> Driver:
    return Driver(table)


@pytest.fixture
def old(table: Table) -> Driver:
    """Give a driver of ten days ago."""
    return Driver(table, NOW - 10 * DAY)


def beside(driver: Driver, action: Callable[[], Awaitable[object]], numbers: Container[int] = (1,)) -> Ledger:
    """Return the ledger of another driver, which the action precedes in some transactions."""
    return Ledger(disturbed(driver.table, action, numbers=numbers), driver.clock, PATIENCE)


def test_a_batch_that_begins_is_started_has_no_rounds_and_is_found_when_it_begins_again(driver: Driver):
    record = driver.begin()
    driver.clock.now += SECOND

    assert (record.batch_id, record.input, record.out) == ("batch-1", INPUT, OUT)
    assert (record.status, record.rounds, record.counts) == (BatchStatus.STARTED, 0, {})
    assert record.started_at == record.updated_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert not record.is_finished
    assert record == driver.get() == driver.begin()
    assert driver.begin("batch-2").token != record.token

    published = driver.publish(driver.commit(record, 0, processed=3))
    assert published.is_finished
    assert driver.begin() == published


@pytest.mark.parametrize(
    ("step", "begin", "problem"),
    [
        ("begin", {"input_": "99 messages"}, f"begun with other input: {INPUT}. Now it is: 99 messages."),
        ("publish", {"input_": "99 messages"}, "was begun with other input"),
        ("commit", {"out": "/elsewhere"}, "has outcomes in /out: run it again with --batch-id batch-1"),
        ("abandon", {}, "Batch batch-1 was abandoned: run its messages under a new id."),
    ],
)
def test_a_batch_is_refused_that_was_begun_otherwise(driver: Driver, step, begin, problem):
    record = driver.begin()
    match step:
        case "publish":
            driver.publish(record)
        case "commit":
            driver.commit(record, 0)
        case "abandon":
            driver.abandon()

    with pytest.raises(BatchRefusedError, match=re.escape(problem)):
        driver.begin(**begin)


def test_a_batch_without_a_committed_round_takes_another_folder_and_is_undecided(driver: Driver):
    driver.decide(driver.begin(), "first")

    begun = driver.begin(out="/elsewhere")
    moved = drive(driver.ledger.begin_again(begun, "/elsewhere"))

    assert begun.out == OUT
    assert (moved.out, moved.rounds, moved.attempt) == ("/elsewhere", 0, "")


@pytest.mark.parametrize("batch_id", ["", "-a", ".a", "a b", "a/b", "ä", "a" * 65, "a\n"])
def test_an_id_that_could_not_name_a_folder_is_refused(driver: Driver, table: Table, batch_id):
    with pytest.raises(BatchRefusedError, match="is invalid: use up to 64 letters"):
        driver.begin(batch_id)

    assert contents(table) == {}
    for usable in ("a", "2026-01-01T00.00", "A_b-c.d", "a" * 64, "SS-HEAD"):
        assert driver.begin(usable) == driver.get(usable)


def test_of_two_drivers_that_commit_a_round_one_does_and_the_other_finds_it_done(driver: Driver):
    ours, theirs = driver.begin(), driver.begin()
    committed = driver.commit(theirs, 0, routable=4, processed=3)

    assert driver.commit(ours, 0, routable=4, processed=3) == committed
    assert driver.get().counts == {"processed": 3}

    last = driver.publish(driver.commit(committed, 1))
    assert driver.commit(ours, 0) == driver.publish(ours) == last


def test_a_batch_is_restarted_by_one_driver_only(driver: Driver):
    ours = driver.commit(driver.begin(), 0, processed=3)
    restarted = drive(driver.ledger.begin_again(ours))
    assert (restarted.rounds, restarted.counts) == (0, {})
    assert drive(driver.ledger.begin_again(ours)) == restarted  # as after a lost answer

    for step in (
        lambda: driver.decide(restarted, "a"),
        lambda: driver.publish(driver.commit(driver.get(), 0)),
    ):
        further = step()
        with pytest.raises(BatchRefusedError, match="is being run by another process"):
            drive(driver.ledger.begin_again(ours))
        assert driver.get() == further


def test_a_driver_that_is_ahead_of_another_or_whose_batch_was_abandoned_is_refused(driver: Driver):
    ours = driver.commit(driver.begin(), 0)
    driver.clock.now += SECOND
    driver.commit(driver.begin(), 0)

    for step in (lambda: driver.commit(ours, 1), lambda: driver.publish(ours)):
        with pytest.raises(BatchRefusedError, match="Batch batch-1 is being run by another process"):
            step()
    assert driver.get().status is BatchStatus.STARTED

    driver.abandon()
    for step in (
        lambda: driver.commit(ours, 1),
        lambda: driver.publish(ours),
        lambda: driver.decide(ours, "a"),
    ):
        with pytest.raises(BatchRefusedError, match="Batch batch-1 was abandoned while it ran"):
            step()
    assert driver.abandon().status is BatchStatus.ABANDONED


@pytest.mark.parametrize(
    ("step", "status", "problem"),
    [
        # What is published cannot be taken back, so nobody must believe that it was.
        ("publish", BatchStatus.PUBLISHED, "Batch batch-1 is published and cannot be abandoned."),
        ("commit_round", BatchStatus.STARTED, "is being run by another process"),
    ],
)
def test_a_batch_that_goes_on_while_it_is_being_abandoned_is_not(driver: Driver, step, status, problem):
    arguments: tuple[Any, ...] = (driver.begin(), 0, {}, 0) if step == "commit_round" else (driver.begin(),)

    abandoning = beside(driver, lambda: getattr(driver.ledger, step)(*arguments))

    with pytest.raises(BatchRefusedError, match=problem):
        drive(abandoning.abandon("batch-1"))
    assert driver.get().status is status


@pytest.mark.parametrize(
    ("step", "counts"),
    [
        (lambda each, record: each.commit(record, 0, processed=3), {"processed": 3}),
        (lambda each, record: each.publish(record), {}),
    ],
    ids=["commit", "publish"],
)
def test_a_step_whose_answer_was_lost_is_found_done_when_it_is_taken_again(driver: Driver, step, counts):
    losing = Driver(disturbed(driver.table, lose_answer, numbers=range(99), after=True))
    with pytest.raises(StoreUnavailableError):
        losing.begin()
    record = driver.begin()
    with pytest.raises(StoreUnavailableError):
        step(losing, record)

    found = step(driver, record)

    assert found == driver.get()
    assert found.counts == counts


def test_batches_are_listed_those_that_have_not_ended_first_and_then_the_last_that_ended(driver: Driver):
    for batch_id in ("b", "y", "a", "x"):
        driver.begin(batch_id)
    for seconds, batch_id in ((1, "x"), (2, "y")):
        driver.clock.now = NOW + seconds * SECOND
        driver.abandon(batch_id)

    assert [record.batch_id for record in drive(driver.ledger.batches(9))] == ["a", "b", "y", "x"]
    assert [record.batch_id for record in drive(driver.ledger.batches(3))] == ["a", "b", "y"]

    for number in range(5, 1101):
        driver.begin(f"batch-{number}")
    assert [record.number for record in drive(driver.ledger.batches(1050))] == list(range(1100, 50, -1))


def test_a_batch_that_begins_beside_another_takes_the_number_after_it(driver: Driver):
    late = beside(driver, lambda: driver.ledger.begin("other", INPUT, OUT))

    assert drive(late.begin("late", INPUT, OUT)).number == 2
    assert driver.get("other").number == 1
    assert drive(driver.ledger.open_batches()) == OpenBatches(3, frozenset({1, 2}))

    # One that loses each race gives up and leaves nothing
    others = iter(range(1, 100))
    later = beside(driver, lambda: driver.ledger.begin(f"other-{next(others)}", INPUT, OUT), range(100))
    with pytest.raises(RetriesExhaustedError):
        drive(later.begin("later", INPUT, OUT))
    assert drive(driver.ledger.find("later")) is None


def test_two_first_batches_with_different_algorithms_are_not_both_begun(driver: Driver):
    late = beside(driver, lambda: driver.ledger.begin("other", INPUT, OUT, "outbox in seen of azurite"))

    problem = r"outbox in seen of azurite \(batch other\)\. tokens would not recognise duplicates"
    with pytest.raises(BatchRefusedError, match=problem):
        drive(late.begin("late", INPUT, OUT, "tokens"))
    with pytest.raises(BatchRefusedError, match=problem):
        drive(driver.ledger.check_table("tokens"))


def test_of_two_attempts_at_a_round_the_one_that_is_decided_first_counts_and_not_for_the_next(driver: Driver):
    one, late = driver.begin(), driver.begin()
    decided = driver.decide(one, "first")
    assert decided.attempt == driver.decide(late, "second").attempt == driver.begin().attempt == "first"

    committed = driver.commit(decided, 0)
    assert committed.attempt == driver.get().attempt == ""

    # A driver that is too late finds its own round committed, and changes nothing of the next
    following = driver.decide(committed, "of the next round")
    found = driver.decide(late, "third")
    assert found.rounds == late.rounds + 1
    assert found == driver.get() == following
    assert driver.commit(late, 0).rounds == 1


# What ended long ago is forgotten, what is open never; an id that was forgotten and is used again is another batch.


def test_batches_that_ended_before_the_time_are_forgotten_and_all_others_are_kept(driver: Driver):
    for batch_id in ("died", "long-ago", "given-up", "lately"):
        driver.begin(batch_id)
    driver.publish(driver.get("long-ago"))
    driver.abandon("given-up")
    driver.clock.now += HOUR
    driver.publish(driver.get("lately"))

    assert driver.prune() == 2

    assert [record.batch_id for record in drive(driver.ledger.batches(9))] == ["died", "lately"]
    assert drive(driver.ledger.open_batches()) == OpenBatches(5, frozenset({1}))
    assert drive(driver.ledger.find("long-ago")) is None
    assert [driver.prune(), driver.prune(later=1)] == [0, 1]
    assert driver.keys() == ["!next", "!open-died", "died"]
    assert drive(driver.ledger.algorithm()) == ("state-based", "died")


def test_versions_of_a_forgotten_batch_are_duplicates_for_the_one_that_has_its_id_and_may_be_cut(old: Driver):
    first = old.begin("night")
    assert old.run(first, "a") == ["processed"]
    old.publish(first)
    old.prune(later=1)

    second = old.begin("night")

    assert (first.number, second.number) == (1, 2)
    for _ in "ab":
        assert old.run(second, "a", "b") == ["duplicate", "processed"]
    made = [(version.batch, version.batch_number) for version in stored(old.table)]
    assert made == [("night", 1), ("night", 2)]

    # They may be cut while that batch runs, and its own stay
    Worker(old.table).process(write("newest"))
    rules = TruncationChoices(older_than=DAY).as_of(NOW, drive(old.ledger.open_batches()))
    drive(truncate_stream(old.table, "Diary-d-1", rules, PATIENCE))
    assert made_by(old.table) == ["b", "newest"]


def test_only_what_that_batch_has_not_published_fails_it(old: Driver, monkeypatch):
    bad, worse = (misbehave("fail under a dark sky", *name) for name in ((), ("worse",)))
    first = old.begin("night")
    Worker(old.table, batch=old.context(first)).process(bad)
    old.publish(first)
    old.prune(later=1)
    worker = Worker(old.table, batch=old.context(old.begin("night")))
    worker.process(worse)
    monkeypatch.setitem(SKY, "colour", "black")

    assert ends(worker.process(bad)) == ["replay_failed"]
    with pytest.raises(ReplayFailedError, match="Message worse made version 2"):
        worker.process(worse)


def test_its_entries_in_an_outbox_are_swept_by_it(old: Driver):
    def outbox(record: BatchRecord) -> OutboxAlgorithm:
        given = Dependencies(app, old.table, clock=old.clock, batch=old.context(record))
        return make_outboxes("outbox", given)["Diary"]

    lines = [prepare(app.handlers["Diary"], DIARY, write("a"))]
    first = old.begin("night", algorithm="outbox")
    drive(outbox(first).process(DIARY, lines))
    assert drive(outbox(first).unfinished(DIARY, 0)) == []
    old.abandon("night")
    old.prune(later=1)

    second = old.begin("night", algorithm="outbox")

    assert len(drive(outbox(second).unfinished(DIARY, 0))) == 1
    assert ends(drive(outbox(second).process(DIARY, lines))) == ["duplicate"]


def test_two_that_prune_at_once_delete_each_batch_once_and_none_that_has_its_id_anew(driver: Driver):
    driver.begin("night")
    driver.abandon("night")
    driver.clock.now += 1

    async def prune_and_begin() -> None:
        assert await driver.ledger.prune(driver.clock.now) == 1
        await driver.ledger.begin("night", INPUT, OUT)

    assert drive(beside(driver, prune_and_begin).prune(driver.clock.now)) == 0
    assert driver.get("night").number == 2
    assert driver.keys() == ["!next", "!open-night", "night"]

    # A row that was deleted by hand ends in an error, not in a loop
    driver.abandon("night")
    drive(driver.table.transact(PARTITION, [Operation.delete("night")]))
    with pytest.raises(RetriesExhaustedError):
        driver.prune(later=1)


def with_finished(count: int) -> Table:
    """Return a table with an open batch, and so many that ended, most rows of which are written directly."""
    driver = Driver(memory_table())
    first = driver.begin("first")
    for number in range(count):
        record = replace(first, batch_id=f"batch-{number}", status=BatchStatus.PUBLISHED, number=number + 2)
        row = Operation.insert(record.batch_id, record_properties(record))
        drive(driver.table.transact(PARTITION, [row, past_marker(record)]))
    return driver.table


@pytest.mark.parametrize("count", [10, 3_000])
def test_what_a_batch_and_a_truncation_ask_of_the_ledger_does_not_depend_on_how_many_ended(count):
    read: list[int] = []

    def count_rows(_name: str, _key: str, _number: int, result: object) -> None:
        read.append(len(result.rows) if isinstance(result, Page) else int(isinstance(result, Row)))

    counted = InterceptedTable(with_finished(count), after=count_rows)
    ledger = Ledger(counted, ToldClock(), PATIENCE)

    drive(ledger.check_table("state-based"))
    record = drive(ledger.begin("next", "a log", "/out"))
    drive(ledger.open_batches())
    drive(ledger.publish(drive(ledger.commit_round(record, 0, {}, 0))))
    assert counted.counts == {"query": 3, "transact": 3, "barrier": 2}
    assert sum(read) == 5

    counted.counts.clear()
    drive(ledger.open_batches())
    drive(ledger.prune(0))
    assert counted.counts == {"query": 2}
    assert sum(read) == 5 + 2


# Whatever drivers do at once: a snapshot never takes a batch for finished that can still publish, nor forgets one.


class Snapshot(NamedTuple):
    """What was open, and which batches had ended when the look began and when it was over."""

    open_batches: OpenBatches
    ended_before: frozenset[BatchKey]
    ended: frozenset[BatchKey]


@dataclass
class Drivers:
    """Drivers of batches on one table, who take turns at each of its calls."""

    table: Table
    clock: ToldClock = field(default_factory=ToldClock)
    seen: set[BatchKey] = field(default_factory=set)
    ended: set[BatchKey] = field(default_factory=set)
    snapshots: list[Snapshot] = field(default_factory=list)

    async def act(self, action: str, batch_id: str) -> None:
        ledger = Ledger(InterceptedTable(self.table, before=pause, after=self.look), self.clock, PATIENCE)
        try:
            match action:
                case "begin":
                    await ledger.begin(batch_id, INPUT, OUT)
                case "publish":
                    await ledger.publish(await ledger.begin(batch_id, INPUT, OUT))
                case "abandon":
                    await ledger.abandon(batch_id)
                case "prune":
                    await ledger.prune(self.clock.now + 1)
                case _:
                    before = frozenset(self.ended)
                    found = await ledger.open_batches()
                    self.snapshots.append(Snapshot(found, before, frozenset(self.ended)))
        except BatchRefusedError:
            return

    def look(self, *_: object) -> None:
        """Note which batches there are, and which have ended."""
        for (partition, row_key), properties in rows(self.table).items():
            if partition == PARTITION and not row_key.startswith("!"):
                key = BatchKey(row_key, properties.get("Number"))
                self.seen.add(key)
                if properties["Status"] != BatchStatus.STARTED:
                    self.ended.add(key)


def take_turns(drivers: Drivers, wanted: Sequence[tuple[str, str]], turns: Sequence[tuple[int, int]]) -> None:
    """Do what is wanted, three things at once; a turn says which of them goes on, and by how many calls."""
    waiting = iter(wanted)
    order = chain.from_iterable(repeat(who, calls) for who, calls in turns)
    at_work: list[Coroutine[Any, Any, None]] = []
    while True:
        at_work += [drivers.act(*action) for action in islice(waiting, 3 - len(at_work))]
        if not at_work:
            return
        one = at_work[next(order, 0) % len(at_work)]
        drivers.clock.now += 1
        if not resume(one):
            at_work.remove(one)


actions = st.tuples(
    st.sampled_from(["begin", "publish", "abandon", "prune", "look"]), st.sampled_from(["a", "b"])
)


@given(
    st.lists(actions, max_size=14),
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([1, 2, 3, 4, 40])), max_size=20),
)
@example([("publish", "a"), ("look", "b"), ("look", "b")], [(0, 6), (1, 40)])
@example([("begin", "b"), ("look", "b"), ("publish", "b")], [(0, 7), (1, 40)])
@settings(max_examples=100)
def test_finished_is_what_will_not_publish_any_more(wanted, turns):
    # Given up to three drivers at once, who take turns of some calls, on an empty table
    drivers = Drivers(memory_table())

    # When each does what it wants to
    take_turns(drivers, [*wanted, ("look", "a")], turns)

    # Then each look knows what had ended when it began, and nothing that had not when it was over
    assert drivers.snapshots
    for snapshot in drivers.snapshots:
        for key in drivers.seen:
            is_finished = snapshot.open_batches.is_finished(*key)
            assert is_finished or key not in snapshot.ended_before
            assert not is_finished or key in snapshot.ended

"""What ended long ago is forgotten, what is open never; an id that was forgotten and is used again is another batch."""

from dataclasses import replace

import pytest

from eventstore import InterceptedTable, Operation, Page, Row, Table, drive
from runtime.algorithms.choice import Dependencies, make_outboxes
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.algorithms.state_based.truncation import TruncationRules, truncate_stream
from runtime.errors import ReplayFailedError, RetriesExhaustedError
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.ledger.ledger import PARTITION, BatchRecord, BatchStatus, Ledger, ended, record_properties
from runtime.messages.parsing import prepare
from tests.unit.runtime.diary import DIARY, SKY, app, misbehave, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import DAY, HOUR, NOW, ToldClock, Worker, ends, made_by, stored


class Operator:
    """Runs batches of lines, and prunes."""

    def __init__(self, table: Table | None = None) -> None:
        self.table = table or memory_table()
        self.clock = ToldClock(NOW - 10 * DAY)
        self.ledger = Ledger(self.table, self.clock, PATIENCE)

    def begin(self, batch_id: str = "night", algorithm: str = "state-based") -> BatchRecord:
        return drive(self.ledger.begin(batch_id, "a log", "/out", algorithm))

    def context(self, record: BatchRecord) -> BatchContext:
        found = drive(self.ledger.open_batches())
        return BatchContext(record.batch_id, found, number=record.number)

    def run(self, record: BatchRecord, *lines: str) -> list[str]:
        worker = Worker(self.table, clock=self.clock, batch=self.context(record))
        return ends(worker.process(*[write(line, enqueued_at=NOW - 10 * DAY) for line in lines]))

    def publish(self, record: BatchRecord) -> None:
        drive(self.ledger.publish(record))

    def prune(self) -> int:
        return drive(self.ledger.prune(self.clock.now))

    def keys(self) -> list[str]:
        return sorted(key for partition, key in rows(self.table) if partition == PARTITION)


@pytest.fixture
def operator() -> Operator:
    return Operator()


def test_batches_that_ended_before_the_time_are_forgotten_and_all_others_are_kept(operator: Operator):
    for batch_id in ("died", "long-ago", "given-up", "lately"):
        operator.begin(batch_id)
    operator.publish(drive(operator.ledger.get("long-ago")))
    drive(operator.ledger.abandon("given-up"))
    operator.clock.now += HOUR
    operator.publish(drive(operator.ledger.get("lately")))

    assert operator.prune() == 2

    assert [record.batch_id for record in drive(operator.ledger.batches(9))] == ["died", "lately"]
    assert drive(operator.ledger.open_batches()) == OpenBatches(5, frozenset({1}))
    assert drive(operator.ledger.find("long-ago")) is None
    assert operator.prune() == 0
    operator.clock.now += 1
    assert operator.prune() == 1
    assert operator.keys() == ["!next", "!open-died", "died"]


def test_the_algorithm_of_a_table_is_known_when_all_its_batches_are_forgotten(operator: Operator):
    operator.begin("night", "tokens")
    drive(operator.ledger.abandon("night"))
    operator.clock.now += 1
    operator.prune()

    found = drive(operator.ledger.algorithm())

    assert found == ("tokens", "night")


def test_versions_of_a_forgotten_batch_are_duplicates_for_the_one_that_has_its_id(operator: Operator):
    first = operator.begin()
    assert operator.run(first, "a") == ["processed"]
    operator.publish(first)
    operator.clock.now += 1
    operator.prune()

    second = operator.begin()

    assert (first.number, second.number) == (1, 2)
    assert operator.run(second, "a", "b") == ["duplicate", "processed"]
    assert operator.run(second, "a", "b") == ["duplicate", "processed"]
    assert [(made.batch, made.batch_number) for made in stored(operator.table)] == [
        ("night", 1),
        ("night", 2),
    ]


def test_they_may_be_cut_while_that_batch_runs_and_its_own_stay(operator: Operator):
    first = operator.begin()
    operator.run(first, "a")
    operator.publish(first)
    operator.clock.now += 1
    operator.prune()
    second = operator.begin()
    operator.run(second, "b")
    Worker(operator.table).process(write("newest"))

    rules = TruncationRules.of(NOW, drive(operator.ledger.open_batches()), older_than=DAY)
    drive(truncate_stream(operator.table, "Diary-d-1", rules, PATIENCE))

    assert made_by(operator.table) == ["b", "newest"]


def test_only_what_that_batch_has_not_published_fails_it(operator: Operator, monkeypatch):
    bad = misbehave("fail under a dark sky")
    first = operator.begin()
    Worker(operator.table, batch=operator.context(first)).process(bad)
    operator.publish(first)
    operator.clock.now += 1
    operator.prune()
    second = operator.begin()
    worker = Worker(operator.table, batch=operator.context(second))
    worse = misbehave("fail under a dark sky", "worse")
    worker.process(worse)
    monkeypatch.setitem(SKY, "colour", "black")

    assert ends(worker.process(bad)) == ["replay_failed"]
    with pytest.raises(ReplayFailedError, match="Message worse made version 2"):
        worker.process(worse)


def test_its_entries_in_an_outbox_are_swept_by_it(operator: Operator):
    def outbox(record: BatchRecord) -> OutboxAlgorithm:
        given = Dependencies(app, operator.table, clock=operator.clock, batch=operator.context(record))
        return make_outboxes("outbox", given)["Diary"]

    lines = [prepare(app.handlers["Diary"], DIARY, write("a"))]
    first = operator.begin(algorithm="outbox")
    drive(outbox(first).process(DIARY, lines))
    assert drive(outbox(first).unfinished(DIARY, 0)) == []
    drive(operator.ledger.abandon("night"))
    operator.clock.now += 1
    operator.prune()

    second = operator.begin(algorithm="outbox")

    assert len(drive(outbox(second).unfinished(DIARY, 0))) == 1
    assert ends(drive(outbox(second).process(DIARY, lines))) == ["duplicate"]


def test_two_that_prune_at_once_delete_each_batch_once_and_none_that_has_its_id_anew(operator: Operator):
    operator.begin()
    drive(operator.ledger.abandon("night"))
    operator.clock.now += 1
    overtaken: list[str] = []

    async def prune_and_begin(name: str, *_: object) -> None:
        if name == "transact" and not overtaken:
            overtaken.append(name)
            assert await operator.ledger.prune(operator.clock.now) == 1
            await operator.ledger.begin("night", "a log", "/out")

    other = Ledger(InterceptedTable(operator.table, before=prune_and_begin), operator.clock, PATIENCE)

    assert drive(other.prune(operator.clock.now)) == 0
    assert drive(operator.ledger.get("night")).number == 2
    assert operator.keys() == ["!next", "!open-night", "night"]


def test_a_row_that_somebody_else_deleted_ends_in_an_error_not_in_a_loop(operator: Operator):
    operator.begin()
    drive(operator.ledger.abandon("night"))
    operator.clock.now += 1
    drive(operator.table.transact(PARTITION, [Operation.delete("night")]))

    with pytest.raises(RetriesExhaustedError):
        operator.prune()


def with_finished(count: int) -> Table:
    """Return a table with an open batch, and so many that ended, most rows of which are written directly."""
    operator = Operator()
    first = operator.begin("first")
    for number in range(count):
        record = replace(first, batch_id=f"batch-{number}", status=BatchStatus.PUBLISHED, number=number + 2)
        row = Operation.insert(record.batch_id, record_properties(record))
        _, past = ended(record)
        drive(operator.table.transact(PARTITION, [row, past]))
    return operator.table


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

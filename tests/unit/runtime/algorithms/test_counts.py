"""Counts of a table: what stands in it is counted once, whole or range by range."""

import json

import pytest

from eventstore import KeyRange, Operation, Table, drive
from eventstore.limits import row_bytes
from eventstore.port import Int64, Row
from eventstore.stream import split_keys
from runtime import Envelope, Processor
from runtime.algorithms.state_based.truncation import TruncationRules, truncate_stream
from runtime.ledger.batch import OpenBatches
from runtime.ledger.ledger import Ledger
from runtime.maintenance.statistics import TableCount, count_objects, count_rows, object_keys
from runtime.versions import limits
from samples.shooting_range import app
from tests.support.logs import fire, start
from tests.unit.runtime.diary import write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker

OLD = NOW - 10 * DAY


async def publish(_: object) -> None:
    """Publish nothing."""


@pytest.fixture
def table(monkeypatch: pytest.MonkeyPatch) -> Table:
    """Give a table with streams, entities, ids of messages, a ledger, and a stream of somebody else."""
    monkeypatch.setattr(limits, "MAX_SEGMENT_VERSIONS", 0)  # each version is a run of its own
    table = memory_table()
    for number in range(4):
        for diary in ("a", "b"):
            worker = Worker(table, clock=ToldClock(OLD + number), batch="done", business_id=diary)
            worker.process(write(f"{diary}{number}", diary=diary, enqueued_at=OLD + number))
    Worker(table, clock=ToldClock(OLD + 9), business_id="c").process(write("x", diary="c"))
    rules = TruncationRules.of(NOW, OpenBatches(), keep_last=2)
    drive(truncate_stream(table, "Diary-a", rules, PATIENCE))
    processor = Processor(app, table, publish, algorithm="deduplication-store")
    for row in (start(1, 40), fire(2, 40)):
        drive(processor.process(Envelope.of(row["message_id"], row["type"], row["body"])))
    drive(Ledger(table, ToldClock()).begin("night", "", ""))
    drive(table.transact("Order-7", [Operation.insert("SS-HEAD", {"Version": 1})]))
    drive(table.transact("Order-7", [Operation.insert("SS-SE-0000000001", {"Version": 1})]))
    drive(table.transact("deliveries.a-b", [Operation.insert("ID-T-1", {"Value": 1})]))
    return table


def test_each_handler_has_its_objects_versions_rows_and_bytes(table):
    count = drive(count_rows(table))

    diary, shooting_range = count.handlers
    assert (diary.handler, diary.algorithm, diary.objects) == ("Diary", "state-based", 3)
    assert (diary.versions, diary.kept, diary.horizon, diary.oldest) == (9, 7, OLD + 1, OLD)
    assert (shooting_range.handler, shooting_range.algorithm) == ("ShootingRange", "deduplication-store")
    assert (shooting_range.objects, shooting_range.versions, shooting_range.kept) == (1, 2, 1)
    sizes = {key: row_bytes(Row(*key, "", properties)) for key, properties in rows(table).items()}
    for each, name in ((diary, "Diary-"), (shooting_range, "ShootingRange-")):
        own = [size for (partition, _), size in sizes.items() if partition.startswith(name)]
        assert (each.rows, each.bytes) == (len(own), sum(own))
    assert diary.rows + shooting_range.rows + count.others.rows == len(sizes)
    assert diary.bytes + shooting_range.bytes + count.others.bytes == sum(sizes.values())


def test_the_oldest_version_of_a_handler_is_one_that_is_kept(table):
    # Given that the other diary, which was not cut, has the oldest version
    assert drive(count_rows(table)).handlers[0].oldest == OLD
    # When it is cut too, and the deletion of its rows broke off
    rules = TruncationRules.of(NOW, OpenBatches(), keep_last=1)
    drive(truncate_stream(table, "Diary-b", rules, PATIENCE))
    (header,) = [values for key, values in rows(table).items() if key == ("Diary-b", "SS-HEAD")]
    run = next(values for key, values in rows(table).items() if key[1] == "SS-SE-0000000004")
    drive(table.transact("Diary-b", [Operation.insert("SS-SE-0000000001", run)]))
    assert header["FirstVersion"] > 1

    # Then what is left counts as a row, and its versions as cut
    diary = drive(count_rows(table)).handlers[0]
    assert diary.oldest == OLD + 2
    assert diary.rows == sum(partition.startswith("Diary-") for partition, _ in rows(table))


def test_objects_alone_are_counted_from_their_headers(table):
    quick, whole = drive(count_objects(table)), drive(count_rows(table))

    assert quick.handlers == [each._replace(oldest=None, rows=0, bytes=0) for each in whole.handlers]


def test_waiting_letters_are_counted():
    table = memory_table()
    Worker(table, business_id="c").process(write("x", diary="c"))
    drive(table.transact("Diary-c", [Operation.merge("SS-HEAD", {"Letters": 3})]))

    assert [drive(count(table)).handlers[0].letters for count in (count_objects, count_rows)] == [3, 3]


@pytest.mark.parametrize("count", [count_objects, count_rows])
@pytest.mark.parametrize("parts", [1, 2, 3, 8])
def test_ranges_add_up_to_the_whole(table, count, parts):
    whole, sum_of_all = drive(count(table)), TableCount()

    async def ranges() -> list[KeyRange]:
        return await split_keys(object_keys(table), parts)

    for keys in drive(ranges()):
        sum_of_all.merge(json.loads(json.dumps(drive(count(table, keys)).document())))

    assert sorted(sum_of_all.document()) == sorted(whole.document())


def test_a_row_has_the_bytes_that_azure_charges():
    # 4, keys of 3 + 4 characters; 8 for each property, and two for each character of its name
    row = Row("a-b", "SS-X", "", {"T": "ab", "B": b"abc", "I": Int64(1), "F": True})

    keys, names = 2 * (3 + 4), 4 * (8 + 2)
    assert row_bytes(row) == 4 + keys + names + (2 * 2 + 4) + (3 + 4) + 8 + 1

"""The ledger: a batch begins once, its rounds are committed once, and what is published stays as it is."""

from datetime import UTC, datetime

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, Table, drive
from runtime.errors import BatchRefusedError, RetriesExhaustedError
from runtime.ledger.batch import OpenBatches
from runtime.ledger.ledger import PARTITION, STATE_BASED, BatchRecord, BatchStatus, Ledger
from tests.unit.runtime.diary import write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import contents, memory_table, rows
from tests.unit.runtime.worker import NOW, SECOND, ToldClock, Worker

INPUT, OUT = "100 messages, checksum 7", "/out"


class Driver:
    """Keeps the ledger of a table, as the driver of a batch does."""

    def __init__(self, table: Table) -> None:
        self.clock = ToldClock()
        self.ledger = Ledger(table, self.clock)

    def begin(
        self,
        batch_id: str = "batch-1",
        input_: str = INPUT,
        out: str = OUT,
        algorithm: str = STATE_BASED,
    ) -> BatchRecord:
        return drive(self.ledger.begin(batch_id, input_, out, algorithm))

    def get(self, batch_id: str = "batch-1") -> BatchRecord:
        return drive(self.ledger.get(batch_id))

    def commit(self, record: BatchRecord, number: int, routable: int = 0, **counts: int) -> BatchRecord:
        return drive(self.ledger.commit_round(record, number, counts, routable))

    def decide(self, record: BatchRecord, attempt: str) -> BatchRecord:
        return drive(self.ledger.decide(record, attempt))

    def publish(self, record: BatchRecord) -> BatchRecord:
        return drive(self.ledger.publish(record))

    def abandon(self, batch_id: str = "batch-1") -> BatchRecord:
        return drive(self.ledger.abandon(batch_id))


@pytest.fixture
def table() -> Table:
    return memory_table()


@pytest.fixture
def driver(table: Table) -> Driver:
    return Driver(table)


def test_a_batch_that_begins_is_started_and_has_no_rounds(driver: Driver):
    record = driver.begin()

    assert (record.batch_id, record.input, record.out) == ("batch-1", INPUT, OUT)
    assert (record.status, record.rounds, record.counts, record.last_routable) == (
        BatchStatus.STARTED,
        0,
        {},
        0,
    )
    assert record.started_at == record.updated_at == datetime(2026, 1, 1, tzinfo=UTC)
    assert not record.is_finished
    assert record == driver.get()


def test_a_batch_begun_again_with_the_same_input_is_the_same(driver: Driver):
    first = driver.begin()
    driver.clock.now += SECOND

    assert driver.begin() == first


def test_each_batch_has_a_token_of_its_own(driver: Driver):
    assert driver.begin("batch-1").token != driver.begin("batch-2").token


def test_a_batch_begun_with_other_input_is_refused(driver: Driver):
    driver.begin()

    expected = f"^Batch batch-1 was begun with other input: {INPUT}. Now it is: 99 messages. Give this input a batch id"
    with pytest.raises(BatchRefusedError, match=expected):
        driver.begin(input_="99 messages")


def test_a_published_batch_with_other_input_is_refused_too(driver: Driver):
    driver.publish(driver.begin())

    with pytest.raises(BatchRefusedError, match="was begun with other input"):
        driver.begin(input_="99 messages")


def test_a_batch_without_a_committed_round_takes_another_folder(driver: Driver):
    driver.begin()

    assert driver.begin(out="/elsewhere").out == "/elsewhere"
    assert driver.begin(out="/elsewhere").rounds == 0


def test_a_batch_with_outcomes_in_another_folder_is_refused(driver: Driver):
    driver.commit(driver.begin(), 0)

    with pytest.raises(
        BatchRefusedError,
        match=r"^Batch batch-1 has outcomes in /out: run it again with --batch-id batch-1 --out /out\.$",
    ):
        driver.begin(out="/elsewhere")


def test_an_abandoned_batch_is_not_begun_again(driver: Driver):
    driver.begin()
    driver.abandon()

    with pytest.raises(
        BatchRefusedError, match=r"^Batch batch-1 was abandoned: run its messages under a new id.$"
    ):
        driver.begin()


def test_a_published_batch_begun_again_is_found_published(driver: Driver):
    published = driver.publish(driver.commit(driver.begin(), 0, processed=3))

    assert driver.begin() == published
    assert published.is_finished


@pytest.mark.parametrize("batch_id", ["", "-a", ".a", "a b", "a/b", "ä", "a" * 65, "a\n"])
def test_an_id_that_could_not_name_a_folder_is_refused(driver: Driver, table: Table, batch_id):
    with pytest.raises(
        BatchRefusedError, match=r"is not usable: up to 64 letters, digits, '.', '_' and '-'.$"
    ):
        driver.begin(batch_id)

    assert contents(table) == {}


@pytest.mark.parametrize("batch_id", ["a", "2026-01-01T00.00", "A_b-c.d", "a" * 64, "SS-HEAD"])
def test_other_ids_are_taken(driver: Driver, batch_id):
    assert driver.begin(batch_id) == driver.get(batch_id)


def test_a_batch_that_is_not_there_is_told(driver: Driver):
    with pytest.raises(
        BatchRefusedError, match=r"^There is no batch batch-9: `consistent batches` lists those"
    ):
        driver.get("batch-9")


def test_rounds_are_counted_and_their_counts_summed(driver: Driver):
    driver.clock.now += SECOND
    record = driver.commit(driver.begin(), 0, routable=5, processed=10, duplicate=2)

    record = driver.commit(record, 1, routable=0, processed=5, too_late=1)

    assert (record.rounds, record.last_routable) == (2, 0)
    assert record.counts == {"processed": 15, "duplicate": 2, "too_late": 1}
    assert record == driver.get()
    assert driver.get().status is BatchStatus.STARTED


def test_an_update_moves_its_time_but_not_that_of_the_beginning(driver: Driver):
    record = driver.begin()
    driver.clock.now += SECOND

    record = driver.commit(record, 0)

    assert record.updated_at > record.started_at == datetime(2026, 1, 1, tzinfo=UTC)


def test_of_two_drivers_that_commit_a_round_one_does_and_the_other_finds_it_done(
    driver: Driver, table: Table
):
    ours = driver.begin()
    theirs = Driver(table).begin()
    committed = Driver(table).commit(theirs, 0, routable=4, processed=3)

    found = driver.commit(ours, 0, routable=4, processed=3)

    assert found == committed
    assert driver.get().counts == {"processed": 3}


def test_a_driver_that_is_overtaken_by_rounds_finds_them(driver: Driver, table: Table):
    ours = driver.begin()
    other = Driver(table)
    last = other.publish(other.commit(other.commit(other.begin(), 0), 1))

    assert driver.commit(ours, 0) == last
    assert driver.publish(ours) == last


def test_a_driver_that_is_ahead_of_another_that_changed_the_row_is_refused(driver: Driver, table: Table):
    ours = driver.commit(driver.begin(), 0)
    other = Driver(table)
    other.clock.now += SECOND
    other.commit(other.begin(), 0)

    with pytest.raises(
        BatchRefusedError, match=r"^Batch batch-1 is being run by someone else: run it again with its id"
    ):
        driver.commit(ours, 1)
    with pytest.raises(BatchRefusedError, match="is being run by someone else"):
        driver.publish(ours)
    assert driver.get().status is BatchStatus.STARTED


def test_a_batch_that_is_abandoned_while_it_runs_is_not_published(driver: Driver, table: Table):
    ours = driver.begin()
    Driver(table).abandon()

    with pytest.raises(BatchRefusedError, match=r"^Batch batch-1 was abandoned while it ran.$"):
        driver.commit(ours, 0)
    with pytest.raises(BatchRefusedError, match=r"^Batch batch-1 was abandoned while it ran.$"):
        driver.publish(ours)
    assert driver.get().status is BatchStatus.ABANDONED


def test_a_published_batch_cannot_be_abandoned(driver: Driver):
    driver.publish(driver.begin())

    with pytest.raises(BatchRefusedError, match=r"^Batch batch-1 is published and cannot be abandoned.$"):
        driver.abandon()


def test_a_batch_that_is_published_while_it_is_being_abandoned_cannot_be(driver: Driver, table: Table):
    # What is published cannot be taken back, so nobody must believe that it was.
    record = driver.begin()

    def publish(name: str, *_: object):
        return driver.ledger.publish(record) if name == "transact" else None

    abandoning = Ledger(InterceptedTable(table, before=publish), driver.clock)

    with pytest.raises(BatchRefusedError, match=r"^Batch batch-1 is published and cannot be abandoned.$"):
        drive(abandoning.abandon("batch-1"))
    assert driver.get().status is BatchStatus.PUBLISHED


def test_a_batch_that_goes_on_while_it_is_being_abandoned_is_not(driver: Driver, table: Table):
    record = driver.begin()

    def commit(name: str, *_: object):
        return driver.ledger.commit_round(record, 0, {}, 0) if name == "transact" else None

    abandoning = Ledger(InterceptedTable(table, before=commit), driver.clock)

    with pytest.raises(BatchRefusedError, match="is being run by someone else"):
        drive(abandoning.abandon("batch-1"))
    assert driver.get().status is BatchStatus.STARTED


def test_abandoning_twice_is_abandoning_once(driver: Driver):
    driver.begin()
    driver.abandon()

    assert driver.abandon().status is BatchStatus.ABANDONED


@pytest.mark.parametrize("step", ["commit", "publish"])
def test_a_step_whose_answer_was_lost_is_found_done_when_it_is_taken_again(
    driver: Driver, table: Table, step
):
    def lose(name: str, *_: object) -> None:
        if name == "transact":
            raise StoreUnavailableError("no answer", outcome_unknown=True)

    losing = Driver(InterceptedTable(table, after=lose))
    record = driver.begin()
    with pytest.raises(StoreUnavailableError):
        losing.commit(record, 0, processed=3) if step == "commit" else losing.publish(record)

    found = driver.commit(record, 0, processed=3) if step == "commit" else driver.publish(record)

    assert found == driver.get()
    assert found.counts == ({"processed": 3} if step == "commit" else {})


def test_beginning_after_a_lost_answer_finds_the_batch(driver: Driver, table: Table):
    def lose(name: str, *_: object) -> None:
        if name == "transact":
            raise StoreUnavailableError("no answer", outcome_unknown=True)

    with pytest.raises(StoreUnavailableError):
        Driver(InterceptedTable(table, after=lose)).begin()

    assert driver.begin() == driver.get()


def test_what_is_committed_or_published_is_made_durable(table: Table):
    counted = InterceptedTable(table)
    driver = Driver(counted)

    record = driver.begin()
    assert counted.counts["barrier"] == 0
    driver.publish(driver.commit(record, 0))

    assert (counted.counts["transact"], counted.counts["barrier"]) == (3, 2)


def test_batches_are_listed_those_that_have_not_ended_first_and_then_the_last_that_ended(driver: Driver):
    for batch_id in ("b", "y", "a", "x"):
        driver.begin(batch_id)
    for seconds, batch_id in ((1, "x"), (2, "y")):
        driver.clock.now = NOW + seconds * SECOND
        driver.abandon(batch_id)

    assert [record.batch_id for record in drive(driver.ledger.batches(9))] == ["a", "b", "y", "x"]
    assert [record.batch_id for record in drive(driver.ledger.batches(3))] == ["a", "b", "y"]


def test_the_newest_of_very_many_batches_are_listed(driver: Driver):
    for number in range(1100):
        driver.begin(f"batch-{number}")

    assert [record.number for record in drive(driver.ledger.batches(1050))] == list(range(1100, 50, -1))


def test_batches_that_will_publish_no_more_are_finished(driver: Driver):
    begun = [driver.begin(batch_id) for batch_id in ("started", "published", "abandoned", "halfway")]
    driver.publish(driver.get("published"))
    driver.abandon("abandoned")
    driver.commit(driver.get("halfway"), 0)

    found = drive(driver.ledger.open_batches())

    finished = [record.batch_id for record in begun if found.is_finished(*record.key)]
    assert finished == ["published", "abandoned"]


def test_each_batch_has_the_next_number_whatever_became_of_the_others(driver: Driver):
    first = driver.begin("a")
    driver.abandon("a")

    assert (first.number, driver.begin("b").number, driver.begin("b").number) == (1, 2, 2)
    assert driver.begin("c").number == 3


def test_a_batch_that_begins_beside_another_takes_the_number_after_it(driver: Driver, table: Table):
    begun: list[str] = []

    def begin_another(name: str, *_: object):
        if name != "transact" or begun:
            return None
        begun.append("other")
        return driver.ledger.begin("other", INPUT, OUT)

    overtaken = Ledger(InterceptedTable(table, before=begin_another), driver.clock, PATIENCE)

    assert drive(overtaken.begin("late", INPUT, OUT)).number == 2
    assert driver.get("other").number == 1
    assert drive(driver.ledger.open_batches()) == OpenBatches(3, frozenset({1, 2}))


def test_a_batch_that_loses_each_race_gives_up_and_leaves_nothing(driver: Driver, table: Table):
    others = iter(range(1, 100))

    def begin_another(name: str, *_: object):
        return driver.ledger.begin(f"other-{next(others)}", INPUT, OUT) if name == "transact" else None

    overtaken = Ledger(InterceptedTable(table, before=begin_another), driver.clock, PATIENCE)

    with pytest.raises(RetriesExhaustedError):
        drive(overtaken.begin("late", INPUT, OUT))
    assert drive(driver.ledger.find("late")) is None


def test_two_first_batches_with_different_algorithms_are_not_both_begun(driver: Driver, table: Table):
    begun: list[str] = []

    def begin_another(name: str, *_: object):
        if name != "transact" or begun:
            return None
        begun.append("other")
        return driver.ledger.begin("other", INPUT, OUT, "outbox")

    overtaken = Ledger(InterceptedTable(table, before=begin_another), driver.clock, PATIENCE)

    with pytest.raises(
        BatchRefusedError, match=r"the algorithm outbox \(batch other\), and cannot be with tokens"
    ):
        drive(overtaken.begin("late", INPUT, OUT, "tokens"))


def test_a_table_of_another_algorithm_is_refused(driver: Driver):
    drive(driver.ledger.begin("batch-1", INPUT, OUT, "tokens in seen of azurite"))

    with pytest.raises(
        BatchRefusedError, match=r"tokens in seen of azurite \(batch batch-1\), and cannot be with tokens,"
    ):
        drive(driver.ledger.check_table("tokens"))


def test_a_ledger_without_batches_is_empty(driver: Driver, table: Table):
    assert drive(driver.ledger.batches(9)) == []
    assert drive(driver.ledger.open_batches()) == OpenBatches()
    assert drive(driver.ledger.algorithm()) is None
    assert drive(driver.ledger.prune(driver.clock.now)) == 0
    assert contents(table) == {}


def test_the_ledger_stands_beside_the_streams_of_its_table(driver: Driver, table: Table):
    driver.begin("SS-HEAD")
    Worker(table).process(write("a"))

    assert [record.batch_id for record in drive(driver.ledger.batches(9))] == ["SS-HEAD"]
    assert {partition for partition, _ in rows(table)} == {PARTITION, "Diary-d-1"}


def test_of_two_attempts_at_a_round_the_one_that_is_decided_first_counts(driver: Driver):
    one, other = driver.begin(), driver.begin()

    assert driver.decide(one, "first").attempt == "first"
    assert driver.decide(other, "second").attempt == "first"
    assert driver.get().attempt == driver.begin().attempt == "first"


def test_what_is_decided_of_a_round_does_not_count_for_the_next(driver: Driver):
    late = driver.begin()
    committed = driver.commit(driver.decide(driver.begin(), "first"), 0)
    assert committed.attempt == driver.get().attempt == ""

    # A driver that is too late finds its own round committed, and changes nothing of the next
    following = driver.decide(committed, "of the next round")
    found = driver.decide(late, "second")
    assert found.rounds == late.rounds + 1
    assert found == driver.get() == following
    assert driver.commit(late, 0).rounds == 1


def test_a_batch_that_goes_to_another_folder_is_undecided(driver: Driver):
    driver.decide(driver.begin(), "first")
    assert driver.begin(out="/elsewhere").attempt == ""


def test_nothing_is_decided_of_a_batch_that_was_abandoned(driver: Driver):
    record = driver.begin()
    driver.abandon()
    with pytest.raises(BatchRefusedError, match="was abandoned while it ran"):
        driver.decide(record, "first")

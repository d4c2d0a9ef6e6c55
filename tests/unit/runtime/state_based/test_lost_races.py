"""Whoever lost a race drops what it computed, reads again and runs again: nothing is lost, or stored twice."""

import pytest

from eventstore import InterceptedTable, Operation, RowChangedError, Table, drive
from runtime.algorithms.state_based.truncation import TruncationRules, truncate_stream
from runtime.ledger.batch import OpenBatches
from tests.unit.runtime.diary import Wrote, ponder, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, ends, made_by, outputs, stored


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


def after(table: Table, call: str, action) -> InterceptedTable:
    return InterceptedTable(table, after=Interruption(call, action))


@pytest.mark.parametrize("known", [[], [write("old")]])
def test_another_writer_between_load_and_store_is_not_overwritten(known):
    # Given a stream that is new, or has a version
    table = memory_table()
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


def test_another_writer_right_after_the_read_is_not_overwritten():
    # The header that was read guards the write: one that is read later would guard another state.
    table = memory_table()
    Worker(table).process(write("old"))

    raced = after(table, "query", lambda: Worker(table).handle(write("theirs")))
    (outcome,) = Worker(raced).process(write("ours"))

    assert made_by(table) == ["old", "theirs", "ours"]
    assert Wrote.model_validate_json(outcome.outputs[0].body).on_page == ("old", "theirs", "ours")


@pytest.mark.parametrize("known", [[], [write("old")]])
def test_another_worker_with_the_same_message_stores_it_once(known):
    table = memory_table()
    Worker(table).process(*known)

    raced = before(table, "transact", lambda: Worker(table, batch="other").handle(write("a")))
    (outcome,) = Worker(raced, batch="ours").process(write("a"))

    assert ends([outcome]) == ["duplicate"]
    assert made_by(table).count("a") == 1


def test_another_worker_with_the_same_message_right_after_the_read_stores_it_once():
    # Ids that are read before the header miss a version that came in between: it would be processed twice.
    table = memory_table()
    Worker(table).process(write("old"))

    raced = after(table, "query", lambda: Worker(table, batch="other").handle(write("a")))
    (outcome,) = Worker(raced, batch="ours").process(write("a"))

    assert ends([outcome]) == ["duplicate"]
    assert made_by(table) == ["old", "a"]


def test_the_outputs_of_two_racing_copies_are_those_of_the_winners_clock():
    # Finding one's message id stored is not enough: it may be stored with another worker's clock.
    table = memory_table()
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


def test_a_writer_that_races_only_to_record_that_nothing_changed_conflicts_too():
    table = memory_table()

    raced = before(table, "transact", lambda: Worker(table).handle(write("a")))
    Worker(raced).process(ponder("p"))

    assert made_by(table) == ["a", "p"]


@pytest.mark.usefixtures("no_tail")
def test_a_run_that_is_cut_between_two_reads_is_not_missed_but_read_again():
    # Given a version whose run is read in a second query
    table = memory_table()
    aged = Worker(table, clock=ToldClock(NOW - 9 * DAY))
    aged.process(write("a", enqueued_at=NOW - 9 * DAY))
    aged.process(write("b", enqueued_at=NOW - 9 * DAY + 1))
    rules = TruncationRules.of(NOW, OpenBatches(), older_than=DAY, acknowledged_after=0)
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


def test_a_change_of_the_header_alone_is_a_conflict():
    # As truncation moves the horizon: a message judged by the old one must be judged again.
    table = memory_table()
    Worker(table, clock=ToldClock(NOW - 9 * DAY)).process(write("a", enqueued_at=NOW - 9 * DAY))
    Worker(table, clock=ToldClock(NOW - 9 * DAY)).process(write("b", enqueued_at=NOW - 9 * DAY))
    rules = TruncationRules.of(NOW, OpenBatches(), older_than=DAY, acknowledged_after=0)

    raced = before(table, "transact", lambda: truncate_stream(table, "Diary-d-1", rules, PATIENCE))
    (outcome,) = Worker(raced).process(write("c", enqueued_at=NOW - 9 * DAY))

    assert ends([outcome]) == ["too_late"]
    assert made_by(table) == ["b"]


def test_a_header_made_anew_with_the_same_properties_is_a_conflict():
    # ETags never repeat: a row that was deleted and made anew is another one.
    table = memory_table()
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

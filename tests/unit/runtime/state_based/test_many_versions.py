"""More new versions than fit one transaction are stored in parts.

Each part is a valid prefix, and every delivery gets its outcome as if there had been one part only.
"""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore import InterceptedTable, StoreUnavailableError, Table
from handlers import App
from runtime.errors import RetriesExhaustedError
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.versions import limits
from samples.shooting_range.handlers import ShootingRange
from tests.unit.runtime.diary import delivery, misbehave, ponder, write
from tests.unit.runtime.games import GAME
from tests.unit.runtime.indexes import check_index, index_of
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import Worker, ends, made_by, outputs, stored


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs and transactions be so small that a few messages make several parts."""
    monkeypatch.setattr(limits, "MAX_RUN_VERSIONS", 2)
    monkeypatch.setattr(limits, "MAX_TRANSACTION_RUNS", 2)


deliveries = st.lists(
    st.sampled_from(
        [
            *(write(line) for line in "abcdefgh"),
            *(ponder(message_id) for message_id in "pq"),
            misbehave("fail"),
            misbehave("set an attribute"),
            write("other", message_id="a"),
            write("future", enqueued_at=2**62),
            delivery("invalid", "Write", "{"),
        ]
    ),
    max_size=25,
)


@given(known=deliveries, messages=deliveries, stop=st.booleans())
@settings(max_examples=150)
def test_parts_give_the_outcomes_of_one_part(known, messages, stop):
    batch = BatchContext("batch-1", on_error="stop-stream" if stop else "continue")
    whole, parted = memory_table(), memory_table()
    for table in (whole, parted):
        Worker(table, batch="batch-0").process(*known)
    expected = Worker(whole, batch=batch).process(*messages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_RUN_VERSIONS", 2)
        patch.setattr(limits, "MAX_TRANSACTION_RUNS", 2)
        found = Worker(parted, batch=batch).process(*messages)

    assert found == expected
    assert [version.record for version in stored(parted)] == [version.record for version in stored(whole)]
    check_index(parted)


@given(sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=12), room=st.integers(4000, 30_000))
@settings(max_examples=60)
def test_what_does_not_fit_a_transaction_is_forgotten_and_folded_again(sizes, room):
    # The size of a run is known only once it is compressed, so a part may turn out to be too large.
    messages = [
        write("x" * size + str(number), message_id=f"m-{number}") for number, size in enumerate(sizes)
    ]
    messages = [copy for message in messages for copy in (message, message)]
    whole, parted = memory_table(), memory_table()
    expected = Worker(whole).process(*messages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_RUN_VERSIONS", 1)
        patch.setattr(limits, "ROW_OVERHEAD", 1000)
        patch.setattr(limits, "MAX_TRANSACTION_BYTES", room)
        found = Worker(parted).process(*messages)

    assert found == expected
    assert made_by(parted) == made_by(whole)


@pytest.mark.usefixtures("tiny", "no_tail")
def test_the_index_is_right_after_each_of_several_parts():
    table = memory_table()
    for batch in range(6):
        Worker(table).process(*(write(f"{batch}-{number}") for number in range(3 + 4 * batch)))
        check_index(table)

    assert len(index_of(table)) < 8


@pytest.mark.usefixtures("tiny")
def test_every_part_is_one_transaction():
    table = memory_table()
    counted = InterceptedTable(table)

    Worker(counted).process(*(write(str(number)) for number in range(12)))

    # Two runs of two versions in each part.
    assert counted.counts == {"query": 1, "transact": 3}
    assert len(stored(table)) == 12


@pytest.mark.usefixtures("tiny")
def test_the_parts_that_were_stored_before_a_crash_are_a_valid_prefix():
    messages = [write(str(number)) for number in range(10)]
    expected = Worker(memory_table(), batch="batch-1").process(*messages)

    for crash in range(1, 4):
        table = memory_table()
        worker = Worker(_dying(table, crash), batch="batch-1", attempts=1)

        with pytest.raises(RetriesExhaustedError):
            worker.process(*messages)

        assert made_by(table) == [str(number) for number in range(4 * (crash - 1))]
        assert Worker(table, batch="batch-1").process(*messages) == expected


def _dying(table: Table, crash: int) -> Table:
    def die(name: str, *_: object) -> None:
        if name == "transact" and intercepted.counts["transact"] >= crash:
            raise StoreUnavailableError("the machine is gone")

    intercepted = InterceptedTable(table, before=die)
    return intercepted


@pytest.mark.usefixtures("tiny")
def test_a_conflict_in_the_middle_redoes_only_what_is_not_stored():
    table = memory_table()
    transactions = []

    def interrupt(name: str, *_: object):
        if name != "transact":
            return None
        transactions.append(name)
        return Worker(table).handle(write("theirs")) if len(transactions) == 2 else None

    raced = InterceptedTable(table, before=interrupt)
    outcomes = Worker(raced, batch="batch-1").process(*(write(str(number)) for number in range(10)))

    assert ends(outcomes) == ["processed"] * 10
    assert made_by(table) == ["0", "1", "2", "3", "theirs", "4", "5", "6", "7", "8", "9"]
    assert [outcome.version for outcome in outcomes] == [1, 2, 3, 4, 6, 7, 8, 9, 10, 11, 12][:10]
    assert len(outputs(outcomes)) == 10


@pytest.mark.usefixtures("tiny")
def test_a_copy_whose_outputs_are_in_hand_does_not_fail_the_batch_after_a_conflict():
    # Given a handler that is not deterministic, and a part of its outcomes stored
    table = memory_table()
    transactions = []
    outside = misbehave("draw from outside", message_id="outside")
    messages = [outside, *(write(str(number)) for number in range(6)), outside]

    def interrupt(name: str, *_: object):
        if name != "transact":
            return None
        transactions.append(name)
        return Worker(table).handle(write("theirs")) if len(transactions) == 2 else None

    # When what is in memory is dropped because of a conflict, and then its copy comes
    batch = BatchContext("batch-1", OpenBatches(names=frozenset({"batch-1"})))
    outcomes = Worker(InterceptedTable(table, before=interrupt), batch=batch).process(*messages)

    # Then the copy is a dead letter: nothing is lost, as the first delivery has the outputs
    assert ends(outcomes) == ["processed"] * 7 + ["nondeterministic"]
    assert len(outcomes[0].outputs) == 1


@pytest.mark.thorough
def test_twenty_thousand_versions_in_one_call():
    table = memory_table()
    counted = InterceptedTable(table)
    shots = [
        delivery(f"{number:032x}", "FireAt", {"game_id": str(GAME), "position": 1})
        for number in range(20_000)
    ]

    outcomes = Worker(counted, App(ShootingRange), business_id=str(GAME), batch="batch-1").process(*shots)

    assert set(ends(outcomes)) == {"processed"}
    assert [outcome.version for outcome in outcomes] == list(range(1, 20_001))
    assert counted.counts == {"query": 1, "transact": 1}
    assert [row["Count"] for (_, key), row in sorted(rows(table).items()) if key.startswith("SS-SE-")] == [
        8192, 8192, 3616,
    ]  # fmt: skip


def test_more_versions_than_a_transaction_holds():
    # 1,200 versions with 4,000 bytes each that compression does not make smaller are more than 4 MiB.
    table = memory_table()
    counted = InterceptedTable(table)
    messages = [misbehave("capture noise", message_id=str(number)) for number in range(1200)]

    outcomes = Worker(counted, batch="batch-1").process(*messages)

    assert [outcome.version for outcome in outcomes] == list(range(1, 1201))
    assert counted.counts == {"query": 1, "transact": 3}
    assert Worker(table, batch="batch-1").process(*messages) == outcomes

"""A batch stores the documents of a stream's messages together: one registration, one transaction."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from eventstore import InterceptedTable, drive
from runtime import Envelope, Outcome
from runtime.algorithms.choice import Dependencies, make_batch_algorithms
from runtime.documents.protocol import DocumentSweep, Swept, registrations_of
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.messages.parsing import prepare
from runtime.versions import limits
from tests.unit.runtime.documents.letters_desk import Office, app, ask
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.worker import HOUR, NOW, ToldClock, ends

KEY = "Desk-r-1"
BATCH = BatchContext("batch-1", OpenBatches(2, frozenset({1})), number=1)


class Crashed(BaseException):
    """Stands for a task that was killed."""


@pytest.fixture
def office(tmp_path) -> Office:
    return Office(tmp_path / "documents")


def run(office: Office, messages: Sequence[Envelope], after=None) -> tuple[list[Outcome], InterceptedTable]:
    """Process messages of one stream as the worker of a batch does."""
    table = InterceptedTable(office.table, after=after)
    given = Dependencies(
        app, table, clock=ToldClock(), retries=PATIENCE, batch=BATCH, documents=office.documents
    )
    handler = app.handlers["Desk"]
    deliveries = [prepare(handler, "r-1", message) for message in messages]
    outcomes = list(drive(make_batch_algorithms("state-based", given)["Desk"].process("r-1", deliveries)))
    office.published += [output for outcome in outcomes for output in outcome.outputs]
    return outcomes, table


def sweep(office: Office, open_batches: OpenBatches, age: timedelta = timedelta()) -> Swept:
    clock = ToldClock(NOW + HOUR)
    return drive(DocumentSweep(office.table, office.documents, clock, PATIENCE, open_batches).sweep(age))


def test_the_documents_of_a_stream_cost_one_request_more_and_share_a_transaction(office):
    _, table = run(office, [ask(f"m-{number}") for number in range(5)])
    assert table.counts == {"query": 1, "transact": 2, "barrier": 1}
    sweep(office, OpenBatches())
    office.check(messages=5)


def test_a_copy_within_the_batch_and_one_in_a_task_that_runs_again_have_the_same_document(office):
    first, _ = run(office, [ask(), ask()])
    assert ends(first) == ["processed", "duplicate"]
    again, _ = run(office, [ask()])
    assert again[0].outputs == first[0].outputs
    sweep(office, OpenBatches())
    office.check(messages=1)


def test_many_documents_of_a_stream_are_stored_in_several_transactions(office, monkeypatch):
    monkeypatch.setattr(limits, "MAX_TRANSACTION_DOCUMENTS", 2)
    _, table = run(office, [ask(f"m-{number}") for number in range(5)])
    assert table.counts["transact"] == 2 * 3
    sweep(office, OpenBatches())
    office.check(messages=5)


def test_so_are_large_ones(office, monkeypatch):
    monkeypatch.setattr(limits, "MAX_TRANSACTION_DOCUMENT_BYTES", 1)
    _, table = run(office, [ask(f"m-{number}") for number in range(3)])
    assert table.counts["transact"] == 2 * 3


def test_of_versions_that_a_transaction_leaves_out_no_document_is_stored_before_they_are_made_again(
    office, monkeypatch
):
    monkeypatch.setattr(limits, "MAX_TRANSACTION_RUNS", 1)
    monkeypatch.setattr(limits, "MAX_RUN_VERSIONS", 2)
    monkeypatch.setattr(limits, "MAX_SEGMENT_VERSIONS", 1)
    run(office, [ask(f"m-{number}") for number in range(7)])
    sweep(office, OpenBatches())
    office.check(messages=7)


def test_attempts_of_a_batch_that_has_not_ended_are_left_alone_until_it_has(office):
    def die(name: str, *_: object) -> None:
        if name == "barrier":
            raise Crashed

    with pytest.raises(Crashed):
        run(office, [ask()], after=die)
    (registered,) = drive(registrations_of(office.table, KEY))
    assert registered.batch == BATCH.key

    assert BATCH.open_batches is not None
    assert sweep(office, BATCH.open_batches) == Swept()
    ended = replace(BATCH.open_batches, numbers=frozenset())
    assert sweep(office, ended, timedelta(hours=2)) == Swept()
    assert sweep(office, ended) == Swept(1, 1)

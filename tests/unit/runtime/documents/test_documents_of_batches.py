"""A batch stores the documents of a stream's messages together: one registration, one transaction."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import timedelta

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, drive
from runtime import Envelope, Outcome
from runtime.documents import DocumentSweep, Swept, registrations_of
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.versions import limits
from tests.unit.runtime.accidents import CrashError, crash
from tests.unit.runtime.documents.letters_desk import Office, WatchedDocuments, app, ask, nothing
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.worker import HOUR, NOW, ToldClock, Worker, ends

KEY = "Desk-r-1"
BATCH = BatchContext("batch-1", OpenBatches(2, frozenset({1})), number=1)


@pytest.fixture
def office(tmp_path) -> Office:
    return Office(tmp_path / "documents")


def run(
    office: Office, messages: Sequence[Envelope], after=None, batch: BatchContext = BATCH
) -> tuple[list[Outcome], InterceptedTable]:
    """Process messages of one stream as the worker of a batch does."""
    table = InterceptedTable(office.table, after=after)
    worker = Worker(table, app, batch=batch, business_id="r-1", documents=office.documents)
    outcomes = worker.process(*messages)
    office.published += [output for outcome in outcomes for output in outcome.outputs]
    return outcomes, table


def sweep(office: Office, open_batches: OpenBatches, age: timedelta = timedelta()) -> Swept:
    clock = ToldClock(NOW + HOUR)
    return drive(DocumentSweep(office.table, office.documents, clock, PATIENCE, open_batches).sweep(age))


def test_a_copy_within_the_batch_and_one_in_a_task_that_runs_again_have_the_same_document(office):
    first, _ = run(office, [ask(), ask()])
    again, _ = run(office, [ask()])

    assert ends(first) == ["processed", "duplicate"]
    assert again[0].outputs == first[0].outputs
    sweep(office, OpenBatches())
    office.check(messages=1)


@pytest.mark.parametrize(
    ("lowered", "transactions"),
    [
        ({}, 1),
        ({"MAX_TRANSACTION_DOCUMENTS": 2}, 3),
        ({"MAX_TRANSACTION_DOCUMENT_BYTES": 1}, 5),
        # Versions that a transaction leaves out are made again, with other documents
        ({"MAX_TRANSACTION_RUNS": 1, "MAX_RUN_VERSIONS": 2, "MAX_SEGMENT_VERSIONS": 1}, 3),
    ],
)
def test_documents_of_a_stream_share_a_transaction_which_costs_one_request_more_up_to_its_limits(
    office, monkeypatch, lowered, transactions
):
    for name, limit in lowered.items():
        monkeypatch.setattr(limits, name, limit)

    _, table = run(office, [ask(f"m-{number}") for number in range(5)])

    assert table.counts == {"query": 1, "transact": 2 * transactions, "barrier": transactions}
    sweep(office, OpenBatches())
    office.check(messages=5)


@pytest.mark.parametrize(
    ("ended", "number", "is_dead"),
    [
        pytest.param(OpenBatches(2, frozenset({1})), 1, False, id="an open batch"),
        pytest.param(OpenBatches(1), 1, False, id="a batch that began after the sweep"),
        pytest.param(OpenBatches(2), 1, True, id="a batch that has ended"),
        pytest.param(OpenBatches(2), None, False, id="a consumer without a ledger"),
    ],
)
@pytest.mark.parametrize("killed_at", ["barrier", "prepare"])
def test_attempts_of_a_batch_are_dead_when_it_has_ended_whatever_their_age(
    office, ended, number, is_dead, killed_at
):
    def die(name: str, *_: object) -> None:
        if name == killed_at:
            crash()

    office.documents = WatchedDocuments(office.documents, before=nothing, after=die)
    with pytest.raises(CrashError):
        run(office, [ask("m-1"), ask("m-2")], after=die, batch=replace(BATCH, number=number))
    stored = len(office.files)
    assert stored == (0 if killed_at == "barrier" else 1)
    (registered,) = drive(registrations_of(office.table, KEY))
    assert len(registered.names) == 2

    young = timedelta(hours=2)
    if is_dead:
        assert sweep(office, ended, young) == Swept(1, stored)
        assert sweep(office, ended) == Swept(given_up=1)
        assert not office.files
    elif number is None:
        assert sweep(office, ended, young) == Swept(young=1)
        assert sweep(office, ended) == Swept(1, stored)
    else:
        assert sweep(office, ended) == Swept(open=1)
        assert len(office.files) == stored


def test_a_sweep_counts_what_it_has_deleted_before_a_conflict(office):
    documents = office.documents
    office.documents = WatchedDocuments(documents, before=nothing, after=crash)
    for message in ("m-1", "m-2"):
        with pytest.raises(CrashError):
            run(office, [ask(message)])
    writes = iter([None, StoreUnavailableError("a second attempt is not given up at once")])

    def lose(name: str, *_: object) -> None:
        if name == "transact" and (error := next(writes, None)):
            raise error

    table = InterceptedTable(office.table, before=lose)
    swept = DocumentSweep(table, documents, ToldClock(NOW + HOUR), PATIENCE, OpenBatches(2))
    assert drive(swept.sweep(timedelta())) == Swept(2, 2, given_up=1)

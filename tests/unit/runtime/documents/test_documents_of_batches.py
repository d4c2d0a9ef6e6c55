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
from tests.unit.runtime.documents.letters_desk import Office, WatchedDocuments, app, ask, nothing
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.worker import HOUR, NOW, ToldClock, Worker, ends

KEY = "Desk-r-1"
BATCH = BatchContext("batch-1", OpenBatches(2, frozenset({1})), number=1)


class Crashed(BaseException):
    """Stands for a task that was killed."""


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
    """What was stored is counted, not what was registered, and what is left alone is counted too."""

    def die(name: str, *_: object) -> None:
        if name == killed_at:
            raise Crashed

    office.documents = WatchedDocuments(office.documents, before=nothing, after=die)
    with pytest.raises(Crashed):
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
    def die(name: str) -> None:
        raise Crashed if name == "prepare" else AssertionError(name)

    documents = office.documents
    for message in ("m-1", "m-2"):
        office.documents = WatchedDocuments(documents, before=nothing, after=die)
        with pytest.raises(Crashed):
            run(office, [ask(message)])
    office.documents = documents
    writes = iter([None, StoreUnavailableError("a second attempt is not given up at once")])

    def lose(name: str, *_: object) -> None:
        if name == "transact" and (error := next(writes, None)):
            raise error

    table = InterceptedTable(office.table, before=lose)
    swept = DocumentSweep(table, documents, ToldClock(NOW + HOUR), PATIENCE, OpenBatches(2)).sweep(
        timedelta()
    )
    assert drive(swept) == Swept(2, 2, given_up=1)

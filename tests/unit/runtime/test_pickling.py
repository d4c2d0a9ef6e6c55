"""Errors, deliveries and outcomes cross process borders."""

import inspect
import pickle
from datetime import UTC, datetime

import pytest

import runtime.errors
from runtime import Envelope, Outcome, Output, Reason, RuntimeFailure, Status
from runtime.algorithms.algorithm import HandlerFailedError
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.ledger.ledger import BatchRecord, BatchStatus
from runtime.messages.outcome import dead_letter
from tests.unit.runtime.diary import write
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import Worker

ERRORS = [
    found
    for found in vars(runtime.errors).values()
    if inspect.isclass(found) and issubclass(found, BaseException) and found.__module__ == "runtime.errors"
]


def copy(value):
    return pickle.loads(pickle.dumps(value))


def test_the_errors_are_found():
    assert {error.__name__ for error in ERRORS} >= {"RuntimeFailure", "ReplayFailedError", "StoredDataError"}


@pytest.mark.parametrize("error", [*ERRORS, HandlerFailedError])
def test_every_error_survives_pickling(error):
    back = copy(error("one sentence"))

    assert type(back) is error
    assert str(back) == "one sentence"
    assert isinstance(back, RuntimeFailure | HandlerFailedError)


def test_an_error_with_a_cause_survives_pickling():
    raised = runtime.errors.RetriesExhaustedError("gave up")
    raised.__cause__ = ValueError("why")

    assert str(copy(raised)) == "gave up"


def test_every_error_has_its_root_in_the_package():
    assert all(issubclass(error, RuntimeFailure) for error in ERRORS)


def outcomes() -> list[Outcome]:
    handled = Worker(memory_table(), batch="b").process(write("a", headers={"trace": "t"}, enqueued_at=1))
    return [*handled, dead_letter(write("b"), Reason.HANDLER_ERROR, "no ink", "Diary", "d-1")]


@pytest.mark.parametrize("outcome", outcomes(), ids=["processed", "dead letter"])
def test_outcomes_survive_pickling_with_their_deliveries_and_outputs(outcome: Outcome):
    back = copy(outcome)

    assert back == outcome
    assert (type(back), type(back.envelope), type(back.status)) == (Outcome, Envelope, Status)
    assert [type(output) for output in back.outputs] == [Output] * len(outcome.outputs)


def test_what_a_batch_decides_survives_pickling():
    context = BatchContext(
        "batch-1",
        OpenBatches(7, frozenset({5, 6})),
        is_cascade=True,
        late="process",
        on_error="stop-stream",
        number=6,
    )

    assert copy(context) == context


def test_a_record_of_the_ledger_survives_pickling():
    now = datetime(2026, 1, 1, tzinfo=UTC)
    record = BatchRecord("b", "input", "/out", "token", BatchStatus.STARTED, 1, now, now, {"processed": 3})

    assert copy(record) == record

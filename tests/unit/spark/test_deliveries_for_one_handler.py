"""A delivery for which the log names a handler goes to that one alone, or to nobody."""

from __future__ import annotations

import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime.ledger.batch import BatchContext
from runtime.spark.verification import VerifyJob
from runtime.spark.worker.job import FoldJob
from tests.support.routed import routed


class Rang(Message):
    tower: str


class Rings(State):
    count: int = 0


class Bell(Handler[Rings]):
    @handles(by="tower")
    def rang(self, state: Rings, message: Rang, context: Context) -> Rings:
        return Rings(count=state.count + 1)


class Listener(Handler[Rings]):
    @handles(by="tower")
    def rang(self, state: Rings, message: Rang, context: Context) -> Rings:
        return Rings(count=state.count + 1)


app = App(Bell, Listener)


def row(message_id, type_="Rang", **fields):
    return {"message_id": message_id, "type": type_, "body": '{"tower":"east"}', **fields}


@pytest.fixture
def fold(tmp_path):
    def fold_rows(*rows, **options):
        job = FoldJob(app, f"sqlite:///{tmp_path}/store.db", "bells", BatchContext("night"), **options)
        return [found for outcomes in job.fold(routed(app, rows)) for found in outcomes.to_pylist()]

    return fold_rows


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
def test_what_takes_it_is_the_handler_that_is_named(fold, algorithm):
    outcomes = fold(row("a"), row("b", handler="Bell"), row("c", handler="Listener"), algorithm=algorithm)

    assert sorted((each["handler"], each["message_id"], each["status"]) for each in outcomes) == [
        ("Bell", "a", "processed"),
        ("Bell", "b", "processed"),
        ("Listener", "a", "processed"),
        ("Listener", "c", "processed"),
    ]


@pytest.mark.parametrize(
    ("sent", "reason", "error"),
    [
        (row("a", handler="Bel"), "unknown_handler", "There is no handler 'Bel'."),
        (row("a", handler=""), "unknown_handler", "There is no handler ''."),
        (row("a", "Rung", handler="Bel"), "unknown_handler", "There is no handler 'Bel'."),
        (row("a", "Rung", handler="Bell"), "unknown_type", "Bell does not handle Rung."),
        (row("a", "Rung"), "unknown_type", "No handler takes messages of type Rung."),
    ],
)
def test_what_nobody_takes_is_a_dead_letter_that_says_why(fold, sent, reason, error):
    (outcome,) = fold(sent)

    assert (outcome["status"], outcome["handler"]) == ("dead_letter", sent.get("handler"))
    assert (outcome["reason"], outcome["error"]) == (reason, error)


def test_a_verification_compares_it_with_the_version_of_that_handler(fold, tmp_path):
    fold(row("a"))
    job = VerifyJob(app, f"sqlite:///{tmp_path}/store.db", "bells")
    log = [row("a", handler="Bell"), row("a", handler="Bel"), row("a", "Rung", handler="Listener")]

    found = [each for batch in job.verify(routed(app, log)) for each in batch.to_pylist()]

    assert {(each["handler"], each["verdict"], each["error"]) for each in found} == {
        ("Bell", "match", None),
        ("Bel", "unknown", "There is no handler 'Bel'."),
        ("Listener", "unknown", "Listener does not handle Rung."),
    }

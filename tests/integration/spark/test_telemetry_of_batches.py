"""Telemetry of batches: workers count, the driver adds up what a committed round counted, and traces its rounds."""

from __future__ import annotations

import itertools

import pytest

from runtime.spark.reprocessing import reprocess
from runtime.telemetry import Metrics
from tests.plugins.telemetry import samples
from tests.support.logs import OTHER_GAME, fire, row, start, write_lines

TRACES = [f"00-{number:032x}-{number:016x}-01" for number in range(1, 4)]


def log(place) -> str:
    """Write a log with a duplicate, a dead letter, and three producers."""
    shots = [
        fire(number, 5, headers={"traceparent": trace})
        for number, trace in zip((2, 3, 4), TRACES, strict=True)
    ]
    rows = [start(1, 5), *shots, shots[0], start(5, 3, OTHER_GAME), row(6, "FireAt", {"game_id": "none"})]
    return write_lines(place.folder / "log.jsonl", rows)


def messages(metrics: Metrics) -> dict[tuple[str, ...], float]:
    """Return the counts of messages and dead letters."""
    found = samples(metrics.text())
    return {
        name[1:]: value
        for name, value in found.items()
        if name[0].endswith(("messages_total", "letters_total"))
    }


FIRST = {
    ("ShootingRange", "processed"): 5,
    ("ShootingRange", "duplicate"): 1,
    ("ShootingRange", "dead_letter"): 1,
    ("ShootingRange", "invalid_body"): 1,
    ("LeaderBoard", "processed"): 3,
}


def test_a_batch_counts_each_message_once_and_is_traced(any_place, recorded):
    metrics, given = Metrics(), log(any_place)

    any_place.run(given, cascade=True, batch_id="night", metrics=metrics)

    assert messages(metrics) == FIRST
    found = samples(metrics.text())
    assert found["consistent_batches_total",] == 1
    assert found["consistent_last_batch_end_seconds",] > found["consistent_last_batch_seconds",] > 0
    if not any_place.store.startswith("sqlite"):
        assert found["consistent_store_request_seconds_count", "query"] > 0
    assert recorded.metrics()["consistent.messages", "ShootingRange", "processed"] == 5
    # A span for each round in that of the batch, linked to the producers
    first, second, batch = recorded.spans
    assert [span.name for span in (first, second, batch)] == [
        "process round",
        "process round",
        "process batch",
    ]
    assert first.parent.span_id == second.parent.span_id == batch.context.span_id
    assert batch.attributes["consistent.batch_id"] == "night"
    assert batch.attributes["consistent.processed"] == 8
    assert sorted(link.context.trace_id for link in first.links) == [1, 2, 3]

    # When the log runs again, nothing counts as processed, and the published batch counts nothing
    any_place.run(given, cascade=True, batch_id="again", metrics=metrics)
    any_place.run(given, cascade=True, batch_id="night", metrics=metrics)

    expected = {name: count for name, count in FIRST.items() if name[1] != "duplicate"}
    again = {("ShootingRange", "duplicate"): 1 + 6, ("LeaderBoard", "duplicate"): 3}
    dead = {name: 2 for name in FIRST if name[1] in {"dead_letter", "invalid_body"}}
    assert messages(metrics) == expected | again | dead
    assert samples(metrics.text())["consistent_batches_total",] == 2


def test_outputs_of_a_batch_carry_the_trace_of_their_messages(place):
    outcomes = place.run(log(place))

    sent = outcomes.selectExpr("inline(outputs)").collect()

    assert {each.headers["traceparent"] for each in sent} == set(TRACES)


@pytest.mark.thorough
def test_outcomes_that_are_made_again_are_not_counted_again(place):
    metrics, given = Metrics(), log(place)
    steps = itertools.count()

    def stop(step: str) -> None:
        if step.startswith("Round 1: handling") and not next(steps):
            raise InterruptedError

    with pytest.raises(InterruptedError):
        place.run(given, cascade=True, batch_id="night", metrics=metrics, step=stop)
    for file in (place.folder / "out").rglob("*.parquet"):
        file.unlink()
    place.run(given, cascade=True, batch_id="night", metrics=metrics, step=stop)

    assert messages(metrics) == {name: count for name, count in FIRST.items() if name[0] != "LeaderBoard"}


@pytest.mark.thorough
def test_history_that_is_handled_again_counts_nothing(place, recorded):
    given = log(place)
    place.run(given, cascade=True)
    before = recorded.metrics()

    where = {
        "store": place.store,
        "table": place.table,
        "into": "corrected",
        "out": str(place.folder / "again"),
    }
    reprocess(place.spark, given, place.app, **where, partitions=2)

    assert recorded.metrics() == before

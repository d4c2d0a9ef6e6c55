"""What can be chosen for a batch does in each micro-batch of a stream what it does in a batch."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql import functions as sf

from eventstore import connect, drive
from runtime.batch_options import TablePlace
from runtime.errors import UsageError
from runtime.ledger.ledger import Numbering
from runtime.messages.limits import MessageLimits
from runtime.spark import redrive
from tests.integration.spark.conftest import NIGHT, Place
from tests.integration.spark.test_keyed_draws import RAFFLE
from tests.integration.spark.test_redriving_letters import app as boxes
from tests.support.logs import fire, message_id, row, start, write_lines
from tests.support.outcomes import Left, by_status, entities, heads, left, published, statuses, without_tokens
from tests.support.streaming import outcomes, put, stream

OF_NIGHT = Left({"ShootingRange": 60, "LeaderBoard": 45}, 0, 0)


def lines(*rows: dict[str, object]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in rows)


@pytest.fixture
def incoming(place: Place) -> Path:
    folder = place.folder / "incoming"
    folder.mkdir()
    return folder


@pytest.mark.thorough
def test_types_limits_and_draws(place, incoming):
    # Given messages of a type that the log may not hold, and one that is too large
    put(incoming, 0, lines(start(1, 40), row(2, "Hit", {"game_id": "g", "position": 1})))
    put(incoming, 1, lines(fire(3, 40), fire(4, 40, note="x" * 500), start(5, 1, game="x" * 300)))
    limits = MessageLimits(body=200)

    # When they come in two epochs, to a table with keyed draws
    options: dict[str, Any] = {"types": ["StartNewRound", "FireAt"], "draws": "keyed", "limits": limits}
    assert stream(place, incoming, cascade=True, **options) == [0, 1]

    # Then these are dead letters, and outputs of any type are handled
    found = statuses(outcomes(place))
    assert [found.pop(message_id(number)) for number in range(1, 6)] == [
        ["processed"],
        ["type_not_allowed"],
        ["processed"],
        ["processed"],
        ["too_large"],
    ]
    assert list(found.values()) == [["processed"]] * 2
    assert drive(_draw_key(place)) is not None


async def _draw_key(place: Place) -> bytes | None:
    async with connect(place.store) as store:
        _, settings = await Numbering(await store.table(place.table)).snapshot()
        return settings.draw_key


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["outbox", "deduplication-store", "tokens"])
def test_each_algorithm_gives_what_a_batch_gives_and_nothing_when_all_is_redelivered(
    place, incoming, night, algorithm
):
    # Given the log of a night, and maybe tokens for its messages
    elsewhere = TablePlace(f"sqlite:///{place.folder}/other.db", "other")
    options: dict[str, Any] = {
        "algorithm": algorithm,
        "deduplication_store": elsewhere if algorithm == "deduplication-store" else None,
        "token_store": elsewhere if algorithm == "tokens" else None,
        "cascade": True,
        "clock": NIGHT,
    }
    where = None if algorithm == "outbox" else (elsewhere.store, elsewhere.table)
    text = Path(night.log).read_text()
    if algorithm == "tokens":
        issued = place.spark.read.parquet(place.issue(night.log, place=elsewhere).out)
        as_json = sf.to_json(sf.struct("*"), {"timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX"})
        text = "".join(f"{row[0]}\n" for row in issued.select(as_json).collect())
    put(incoming, 0, text)

    # When it comes as an epoch
    assert stream(place, incoming, **options) == [0]

    # Then it gives what a state-based batch gives, and nothing is left to be finished
    of_epoch = outcomes(place).withColumn("round", sf.col("round").cast("int"))
    assert without_tokens(of_epoch) == night.outcomes
    assert entities(place.store, place.table) == night.states
    assert left(place.store, place.table, where) == OF_NIGHT

    # ... and redelivered in the next epoch it gives duplicates without outputs, and changes nothing
    put(incoming, 1, text)
    assert stream(place, incoming, **options) == [1]
    again = outcomes(place).where("batch_id = 'shots-1'")
    assert by_status(again) == {("ShootingRange", "duplicate"): 72}
    assert published(again) == []
    assert entities(place.store, place.table) == night.states
    assert left(place.store, place.table, where) == OF_NIGHT

    # ... and without its algorithm, the query does not go on
    put(incoming, 2, text)
    with pytest.raises(StreamingQueryException, match="processed with the algorithm"):
        stream(place, incoming)


@pytest.mark.thorough
def test_a_table_of_another_app_is_taken_over_when_that_is_asked_for(place, incoming):
    # Given a table of the shooting range
    place.run(write_lines(place.folder / "log.jsonl", [start(1, 40)]))
    put(incoming, 0, lines(row(2, "Drawn", {"raffle": "r"})))
    raffle = replace(place, app=RAFFLE)

    # When a stream of another app would write to it, then it is refused, and nothing has begun
    with pytest.raises(StreamingQueryException, match="belongs to the app with the handlers"):
        stream(raffle, incoming)
    assert set(heads(place.store, place.table)) == {"ShootingRange-7d444840-9dc0-11d1-b245-5ffdce74fad2"}

    # When it adopts the table, then it goes on
    assert stream(raffle, incoming, adopt=True) == [0]
    assert statuses(outcomes(place).where("batch_id = 'shots-0'")) == {message_id(2): ["processed"]}
    with pytest.raises(UsageError, match="belongs to the app with the handlers Raffle"):
        place.run(write_lines(place.folder / "log.jsonl", [start(3, 40)]), batch_id="late")


@pytest.mark.thorough
def test_a_parked_stream_waits_for_its_letter_through_epochs_and_redrives(place, incoming):
    # Given a parcel that cannot be taken, and others behind it in this epoch and in the next
    place.app = boxes
    needed = place.folder / "needed"
    sent = [{"box": "b", "parcel": number} for number in range(3)]
    put(incoming, 0, lines(row(0, "Sent", {**sent[0], "needs": str(needed)}), row(1, "Sent", sent[1])))
    put(incoming, 1, lines(row(2, "Sent", sent[2]), row(0, "Sent", {**sent[0], "needs": str(needed)})))

    # When they come, then those behind it are held back
    assert stream(place, incoming, on_error="park") == [0, 1]
    assert {status for each in statuses(outcomes(place)).values() for status in each} == {
        "handler_error",
        "held_back",
    }

    # When its cause is mended while the query goes on, then all are handled in their order
    needed.touch()
    where = {"store": place.store, "table": place.table, "out": place.out}
    redriven = redrive(place.spark, boxes, **where, batch_id="again", partitions=2)
    assert set(map(tuple, statuses(redriven).values())) == {("processed",)}
    ((_, state),) = heads(place.store, place.table).values()
    assert json.loads(state)["parcels"] == [0, 1, 2]
    put(incoming, 2, lines(row(1, "Sent", sent[1])))
    assert stream(place, incoming, on_error="park") == [2]
    assert statuses(outcomes(place).where("batch_id = 'shots-2'")) == {message_id(1): ["duplicate"]}
    assert len(published(outcomes(place))) == 3


def test_large_messages_are_not_kept_elsewhere(place, incoming):
    with pytest.raises(UsageError, match="leave keep_large out"):
        stream(place, incoming, keep_large=str(place.folder / "large"))

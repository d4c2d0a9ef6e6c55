"""Tokens for a log: one for each message and handler, once, and a log that names them."""

import json
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from eventstore import connect, drive
from runtime import BatchFailedError
from runtime.algorithms.outbox.stores import TokenStore, first_name, first_tokens
from tests.support.logs import GAME, fire, message_id, start, write_lines
from tests.support.outcomes import Left, by_status, left

UPPER = "7D444840-9DC0-11D1-B245-5FFDCE74FAD2"
STRANGE = {"é-1": "é-1", "ключ/😀": "ключ/😀", UPPER: UPPER.lower()}
ROWS = [start(1, 5), fire(2, 5), fire(2, 5), fire(3, 6)]


def named(spark, log):
    """Return the headers of each message of a log."""
    return {row.message_id: row.headers for row in spark.read.parquet(log).collect()}


def test_each_message_names_the_token_that_a_processor_would_give_it(place):
    rows: list[dict[str, Any] | str] = [
        *(fire(1, 5, message_id=each, headers={"trace": "t"}) for each in STRANGE),
        fire(2, 5),
        fire(2, 5),
        fire(3, 5, headers={"token": "chain/own"}),
        "no message",
        {"message_id": "m"},
        json.dumps(fire(4, 5, headers={"trace": "1"})).replace('"trace": "1"', '"trace": "1", "trace": "2"'),
    ]
    log = write_lines(place.folder / "log.jsonl", rows)

    issued = place.issue(log)

    assert (issued.deliveries, issued.rejected, issued.was_issued) == (7, 2, False)
    assert named(place.spark, issued.out) == {
        **{each: {"trace": "t", "token": first_name(each)} for each in STRANGE.values()},
        message_id(2): {"token": first_name(message_id(2))},
        message_id(3): {"token": first_name(message_id(3))},
        message_id(4): {"trace": "2", "token": first_name(message_id(4))},
    }
    rejected = place.spark.read.parquet(f"{issued.out}.rejected").collect()
    assert sorted((row.problem, row.line) for row in rejected) == [
        ("the line is not one JSON object", "no message"),
        ("type is missing", '{"message_id": "m"}'),
    ]
    assert left(place.store, place.table).tokens == 6  # what one of them one named is replaced


@pytest.mark.thorough
def test_a_log_whose_issuing_was_stopped_is_issued_again_and_one_that_was_processed_gets_no_new_tokens(place):
    def stop(step: str) -> None:
        if step == "Writing the log":
            raise BatchFailedError("It stops here.")

    async def issue_some():
        async with connect(place.store) as store:
            tokens = TokenStore(await store.table(place.table))
            await tokens.issue(first_tokens(message_id(2), ["ShootingRange"]))

    # Given that issuing was stopped, once when a part of the tokens was there and once when all were
    log = write_lines(place.folder / "log.jsonl", ROWS)
    drive(issue_some())
    with pytest.raises(BatchFailedError):
        place.issue(log, step=stop)
    assert left(place.store, place.table).tokens == 3

    # When it is done again, the log is whole, and no token is there twice
    issued = place.issue(log)
    assert (issued.deliveries, issued.was_issued) == (4, True)
    assert left(place.store, place.table).tokens == 3
    first = place.run(issued.out, algorithm="tokens", cascade=True, partitions=2)
    assert by_status(first) == {
        ("ShootingRange", "processed"): 3,
        ("ShootingRange", "duplicate"): 1,
        ("LeaderBoard", "processed"): 2,
    }

    # When the same log is issued once more, after it was processed and under another name
    moved = write_lines(place.folder / "elsewhere" / "log.jsonl", reversed(ROWS))
    again = place.issue(moved, "again")

    # Then its messages are duplicates
    assert again.was_issued
    assert left(place.store, place.table) == Left({"ShootingRange": 3, "LeaderBoard": 2}, 0, 0)
    second = place.run(again.out, algorithm="tokens", cascade=True, partitions=2)
    assert by_status(second) == {("ShootingRange", "duplicate"): 4}


@pytest.mark.thorough
def test_packed_bodies_and_a_source_that_sets_ids_apart(place):
    bodies = [msgpack.packb(json.loads(row["body"])) for row in ROWS]
    columns = {"message_id": [row["message_id"] for row in ROWS], "type": [row["type"] for row in ROWS]}
    table = pa.table({**columns, "body": bodies, "business_id": [GAME] * 4, "sequence": range(4)})
    pq.write_table(table, place.folder / "log.parquet")

    issued = place.issue(str(place.folder / "log.parquet"), source="north")

    ids = [f"north:{message_id(number)}" for number in (1, 2, 3)]
    assert named(place.spark, issued.out) == {each: {"token": first_name(each)} for each in ids}
    outcomes = place.run(issued.out, algorithm="tokens", source="north", cascade=True, partitions=2)
    assert by_status(outcomes) == {
        ("ShootingRange", "processed"): 3,
        ("ShootingRange", "duplicate"): 1,
        ("LeaderBoard", "processed"): 2,
    }
    assert {row.message_id for row in outcomes.where("round = 0").collect()} == set(ids)

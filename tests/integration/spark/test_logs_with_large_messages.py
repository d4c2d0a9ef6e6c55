"""What is too large of a log is a dead letter with a note, and the other messages have their effect, in every form."""

from __future__ import annotations

import json
from collections import Counter
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from handlers import App, Context, Handler, Message, State, handles
from runtime.errors import BatchFailedError
from runtime.messages.envelope import Envelope, Envelopes
from runtime.messages.limits import MessageLimits, find_excesses
from runtime.spark import dead_letters
from runtime.spark.logs.normalise import normalise

HUGE = 10**7


class Said(Message):
    room: str
    text: str = ""
    answers: int = 0


class Count(State):
    count: int = 0


class Room(Handler[Count]):
    @handles(by="room")
    def said(self, state: Count, message: Said, context: Context) -> Count:
        for number in range(message.answers):
            context.publish(Said(room=f"{message.room}{number}", answers=message.answers))
        return Count(count=state.count + 1)


app = App(Room)


def said(number: int, text: str = "", **more: object) -> dict[str, Any]:
    return {"message_id": f"m-{number}", "type": "Said", "body": {"room": "hall", "text": text}, **more}


def written(folder: Path, form: str, rows: list[dict[str, Any]]) -> Any:
    """Give rows as a log of some form."""
    if form == "json":
        path = folder / "log.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)
    packed = form == "msgpack"
    pack = msgpack.packb if packed else json.dumps
    table = pa.table(
        {
            "message_id": [row["message_id"] for row in rows],
            "type": [row["type"] for row in rows],
            "body": pa.array([pack(row["body"]) for row in rows], pa.binary() if packed else pa.string()),
            "business_id": ["hall"] * len(rows),
            "headers": pa.array(
                [list(row.get("headers", {}).items()) for row in rows], pa.map_(pa.string(), pa.string())
            ),
        }
    )
    if form == "table":
        return table
    pq.write_table(table, folder / "log.parquet")
    return str(folder / "log.parquet")


@pytest.mark.thorough
@pytest.mark.parametrize("form", ["json", "text", "msgpack", "table"])
def test_large_messages_among_good_ones(place, form):
    place.app = app
    rows = [
        said(1),
        said(2, "x" * 2**20),
        said(3, headers={"trace": "x" * 2**16}),
        said(4, "ä" * 2**19),
        said(5, "x" * HUGE),
        *[said(number, "\x01" * 2**20) for number in range(6, 10)],
        said(30),
    ]
    log = written(place.folder, form, rows)

    outcomes = place.run(log, batch_id="night", keep_large=str(place.folder / "large"))

    ends = {row.message_id: row.reason for row in outcomes.collect() if row.message_id}
    letters = [json.loads(row.delivery)["too_large"] for row in dead_letters(outcomes).collect()]
    assert {row.reason for row in dead_letters(outcomes).collect()} == {"too_large"}
    assert {name for name, reason in ends.items() if reason is None} == {"m-1", "m-30"}
    assert len(letters) == len(rows) - 2
    assert all(len(letter["begins"]) <= 2048 for letter in letters)
    sizes = sorted(letter["bytes"] for letter in letters)
    assert sizes[0] >= 2**16
    assert sizes[-1] >= HUGE
    # ... and what is too large is in a log of its own, as it was
    (kept,) = (place.folder / "large").iterdir()
    assert kept.name == ("night.jsonl" if form == "json" else "night.parquet")
    if form == "json":
        lines = b"".join(file.read_bytes() for file in kept.glob("part-*")).splitlines()
        assert {sha256(line).hexdigest() for line in lines} >= {
            letter["sha256"] for letter in letters if letter["part"] == "line"
        }
        found = {json.loads(line)["message_id"]: json.loads(line) for line in lines}
        assert found == {row["message_id"]: row for row in rows[1:-1]}
    else:
        assert pq.read_table(kept).num_rows == len(rows) - 2


@pytest.mark.thorough
def test_420_bodies_of_1_mb_that_are_none(place):
    place.app = app
    bodies = [*["x" * 10**6] * 420, json.dumps(said(1)["body"])]
    names = [f"m-{number}" for number in range(len(bodies))]
    path = place.folder / "log.parquet"
    pq.write_table(pa.table({"message_id": names, "type": ["Said"] * len(bodies), "body": bodies}), path)

    reasons = Counter(row.reason for row in place.run(str(path)).select("reason").collect())

    assert reasons == {"invalid_body": 420, None: 1}


@pytest.mark.thorough
def test_a_note_is_the_same_wherever_it_is_made(spark):
    limits = MessageLimits(line=500, body=300, headers=100)
    texts = ["x" * 301, "€" * 101, '\x01"\\/\U0001f600' * 60, "ab" * 2000]
    rows = [(f"m-{number}", "T", text) for number, text in enumerate(texts)]
    names = [("n" * 101, "T", "{}"), ("m", "ü" * 51, "{}")]
    log = spark.createDataFrame(rows + names, "message_id string, type string, body string")

    found = [json.loads(row["line"]) for row in normalise(log, None, limits).collect()]

    envelopes = Envelopes.of([Envelope(*row) for row in rows + names])
    notes = find_excesses(envelopes, limits)
    assert found == [json.loads(notes[position].kept.body) for position in range(len(found))]
    assert [row["problem"] for row in normalise(log, None, limits).collect()] == [
        notes[position].problem for position in range(len(found))
    ]


@pytest.mark.thorough
def test_a_cascade_that_grows_is_stopped_and_goes_on_when_it_may_be_larger(place):
    place.app = app
    log = written(place.folder, "json", [said(1) | {"body": {"room": "hall", "answers": 3}}])

    with pytest.raises(BatchFailedError, match="--max-outputs"):
        place.run(log, batch_id="night", cascade=True, max_outputs=2, max_rounds=3)
    with pytest.raises(BatchFailedError, match="more than 11 for each"):
        place.run(log, batch_id="night", cascade=True, max_outputs=11, max_rounds=3)
    with pytest.raises(BatchFailedError, match="--max-rounds"):
        place.run(log, batch_id="night", cascade=True, max_outputs=39, max_rounds=3)

"""Whatever was sent, in every kind of log: its dead letter, run again, makes the version that it would have made."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta, timezone
from functools import partial
from typing import Any

import msgpack
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame

from handlers import App, Context, Handler, Message, State, handles
from runtime.tables import read_versions
from tests.integration.spark.conftest import Place
from tests.support.logs import write_lines


class Noted(Message):
    book: str
    text: str
    number: float
    tags: tuple[str, ...] = ()


class Closed(Message):
    book: str


class Notes(State):
    last: str = ""


class Book(Handler[Notes]):
    @handles(by="book")
    def note(self, state: Notes, message: Noted, context: Context) -> Notes:
        return Notes(last=f"{message!r}{dict(context.headers)}")


class Shelf(Handler[Notes]):
    @handles(by="book")
    def close(self, state: Notes, message: Closed, context: Context) -> Notes:
        return state


ZONES = [UTC, timezone(timedelta(hours=5, minutes=45)), timezone(-timedelta(hours=3))]
MOMENTS = st.datetimes(datetime(1970, 1, 1), datetime(2025, 12, 31), timezones=st.sampled_from(ZONES))  # noqa: DTZ001 - Hypothesis takes the zone apart
TEXT = st.text(max_size=12)
SCHEMA = (
    "message_id string, type string, business_id string, sequence long, enqueued_at timestamp, "
    "headers map<string,string>, body "
)


@st.composite
def sent(draw: st.DrawFn) -> dict[str, Any]:
    """Draw a message: its body as an object, its time with microseconds and a zone."""
    book = draw(st.text(min_size=1, max_size=6))
    number = draw(st.floats(allow_nan=False, allow_infinity=False))
    tags = draw(st.just({}) | st.fixed_dictionaries({"tags": st.lists(TEXT, max_size=2)}))
    return {
        "message_id": draw(st.text(min_size=1, max_size=40)),
        "type": "Noted",
        "business_id": book,
        "sequence": draw(st.none() | st.integers(-(2**63), 2**63 - 1)),
        "enqueued_at": draw(st.none() | MOMENTS),
        "headers": draw(st.none() | st.dictionaries(TEXT, TEXT, min_size=1, max_size=2)),
        "body": {"book": book, "text": draw(TEXT), "number": number} | tags,
    }


def as_lines(place: Place, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    """Write a log of JSON lines, in which what is not there is left out."""
    lines = []
    for number, row in enumerate(rows):
        moment, body = row["enqueued_at"], row["body"]
        fields = dict(row) | {"enqueued_at": moment if isinstance(moment, str | None) else moment.isoformat()}
        fields["body"] = json.dumps(body) if number % 2 and isinstance(body, dict) else body
        lines.append({column: value for column, value in fields.items() if value is not None})
    return write_lines(place.folder / f"{name}.jsonl", lines)


def as_frame(place: Place, _: str, rows: Sequence[Mapping[str, Any]], *, packed: bool = False) -> DataFrame:
    def body(found: Any) -> Any:
        as_bytes = bytearray(msgpack.packb(found)) if packed else json.dumps(found)
        return as_bytes if isinstance(found, dict) else found

    values = [{**row, "body": body(row["body"])} for row in rows]
    return place.spark.createDataFrame(values, SCHEMA + ("binary" if packed else "string"))


def as_parquet(place: Place, name: str, rows: Sequence[Mapping[str, Any]]) -> str:
    as_frame(place, name, rows).write.parquet(f"{place.folder}/{name}.parquet")
    return f"{place.folder}/{name}.parquet"


as_packed_frame = partial(as_frame, packed=True)


def read_again(line: str, write: object) -> dict[str, Any]:
    """Return the row that the line of a dead letter says, as a log of this kind has it."""
    row: dict[str, Any] = dict.fromkeys(("business_id", "sequence", "enqueued_at", "headers"))
    row |= json.loads(line)
    if write is not as_lines and row["enqueued_at"] is not None:
        row["enqueued_at"] = datetime.fromisoformat(row["enqueued_at"])
    return row | ({"body": bytearray.fromhex(row["body"])} if write is as_packed_frame else {})


def versions(place: Place) -> list[dict[str, Any]]:
    names = ("business_id", "version", "message_id", "type", "enqueued_at", "headers", "fingerprint", "after")
    found = read_versions(place.store, place.table, columns=list(names)).to_pylist()
    return sorted(found, key=lambda each: (each["business_id"], each["version"]))


@pytest.mark.thorough
@pytest.mark.parametrize("write", [as_lines, as_frame, as_packed_frame, as_parquet])
@given(rows=st.lists(sent(), min_size=30, max_size=60, unique_by=lambda row: row["message_id"]))
@settings(max_examples=1, suppress_health_check=list(HealthCheck))
def test_it_makes_the_version_that_it_would_have_made(place, write, rows):
    # Given messages that no handler takes yet
    refused = place.run(write(place, "first", rows), app=App(Shelf), batch_id="first")
    lines = [row.delivery for row in refused.where("reason = 'unknown_type'").collect()]
    assert len(lines) == len(rows)

    # When their dead letters are run again with a handler, and the messages themselves elsewhere
    again = [read_again(line, write) for line in lines]
    place.run(write(place, "again", again), app=App(Book, Shelf), batch_id="again")
    elsewhere = replace(place, table=f"{place.table}x", folder=place.folder / "x")
    elsewhere.run(write(elsewhere, "first", rows), app=App(Book, Shelf), batch_id="first")

    # Then the versions are the same
    assert versions(place) == versions(elsewhere)

"""Logs in one form: what is wrong with a row or is too large is a dead letter, and all else is as it was."""

import json
from datetime import UTC, datetime
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

import msgpack
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pydantic import StrictInt, field_validator

from handlers import App, Context, Handler, Message, State, handles
from handlers.context import message_codec
from runtime.errors import BatchFailedError, BatchRefusedError, UsageError
from runtime.messages.envelope import Envelope, Envelopes
from runtime.messages.sizes import MessageLimits, find_excesses
from runtime.spark import dead_letters
from runtime.spark.logs.normalise import first_of, normalise, text, texts
from runtime.spark.logs.read import open_log
from runtime.spark.session import job_settings
from samples.shooting_range.handlers import ShootingRange
from tests.support.logs import GAME, fire, message_id, row, start, write_lines
from tests.support.outcomes import heads, statuses


class Counted(State):
    count: int = 0


class Add(Message):
    key: StrictInt
    amount: int

    @field_validator("amount")
    @classmethod
    def is_no_zero(cls, amount: int) -> int:
        assert 1 // amount is not None  # divides by zero, which pydantic does not take for a refusal
        return amount


class Counter(Handler[Counted]):
    @handles(by="key")
    def add(self, state: Counted, message: Add, context: Context) -> Counted:
        if message.amount < 0:
            problem = "amounts are positive" if message.amount == -1 else "half a character: \udcff"
            raise ValueError(problem)
        if message.amount > 10**9:
            return state.model_copy(update={"count": "x" * 400_000})
        return state.model_copy(update={"count": state.count + message.amount})


app = App(ShootingRange, Counter)


GOOD = [
    start(1, 5),
    fire(2, 5),
    row(3, "Add", {"key": 1, "amount": 4, "note": "\U0001f600"}),
    {**fire(20, 6), "headers": {"mood": "\U0001f600", "path": "C:\\udd00"}},
]
BAD = {
    "this is no JSON": "invalid_envelope",
    '{"message_id": "a", "type": "FireAt", "body": "{}"} {"message_id": "b"}': "invalid_envelope",
    '{"message_id": "c", "type": "FireAt", "body": "{}"}, {"message_id": "d"}': "invalid_envelope",
    json.dumps({"type": "FireAt", "body": "{}"}): "invalid_envelope",
    json.dumps({"message_id": "", "type": "FireAt", "body": "{}"}): "invalid_envelope",
    json.dumps({"message_id": "x" * 256, "type": "FireAt", "body": "{}"}): "invalid_envelope",
    json.dumps({"message_id": "e", "body": "{}"}): "invalid_envelope",
    json.dumps({"message_id": "f", "type": "FireAt"}): "invalid_envelope",
    json.dumps({**fire(4, 1), "sequence": "soon"}): "invalid_envelope",
    json.dumps({**fire(5, 1), "sequence": 10**20}): "invalid_envelope",
    json.dumps({**fire(6, 1), "enqueued_at": "yesterday"}): "invalid_envelope",
    json.dumps({**fire(7, 1), "enqueued_at": "12:30"}): "invalid_envelope",
    json.dumps({**fire(21, 1), "enqueued_at": "9999-12-31T23:59:59-01:00"}): "invalid_envelope",
    json.dumps({**fire(22, 1), "enqueued_at": "0000-01-01T00:00:00Z"}): "invalid_envelope",
    json.dumps({**fire(8, 1), "headers": "none"}): "invalid_envelope",
    json.dumps({**fire(25, 1), "message_id": "m\ud800"}): "invalid_envelope",
    json.dumps({**fire(25, 1), "message_id": "\ude00m"}): "invalid_envelope",
    json.dumps({**fire(26, 1), "message_id": "m\ud800"}).replace("ud800", "uD800"): "invalid_envelope",
    json.dumps(row(9, "Surprise", "{}")): "unknown_type",
    json.dumps(row(10, "FireAt", "{not json")): "invalid_body",
    json.dumps(row(11, "FireAt", "{'game_id': 'single quotes', 'position': 1}")): "invalid_body",
    json.dumps(row(12, "FireAt", {"game_id": GAME, "position": "far"})): "invalid_body",
    json.dumps(row(13, "FireAt", {"position": 1})): "no_business_id",
    json.dumps(row(14, "FireAt", {"game_id": None, "position": 1})): "no_business_id",
    json.dumps({**fire(15, 1), "business_id": message_id(99)}): "business_id_mismatch",
    json.dumps(row(16, "Add", {"key": 1, "amount": -1})): "handler_error",
    json.dumps(row(17, "Add", {"key": 1, "amount": 10**10})): "handler_error",
    json.dumps(row(18, "Add", {"key": "1", "amount": 1})): "invalid_body",
    json.dumps(row(23, "Add", {"key": 1, "amount": 0})): "invalid_body",
    json.dumps(row(24, "Add", {"key": 1, "amount": -2})): "handler_error",
    json.dumps({**fire(19, 1), "enqueued_at": "2999-01-01T00:00:00Z"}): "enqueued_in_future",
    json.dumps({**fire(2, 99), "sequence": 99}): "id_reused",
}


@pytest.mark.parametrize("format_", ["json", pytest.param("parquet", marks=pytest.mark.thorough)])
def test_each_bad_delivery_has_its_reason_and_the_good_ones_alone_their_effect(place, format_):
    place.app = app
    # Given a log of good messages among bad ones
    log = write_lines(place.folder / "log.jsonl", [*GOOD, *BAD])
    if format_ == "parquet":
        # ... which in Parquet has only what fits its columns
        schema = (
            "message_id string, type string, body string, business_id string, sequence string, enqueued_at string, "
            "headers map<string,string>"
        )
        read = place.spark.read.schema(schema).json(log, mode="DROPMALFORMED")
        log = str(place.folder / "log.parquet")
        read.write.parquet(log)

    # When a batch runs
    outcomes = place.run(log)

    # Then every good message is processed, and no other one has made a version
    found = statuses(outcomes)
    assert [found[message_id(key)] for key in (1, 3, 20)] == [["processed"]] * 3
    assert found[message_id(2)] == ["id_reused", "processed"]
    streams = {key: versions for key, (versions, _) in heads(place.store, place.table).items() if versions}
    shots = 3 if format_ == "json" else 5  # two ids with half a character are others there
    assert streams == {f"ShootingRange-{GAME}": shots, "Counter-1": 1}
    # ... and each of the others is a dead letter that keeps what was delivered
    letters = dead_letters(outcomes).collect()
    assert all(letter.error and letter.delivery for letter in letters)
    if format_ == "json":
        assert len(letters) == len(BAD)
        invalid = {letter.delivery for letter in letters if letter.reason == "invalid_envelope"}
        assert invalid == {line for line, reason in BAD.items() if reason == "invalid_envelope"}
    by_id = {letter.message_id: letter.reason for letter in letters if letter.message_id}
    for line, reason in BAD.items():
        if reason != "invalid_envelope":
            assert by_id[json.loads(line)["message_id"]] == reason, line


def test_text_in_another_encoding_is_no_message_and_not_changed(spark, tmp_path):
    # Given lines in Latin-1, one of them a message whose id would become that of another, and such columns
    latin = json.dumps({**start(2, 5), "message_id": "m\u00e9"}, ensure_ascii=False).encode("latin-1")
    lines = [json.dumps(start(1, 5)).encode(), b"\xff\xfe garbage \xe9", latin]
    (tmp_path / "log.jsonl").write_bytes(b"\n".join(lines))
    columns = spark.sql(
        """
        select 'a' as message_id, 'FireAt' as type, '{}' as body, cast(null as map<string,string>) as headers
        union all select cast(X'6DE9' as string), 'FireAt', '{}', null
        union all select 'b', 'FireAt', cast(X'6DE9' as string), null
        union all select 'c', 'FireAt', '{}', map('k', cast(X'6DE9' as string))
        """
    )

    of_lines, of_columns = (
        [row["problem"] for row in normalise(log).collect()]
        for log in (open_log(spark, tmp_path / "log.jsonl").rows, columns)
    )

    assert sorted(of_lines, key=str) == [None, *["the line is not UTF-8"] * 2]
    assert sorted(of_columns, key=str) == [
        *(None, "body is not UTF-8", "headers are not UTF-8", "message_id is not UTF-8")
    ]


A = '{"message_id":"a","type":"T","body":{}}'
B = '{"message_id":"b","type":"T","body":{}}'
HALF, PAIR = r"\udc00", r"\ud83d\udc00"


def line(**fields: object) -> str:
    return json.dumps({"message_id": "a", "type": "T", "body": {}, **fields})


def body(text: str) -> str:
    return f'{{"message_id":"a","type":"T","body":{{"x":"{text}"}}}}'


READ = {
    A: "a",
    f"  {A} ": "a",
    line(enqueued_at="2026-01-31T12:00:00Z"): "a",
    line(sequence="12"): "a",
    body(PAIR): "a",
    body(rf"\\{'ud83d'}"): "a",
    body(rf"\\\\{PAIR}"): "a",
    body(rf"\"{PAIR}"): "a",
    line(line=json.loads(B)): "a",
}
REFUSED = [
    f'{A},"line":{B}',
    f'{A},"line_ends":true',
    f'{A}\t,"line_ends":true}}',
    f"{A},{B}",
    f"{A} {B}",
    f"{A}]",
    f'{A},{{"line_ends":true}}]',
    f'{A},{{"line_ends":true}}',
    f'{A},{{"line_ends_0123456789abcdef":true}}] [{{}}',
    f"[{A}]",
    f"[{A},{B}]",
    "null",
    "{}",
    "[]",
    body(HALF),
    body(rf"\\{'ud83d'}{HALF}"),
    body(rf"\\\\{HALF}"),
    body(r"\ud83d"),
    body(rf"\ud83d\\{'udc00'}"),
    body(rf"\ud83dx{HALF}"),
    line(enqueued_at="2026-01-31T12:00:00Z\n"),
    line(enqueued_at="2026-01-31T12:00:00\n"),
    line(sequence="12\n"),
]


def test_each_line_is_one_message_or_a_problem(spark):
    log = spark.createDataFrame([(text,) for text in [*READ, *REFUSED, None]], "line string")

    found = normalise(log).collect()

    assert [row["message_id"] for row in found if not row["problem"]] == list(READ.values())
    assert [row["line"] for row in found if row["problem"]] == [*REFUSED, "null"]


class Priced(Message):
    amount: Decimal
    parts: tuple[Decimal, ...]


def test_decimals_of_structs_keep_their_digits(spark):
    number, price = "12345678901234567890.123456789012345678", Decimal("1.50")
    amount = Decimal(number)
    # Not of literals, which Spark's optimiser would put into each expression.
    row = ("a", "Priced", (amount, [amount, price]), (amount, [(amount,)]))
    large = "decimal(38,18)"
    schema = (
        f"message_id string, type string, body struct<amount: {large}, parts: array<{large}>>, "
        f"headers struct<total: {large}, all: array<struct<one: {large}>>>"
    )
    (found,) = normalise(spark.createDataFrame([row], schema)).collect()

    assert message_codec(Priced).decode(found["body"]) == Priced(amount=amount, parts=(amount, price))
    assert found["headers"] == {"total": number, "all": f'[{{"one":"{number}"}}]'}


def test_a_column_of_any_name_is_kept(spark):
    names = "message_id string, type string, body string, `x``y` int, `z.w` int"
    (row,) = normalise(spark.createDataFrame([("a", None, "{}", 1, 2)], names)).collect()

    assert json.loads(row["line"]) == {"message_id": "a", "body": "{}", "x`y": 1, "z.w": 2}


def test_a_source_with_a_colon_is_refused_as_ids_of_two_would_be_one(spark):
    log = spark.createDataFrame([(A,)], "line string")
    for source in ("a:b", ":", "a:"):
        with pytest.raises(UsageError, match="colon"):
            normalise(log, source)


LOWEST = "".join(map(chr, range(0x300)))
ODD = {
    "": "",
    " ": "\ufeff \ufffe \uffff \u2028 \u2029",
    "\0": "\x7f \U0001f600 \U0010ffff",
    '"quoted"': "'single' \\ \\\\ \\u0041 / </x>",
    "null": "null",
    LOWEST: LOWEST,
}
GIVEN = [ODD, {"one": "1"}, {}, None]
COLUMNS = "message_id string, type string, body string, sequence long, headers map<string,string>"


def test_headers_are_texts_of_any_characters_and_of_two_of_one_name_the_last(place):
    rows = [start(number, 5, headers=headers) for number, headers in enumerate(GIVEN)]
    twice = json.dumps(start(5, 5, headers={"a": "last"})).replace('{"a"', '{"a": "first", "a"')
    gone = {"here": "x", "gone": None}
    log = write_lines(place.folder / "log.jsonl", [*rows, start(4, 5, headers=gone), twice])

    found = normalise(open_log(place.spark, log).rows).orderBy("message_id").collect()

    assert [row["headers"] for row in found] == [*GIVEN, gone, {"a": "last"}]
    columns = normalise(place.spark.createDataFrame(rows, COLUMNS)).orderBy("message_id").collect()
    assert [row["headers"] for row in columns] == GIVEN
    (letter,) = dead_letters(place.run(log)).collect()
    assert (letter.message_id, "gone" in letter.error) == (message_id(4), True)


MOMENT = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
SPELLINGS = [
    "2026-01-31 12:00:00",
    "2026-01-31T12:00:00.000000",
    "2026-01-31T12:00:00Z",
    "2026-01-31T14:00:00+02:00",
    "2026-01-31T06:30:00-0530",
]


@pytest.fixture
def session_elsewhere(spark):
    spark.conf.set("spark.sql.session.timeZone", "Pacific/Auckland")
    yield spark
    spark.conf.set("spark.sql.session.timeZone", "UTC")


def test_times_that_name_no_zone_are_in_utc(session_elsewhere):
    spelled: list[tuple[list[Any], str]] = [
        (SPELLINGS, "string"),
        ([MOMENT.replace(tzinfo=None)], "timestamp_ntz"),
    ]
    for values, kind in spelled:
        rows = [(GAME, "FireAt", "{}", each) for each in values]
        schema = f"message_id string, type string, body string, enqueued_at {kind}"
        log = normalise(session_elsewhere.createDataFrame(rows, schema))
        found = [tuple(row) for row in log.selectExpr("problem", "unix_micros(enqueued_at)").collect()]
        assert found == [(None, int(MOMENT.timestamp() * 1_000_000))] * len(values)


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


rooms = App(Room)


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
    place.app = rooms
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

    ends = {row.message_id for row in outcomes.where("reason IS NULL").collect()}
    letters = [json.loads(row.delivery)["too_large"] for row in dead_letters(outcomes).collect()]
    assert {row.reason for row in dead_letters(outcomes).collect()} == {"too_large"}
    assert ends == {"m-1", "m-30"}
    assert len(letters) == len(rows) - 2
    assert all(len(letter["begins"]) <= 2048 for letter in letters)
    sizes = sorted(letter["bytes"] for letter in letters)
    assert (sizes[0] >= 2**16, sizes[-1] >= HUGE) == (True, True)
    # ... and what is too large is in a log of its own, as it was
    (kept,) = (place.folder / "large").iterdir()
    assert kept.name == ("night.jsonl" if form == "json" else "night.parquet")
    if form != "json":
        assert pq.read_table(kept).num_rows == len(rows) - 2
        return
    lines = b"".join(file.read_bytes() for file in kept.glob("part-*")).splitlines()
    assert {sha256(line).hexdigest() for line in lines} >= {
        letter["sha256"] for letter in letters if letter["part"] == "line"
    }
    found = {json.loads(line)["message_id"]: json.loads(line) for line in lines}
    assert found == {row["message_id"]: row for row in rows[1:-1]}


def test_a_refused_batch_leaves_what_another_one_kept(place):
    place.app, large = rooms, str(place.folder / "large")
    limits = MessageLimits(body=100)
    place.run(
        written(place.folder, "json", [said(1, "x" * 200)]), batch_id="night", keep_large=large, limits=limits
    )
    kept = {path: path.read_bytes() for path in Path(large).glob("*/*")}

    # When the id comes again with another log
    with pytest.raises(BatchRefusedError, match="was begun with other input"):
        place.run(
            written(place.folder, "json", [said(2, "y" * 200)]),
            batch_id="night",
            keep_large=large,
            limits=limits,
        )

    assert {path: path.read_bytes() for path in Path(large).glob("*/*")} == kept != {}


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
    place.app = rooms
    log = written(place.folder, "json", [said(1) | {"body": {"room": "hall", "answers": 3}}])

    with pytest.raises(BatchFailedError, match="--max-outputs"):
        place.run(log, batch_id="night", cascade=True, max_outputs=2, max_rounds=3)
    with pytest.raises(BatchFailedError, match="more than 11 for each"):
        place.run(log, batch_id="night", cascade=True, max_outputs=11, max_rounds=3)
    with pytest.raises(BatchFailedError, match="--max-rounds"):
        place.run(log, batch_id="night", cascade=True, max_outputs=39, max_rounds=3)


_HOSTILE = [
    "plain",
    "it's",
    'a "word"',
    "') OR ('1' = '1",
    "\\",
    "\\'",
    "\\d+\\z",
    "\\u0041 \\n \\% \\_ \\101",
    "${spark.app.name} and ${env:HOME} and $${x}",
    "$1-$2",
    "-- no comment /* nor this */",
    ":name ? {}",
    "line\nbreak\ttab \r",
    "größer 🎯",
]


def test_texts_are_what_they_were_on_a_session_that_reads_them_otherwise_too(spark):
    name = "spark.sql.parser.escapedStringLiterals"
    columns = [f"{text(value)} AS value_{number}" for number, value in enumerate(_HOSTILE)]
    assert list(spark.range(1).selectExpr(*columns).first()) == _HOSTILE
    with job_settings(spark):
        assert spark.conf.get(name, None) is None  # is left alone
    spark.conf.set(name, "true")
    try:
        with job_settings(spark):
            assert spark.range(1).selectExpr(f"array({texts(_HOSTILE)}) AS found").first().found == _HOSTILE
    finally:
        spark.conf.unset(name)
    assert (first_of([]), first_of([], "id")) == ("NULL", "id")

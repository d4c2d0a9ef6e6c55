"""One log with everything that can be wrong: each thing is a dead letter, and the rest is as if it were not there."""

from __future__ import annotations

import json

import pytest
from pydantic import StrictInt, field_validator

from handlers import App, Context, Handler, Message, State, handles
from runtime.spark import dead_letters
from samples.shooting_range.handlers import ShootingRange
from tests.support.logs import GAME, fire, message_id, row, start, write_lines
from tests.support.outcomes import statuses


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
def test_each_bad_delivery_has_its_reason_and_the_good_ones_their_effect(place, format_):
    place.app = app
    # Given a log of good messages among bad ones
    lines: list[dict[str, object] | str] = [*GOOD, *BAD]
    log = write_lines(place.folder / "log.jsonl", lines)
    expected = dict(BAD)
    if format_ == "parquet":
        # ... which in Parquet has only what fits its columns
        read = place.spark.read.schema(
            "message_id string, type string, body string, business_id string, sequence string, enqueued_at string, "
            "headers map<string,string>"
        ).json(log, mode="DROPMALFORMED")
        log = str(place.folder / "log.parquet")
        read.write.parquet(log)

    # When a batch runs
    outcomes = place.run(log)

    # Then every good message is processed
    found = statuses(outcomes)
    assert {key: found[message_id(key)] for key in (1, 3, 20)} == {
        1: ["processed"],
        3: ["processed"],
        20: ["processed"],
    }
    assert found[message_id(2)] == ["id_reused", "processed"]
    # ... and each of the others is a dead letter that keeps what was delivered
    letters = dead_letters(outcomes).collect()
    if format_ == "json":
        assert len(letters) == len(expected)
        reasons = {
            letter.delivery: letter.reason for letter in letters if letter.reason == "invalid_envelope"
        }
        assert reasons == {line: reason for line, reason in expected.items() if reason == "invalid_envelope"}
    assert all(letter.error and letter.delivery for letter in letters)
    by_id = {letter.message_id: letter.reason for letter in letters if letter.message_id}
    for line, reason in expected.items():
        if reason != "invalid_envelope":
            assert by_id[json.loads(line)["message_id"]] == reason, line


def test_a_bad_message_makes_no_version(place):
    from tests.support.outcomes import heads

    # Given a stream with one version
    place.app = app
    place.run(write_lines(place.folder / "1.jsonl", [row(1, "Add", {"key": 1, "amount": 4})]))
    before = heads(place.store, place.table)

    # When a batch of bad messages runs
    place.run(write_lines(place.folder / "2.jsonl", list(BAD)[8:-2]))

    # Then no stream has another version or state
    after = heads(place.store, place.table)
    assert {key: (versions, state) for key, (versions, state) in after.items() if versions} == before


@pytest.mark.thorough
def test_text_in_another_encoding_is_a_dead_letter_and_not_changed(place):
    # Given a log with lines in Latin-1, one of them a message whose id would become that of another
    good = [json.dumps(start(1, 5)).encode()]
    bad = [
        b"\xff\xfe garbage \xe9",
        json.dumps({**start(2, 5), "message_id": "m\u00e9"}, ensure_ascii=False).encode("latin-1"),
    ]
    (place.folder / "log.jsonl").write_bytes(b"\n".join([*good, *bad]))

    # When a batch runs
    outcomes = place.run(str(place.folder / "log.jsonl"))

    # Then they are dead letters, and the good message is processed
    assert sorted(statuses(outcomes)[message_id(1)]) == ["processed"]
    letters = dead_letters(outcomes).collect()
    assert [(letter.reason, letter.error) for letter in letters] == [
        ("invalid_envelope", "the line is not UTF-8")
    ] * 2


@pytest.mark.thorough
def test_columns_in_another_encoding_are_dead_letters_too(place):
    log = place.spark.sql(
        """
        select 'a' as message_id, 'FireAt' as type, '{}' as body, cast(null as map<string,string>) as headers
        union all select cast(X'6DE9' as string), 'FireAt', '{}', null
        union all select 'b', 'FireAt', cast(X'6DE9' as string), null
        union all select 'c', 'FireAt', '{}', map('k', cast(X'6DE9' as string))
        """
    )
    reasons = list(statuses(place.run(log)).values())
    assert sorted(reasons) == [["invalid_envelope"]] * 3 + [["no_business_id"]]

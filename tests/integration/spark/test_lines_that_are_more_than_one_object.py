"""Lines of a log and their neighbours: no line hides another message, or is read as what it is not."""

from __future__ import annotations

import json

import pytest

from runtime.errors import UsageError
from runtime.spark.logs.normalise import normalise

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
    lines = [*READ, *REFUSED]
    log = spark.createDataFrame([(text,) for text in lines], "line string")

    found = {row["line"] or row["message_id"]: row for row in normalise(log).collect()}

    assert {text for text, row in found.items() if row["problem"]} == set(REFUSED)
    assert found["a"]["message_id"] == "a"
    assert len(normalise(log).where("problem is null").collect()) == len(READ)


def test_a_column_of_any_name_is_kept(spark):
    log = spark.createDataFrame(
        [("a", None, "{}", 1, 2)], "message_id string, type string, body string, `x``y` int, `z.w` int"
    )

    (row,) = normalise(log).collect()

    assert json.loads(row["line"]) == {"message_id": "a", "body": "{}", "x`y": 1, "z.w": 2}


@pytest.mark.parametrize("source", ["a:b", ":", "a:"])
def test_a_source_with_a_colon_is_refused_as_ids_of_two_would_be_one(spark, source):
    log = spark.createDataFrame([(A,)], "line string")

    with pytest.raises(UsageError, match="colon"):
        normalise(log, source)

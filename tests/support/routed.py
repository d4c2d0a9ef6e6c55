"""Rows of a log as Spark routes them to a worker, without Spark."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from handlers import App
from runtime.spark.logs.normalise import FOLD_COLUMNS

LogRow = Mapping[str, Any]
"""A row of a log, with the columns that it has; `enqueued_at` in microseconds, `headers` as a mapping."""


def routed(app: App, rows: Iterable[LogRow], body: pa.DataType | None = None) -> list[pa.RecordBatch]:
    """Give rows of a log as a worker gets them, those of a stream together; `body` is the type of the column."""
    types = {"body": body, "sequence": pa.int64(), "enqueued_at": pa.timestamp("us", tz="UTC")}
    found = sorted((each for row in rows for each in _routed(app, row)), key=_stream)
    columns = {name: [row.get(name) for row in found] for name in FOLD_COLUMNS}
    given: list[pa.RecordBatch] = pa.table(
        {name: pa.array(column, types.get(name) or pa.string()) for name, column in columns.items()}
    ).to_batches()
    return given


def rows_of(handler: str, business_ids: Iterable[str], **columns: Iterable[Any]) -> list[pa.RecordBatch]:
    """Give rows of one handler as a worker gets them, from their columns as they are; the others hold nothing."""
    ids = list(business_ids)
    types = dict.fromkeys(FOLD_COLUMNS, pa.string()) | {
        "body": None, "sequence": pa.int64(), "enqueued_at": pa.timestamp("us", tz="UTC")
    }  # fmt: skip
    found: dict[str, Any] = dict.fromkeys(FOLD_COLUMNS, [None] * len(ids)) | columns
    found |= {"handler": [handler] * len(ids), "business_id": ids, "sequence": range(len(ids))}
    given: list[pa.RecordBatch] = pa.table(
        {name: pa.array(list(found[name]), types[name]) for name in FOLD_COLUMNS}
    ).to_batches()
    return given


def _stream(row: LogRow) -> tuple[str, str]:
    return row["handler"] or "", row["business_id"] or ""


def _routed(app: App, row: LogRow) -> Iterator[LogRow]:
    routes = {} if row.get("problem") else {route.handler: route for route in app.routes(row["type"])}
    wanted = None if row.get("problem") else row.get("handler")
    takers: list[str | None] = [wanted] if wanted is not None else [*routes] or [None]
    headers = row.get("headers")
    named, text = row.get("business_id"), json.dumps(headers) if headers else None
    for handler in takers:
        route = routes.get(handler or "")
        business_id = named or _read(route.wire_path, row["body"]) if route else None
        yield {**row, "handler": handler, "business_id": business_id or None, "given": named, "headers": text}


def _read(path: Iterable[str], body: str | bytes) -> str | None:
    if isinstance(body, bytes):
        return None
    try:
        found = json.loads(body)
        for name in path:
            found = found[name]
    except (ValueError, KeyError, TypeError):
        return None
    return None if found is None else str(found)

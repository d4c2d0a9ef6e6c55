"""Rows of a log as Spark routes them to a worker, without Spark."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa

from handlers import App
from runtime.spark.logs.normalise import FOLD_COLUMNS

LogRow = Mapping[str, Any]
"""A row of a log, with the columns that it has; `enqueued_at` in microseconds, `headers` as a mapping."""


_TYPES = {"sequence": pa.int64(), "enqueued_at": pa.timestamp("us", tz="UTC")}


def fold_schema(body: pa.DataType) -> pa.Schema:
    """Return the columns that a fold reads, with bodies of text or of bytes."""
    types = {**_TYPES, "body": body}
    return pa.schema([(name, types.get(name, pa.string())) for name in FOLD_COLUMNS])


def routed(app: App, rows: Iterable[LogRow], body: pa.DataType | None = None) -> list[pa.RecordBatch]:
    """Return rows of a log as a worker gets them, grouped by stream; `body` is the type of the column."""
    found = [each for row in rows for each in routes_of(app, row)]
    found.sort(key=lambda row: (row["handler"] or "", row["business_id"] or ""))
    given: list[pa.RecordBatch] = pa.Table.from_pylist(found, fold_schema(body or pa.string())).to_batches()
    return given


def rows_of(handler: str, business_ids: Iterable[str], **columns: Iterable[Any]) -> list[pa.RecordBatch]:
    """Return rows of one handler as a worker gets them, from their columns. Missing columns hold nulls."""
    ids = list(business_ids)
    found: dict[str, Any] = dict.fromkeys(FOLD_COLUMNS, [None] * len(ids)) | columns
    found |= {"handler": [handler] * len(ids), "business_id": ids, "sequence": range(len(ids))}
    body = pa.array(list(found["body"])).type
    arrays = [pa.array(list(found[field.name]), field.type) for field in fold_schema(body)]
    given: list[pa.RecordBatch] = pa.table(arrays, names=FOLD_COLUMNS).to_batches()
    return given


def routes_of(app: App, row: LogRow) -> Iterator[LogRow]:
    """Yield a row for each handler of a row, or one without a handler."""
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

"""Writing message logs to files without a Spark session: JSON lines, or one Parquet file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from runtime.spark.schemas import ARROW_OUTPUT

JSON_SUFFIXES = (".jsonl", ".json", ".ndjson")

_SCHEMA = pa.schema(
    [
        *(ARROW_OUTPUT.field(name) for name in ("message_id", "type", "body")),
        pa.field("business_id", pa.string()),
        *(ARROW_OUTPUT.field(name) for name in ("sequence", "enqueued_at", "headers")),
        pa.field("handler", pa.string()),
    ]
)
_ROWS_IN_A_GROUP = 131_072

LogRow = Mapping[str, Any]


def write_log(rows: Iterable[LogRow], path: Path) -> int:
    """Write messages to a file and return how many there were.

    The name says the format: JSON lines for `.jsonl`, `.json` and `.ndjson`, Parquet for all others. The file is there
    only when it is whole; one that was there is replaced. Columns that the first row lacks are left out of Parquet.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f"_{path.name}.unfinished")
    try:
        write = _write_json if path.suffix.lower() in JSON_SUFFIXES else _write_parquet
        count = write(iter(rows), unfinished)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _write_json(rows: Iterator[LogRow], path: Path) -> int:
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False, default=_text))
            file.write("\n")
            count += 1
    return count


def _write_parquet(rows: Iterator[LogRow], path: Path) -> int:
    group = list(islice(rows, _ROWS_IN_A_GROUP))
    names = group[0].keys() if group else set(_SCHEMA.names)
    schema = pa.schema([field for field in _SCHEMA if field.name in names])
    count = 0
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        while group:
            writer.write_table(pa.Table.from_pylist(group, schema))
            count += len(group)
            group = list(islice(rows, _ROWS_IN_A_GROUP))
    return count


def _text(value: object) -> str:
    if isinstance(value, datetime):
        return value.isoformat()
    raise TypeError(f"A message log holds no {type(value).__name__}.")

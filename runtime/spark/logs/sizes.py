"""The size of messages, looked at in the JVM: of what is too large only a note goes on, as `too_large` has it."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame
from pyspark.sql.types import BinaryType, DataType, MapType, StringType

from runtime.messages.limits import MessageLimits
from runtime.messages.too_large import KEPT, NOTE, sentence
from runtime.spark.logs.sql import first_of, text

EXCESS = "excess"
"""A column with what is too large of a row, null for all others."""

_NAMES = ("message_id", "type", "business_id", "sequence", "enqueued_at", "handler")

_PART, _CONTENT = "excess_part", "excess_content"
"""Columns with the name and the content of what is too large, which are not kept."""


def without_long_lines(log: DataFrame, limits: MessageLimits) -> DataFrame:
    """Take lines that are too large from a log of lines, and leave a note on them, first of all that is done.

    Each projection that such a line passed would keep a buffer of twice its size until the task ends.
    """
    return log.selectExpr(
        f"CASE WHEN octet_length(line) <= {limits.line} THEN line END AS line",
        f"CASE WHEN octet_length(line) > {limits.line} THEN {_measured(text('line'), 'line')} END AS {EXCESS}",
    )


def with_excess(log: DataFrame, types: Mapping[str, DataType], limits: MessageLimits) -> DataFrame:
    """Add what is too large of each row: a part of its envelope; and take from such a row what is large.

    `types` are those of the columns.
    """
    is_packed = isinstance(types["body"], BinaryType)
    names = [name for name in _NAMES if isinstance(types[name], StringType)]
    contents = {"body": "body", "headers": _headers(types["headers"])} | {name: name for name in names}
    most = dict.fromkeys(contents, limits.headers) | {"body": limits.body}
    # Measured is one part, whichever it is: the code that Spark writes for each would be most of a plan.
    part = first_of((f"octet_length({contents[each]}) > {most[each]}", text(each)) for each in contents)
    content = first_of(
        (f"{_PART} = {text(each)}", _as_bytes(contents[each], is_packed=is_packed)) for each in contents
    )
    found = f"CASE WHEN {_PART} IS NOT NULL THEN {_measured(_PART, _CONTENT, is_packed=is_packed)} END"
    measured = (
        log.selectExpr("*", f"{part} AS {_PART}")
        .selectExpr("*", f"{content} AS {_CONTENT}")
        .selectExpr(
            *(name for name in types if name != EXCESS),
            f"coalesce({EXCESS}, {found}) AS {EXCESS}" if EXCESS in types else f"{found} AS {EXCESS}",
        )
    )
    return measured.selectExpr(
        *(_fitting(name, names) for name in types), *([] if EXCESS in types else [EXCESS])
    )


def measured_row(limits: MessageLimits) -> str:
    """Return what is too large of a row that is kept as a line of JSON, null when nothing is."""
    return f"CASE WHEN octet_length(line) > {limits.line} THEN {_measured(text('row'), 'line')} END"


def too_large(limits: MessageLimits) -> str:
    """Return why a row is too large, null when it is not."""
    most = first_of(
        [
            (f"{EXCESS}.part IN ('line', 'row')", f"{limits.line}"),
            (f"{EXCESS}.part = 'body'", f"{limits.body}"),
        ],
        f"{limits.headers}",
    )
    form = text(sentence("%s", "%,d", "%,d"))
    return f"CASE WHEN {EXCESS} IS NOT NULL THEN format_string({form}, {EXCESS}.part, {EXCESS}.bytes, {most}) END"


def note() -> str:
    """Return what is kept of a row that is too large, null for all others."""
    return f"CASE WHEN {EXCESS} IS NOT NULL THEN to_json(named_struct({text(NOTE)}, {EXCESS})) END"


def _fitting(name: str, names: Collection[str]) -> str:
    """Return a column, without what is large of a row that is too large."""
    if name in ("body", "headers"):
        return f"CASE WHEN {EXCESS} IS NULL THEN {name} END AS {name}"
    if name in names:
        return f"CASE WHEN {EXCESS} IS NULL OR octet_length({name}) < {KEPT} THEN {name} END AS {name}"
    return name


def _measured(part: str, content: str, *, is_packed: bool = False) -> str:
    # So many characters first: all bytes of a text would be copied.
    first = f"substring(CAST(substring({content}, 1, {KEPT}) AS BINARY), 1, {KEPT})"
    begins = f"make_valid_utf8(CAST({first} AS STRING))"
    if is_packed:
        begins = f"CASE WHEN {part} = 'body' THEN lower(hex({first})) ELSE {begins} END"
    return (
        f"named_struct('part', {part}, 'bytes', octet_length({content}), 'sha256', sha2({content}, 256), "
        f"'begins', {begins})"
    )


def _as_bytes(content: str, *, is_packed: bool) -> str:
    """Return a part as bytes where the body is bytes: each part that may be measured is of one type."""
    return f"CAST({content} AS BINARY)" if is_packed else content


def _headers(found: DataType) -> str:
    """Return the bytes of the headers; of a column of another type, which is no log's, nothing."""
    if isinstance(found, MapType):
        return "concat(array_join(map_keys(headers), ''), array_join(map_values(headers), ''))"
    return "headers" if isinstance(found, StringType) else "CAST(NULL AS STRING)"

"""Message logs in one form, and rows of them that are no messages.

The form has the columns of a log (message_id, type, body, business_id, sequence, enqueued_at, headers, handler), plus
`problem`, the error of a row that is no message, and `line`, which keeps such a row as it was. No value is silently
turned into NULL.
"""

from __future__ import annotations

import secrets
from datetime import UTC, datetime

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import (
    BinaryType,
    ByteType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from runtime.clock import EARLIEST, to_microseconds
from runtime.errors import LogError, UsageError
from runtime.messages import message_ids
from runtime.messages.limits import USUAL, MessageLimits
from runtime.spark.logs.sizes import EXCESS, measured_row, note, too_large, with_excess, without_long_lines
from runtime.spark.schemas import OPTIONAL, REQUIRED

_JSON_OPTIONS = {
    "allowSingleQuotes": "false",
    "allowUnquotedFieldNames": "false",
    "allowNonNumericNumbers": "false",
}
_TIMES = {
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
    "timeZone": "UTC",
}
"""How times are written, to the microsecond."""

_FIELDS = ",".join(f"{name}:string" for name in (*REQUIRED, *OPTIONAL))
_NUMBER = r"^-?[0-9]{1,19}\z"
_TIME = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:?\d{2})?\z"
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = rf"{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW}"
"""Half of a character that JSON writes as two escapes; Spark would read any of them as the same question mark."""

_BACKSLASH = r"\\\\"
"""A backslash that JSON writes as two: none of them begins the escape of a character."""

_GIVEN = "as_given"
"""A column with a row as it was given, for those that are kept elsewhere."""

_ZONE = r"(Z|[+-]\d{2}:?\d{2})\z"
_LATEST = to_microseconds(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
_HEADERS = MapType(StringType(), StringType())


def normalise(log: DataFrame, source: str | None = None, limits: MessageLimits = USUAL) -> DataFrame:
    """Bring a log into the one form. Raises `LogError` for a column that is missing or of another type.

    Of a row that is too large only a note is left, with what names the message.
    """
    judged = _judge(log, source, limits)
    is_packed = isinstance(judged.schema["body"].dataType, BinaryType)
    return judged.select(
        _valid(sf.col("id")).alias("message_id"),
        _valid(sf.col("type")).alias("type"),
        sf.col("body") if is_packed else _valid(sf.col("body")).alias("body"),
        _valid(sf.col("business_id")).alias("business_id"),
        sf.col("number").alias("sequence"),
        _storable(sf.col("time")).alias("enqueued_at"),
        sf.when(sf.col("problem").isNull(), sf.col("map")).alias("headers"),
        _valid(sf.col("handler")).alias("handler"),
        sf.coalesce(too_large(limits), sf.col("problem")).alias("problem"),
        sf.coalesce(note(), _valid(sf.col("line"))).alias("line"),
    )


def large_rows(log: DataFrame, limits: MessageLimits) -> DataFrame:
    """Return the rows of a log that are too large, as they were given: lines, or the columns of the log."""
    if log.columns != ["line"]:
        return _large(log, limits).select(f"{_GIVEN}.*")
    # The largest of them are not parsed, nor copied more often than need be.
    is_long = sf.octet_length("line") > limits.line
    others = _large(log.where(~is_long), limits).select(sf.col(_GIVEN).alias("line"))
    return log.where(is_long).union(others)


def _large(log: DataFrame, limits: MessageLimits) -> DataFrame:
    return _judge(log, None, limits).where(sf.col(EXCESS).isNotNull())


def _judge(log: DataFrame, source: str | None, limits: MessageLimits) -> DataFrame:
    """Add to each row what is read of it, and what is wrong with it; of one that is too large a note is left."""
    given = _parse_lines(log, limits) if log.columns == ["line"] else _check_columns(log)
    parsed = with_excess(given, limits)
    # What takes long and is used twice is a column of its own, or Spark would compute it for each use.
    read = parsed.select(
        "*",
        _message_id(source).alias("id"),
        _number(parsed.schema["sequence"].dataType).alias("number"),
        _time(parsed.schema["enqueued_at"].dataType).alias("time"),
        _map(parsed.schema["headers"].dataType).alias("map"),
    )
    return _with_line(read.select("*", sf.coalesce(*_checks(parsed, limits)).alias("problem")), limits)


def _with_line(checked: DataFrame, limits: MessageLimits) -> DataFrame:
    """Keep the line of a row that is no message, or a note on it when it is too large; and of no other row."""
    is_kept = sf.col("problem").isNotNull() & sf.col(EXCESS).isNull()
    kept = checked.withColumn("line", sf.when(is_kept, sf.col("line")))
    return kept.withColumn(EXCESS, sf.coalesce(sf.col(EXCESS), measured_row(limits)))


def _message_id(source: str | None) -> Column:
    message_id = canonical(sf.col("message_id"))
    if not source:
        return message_id
    check_source(source)
    # What was a dead letter of this log has the name before its id already.
    named = sf.concat(sf.lit(f"{source}:"), message_id)
    return sf.when(message_id.startswith(f"{source}:"), message_id).otherwise(named)


def check_source(source: str) -> None:
    """Raise `UsageError` for a name with a colon: `b:x` from `a` and `x` from `a:b` would be one message."""
    if ":" in source:
        message = (
            f"--source {source} holds a colon, which ends the name in an id: use another sign. Ids that a table has "
            f"from such a source are recognised when the log gives them whole, and no --source."
        )
        raise UsageError(message)


def _checks(parsed: DataFrame, limits: MessageLimits) -> list[Column]:
    """Return what is wrong with a row, in the order of what is told first, each null when it is not so."""
    is_text = isinstance(parsed.schema["enqueued_at"].dataType, StringType)
    untimely = "is no time like 2026-01-31T12:00:00Z" if is_text else "is not within the years 1601 to 9999"
    return [
        too_large(limits),
        *_unreadable(parsed),
        _required("message_id"),
        sf.when(
            sf.length("message_id") > message_ids.MAX_LENGTH,
            sf.lit("message_id has more than 255 characters"),
        ),
        _required("type"),
        sf.when(sf.col("body").isNull(), sf.lit("body is missing")),
        _lost("sequence", sf.col("number"), "is no 64-bit integer"),
        _lost("enqueued_at", _storable(sf.col("time")), untimely),
        _lost("headers", sf.col("map"), "is no object of texts"),
    ]


def canonical(column: Column) -> Column:
    """Return a column in which a UUID in any spelling is in small letters with hyphens."""
    pattern = message_ids.UUID_PATTERN + r"\z"
    spelled = sf.lower(sf.regexp_replace(column, pattern, "$1-$2-$3-$4-$5"))
    # Most ids are canonical already, which the simpler pattern tells in a fraction of the time.
    done = column.isNull() | column.rlike(message_ids.CANONICAL_PATTERN + r"\z")
    return sf.when(done, column).when(column.rlike(pattern), spelled).otherwise(column)


def _unreadable(log: DataFrame) -> list[Column]:
    """Return checks for what cannot be read; bytes in another encoding would be changed on their way, or stop Spark."""
    if "unparsed" in log.columns:
        return [
            sf.when(~sf.is_valid_utf8("line"), sf.lit("the line is not UTF-8")),
            sf.when(sf.col("unparsed"), sf.lit("the line is not one JSON object")),
            sf.when(_has_half("line"), sf.lit("the line has half a character, an unpaired surrogate")),
        ]
    texts = [field.name for field in log.schema if isinstance(field.dataType, StringType)]
    checks = [
        sf.when(~sf.is_valid_utf8(name), sf.lit(f"{name} is not UTF-8"))
        for name in texts
        if name not in ("line", _GIVEN)
    ]
    if isinstance(log.schema["headers"].dataType, MapType):
        joined = sf.concat(
            sf.array_join(sf.map_keys("headers"), ""), sf.array_join(sf.map_values("headers"), "")
        )
        checks.append(sf.when(~sf.is_valid_utf8(joined), sf.lit("headers are not UTF-8")))
    return checks


def _has_half(name: str) -> Column:
    # Few lines have such an escape at all, and looking for a fixed text costs next to nothing.
    escapes = sf.contains(name, sf.lit(r"\ud")) | sf.contains(name, sf.lit(r"\uD"))
    return escapes & sf.regexp_replace(name, _BACKSLASH, "/").rlike(_HALF)


def _valid(text: Column) -> Column:
    return sf.make_valid_utf8(text)


def _parse_lines(log: DataFrame, limits: MessageLimits) -> DataFrame:
    # `from_json` stops after the first value. With the line inside an array, whatever else stands on it keeps the
    # parser from reaching the item that follows, or is an item too; and no line can foresee what marks the last one.
    end = f"line_ends_{secrets.token_hex(8)}"
    wrapped = sf.concat(sf.lit("["), sf.col("line"), sf.lit(f'\n,{{"{end}":true}}]'))
    schema = f"array<struct<{_FIELDS},{end}:boolean>>"
    items = sf.from_json(wrapped, schema, _JSON_OPTIONS)
    parsed = without_long_lines(log, limits).select("*", items.alias("items"))
    is_one = (sf.size("items") == 2) & sf.col("items")[1][end]  # noqa: PLR2004 - the line, and the mark
    envelope = sf.when(is_one, sf.col("items")[0].dropFields(end))
    return parsed.select("line", EXCESS, envelope.alias("envelope")).select(
        "envelope.*",
        "line",
        EXCESS,
        sf.col("line").alias(_GIVEN),
        sf.col("envelope").isNull().alias("unparsed"),
    )


def _check_columns(log: DataFrame) -> DataFrame:
    missing = [name for name in REQUIRED if name not in log.columns]
    if missing:
        has = ", ".join(log.columns) or "none"
        message = f"The log lacks the column {', '.join(missing)}. A log has {', '.join(REQUIRED)}; this one: {has}."
        raise LogError(message)
    # A column of a table in memory that holds nothing has no type.
    log = log.drop(
        *[name for name in OPTIONAL if name in log.columns and log.schema[name].dataType == NullType()]
    )
    for name in ("message_id", "type", "business_id", "handler"):
        if name in log.columns:
            _check_type(log, name, (StringType,), "text")
    for name in ("body", "headers"):
        if name in log.columns and isinstance(log.schema[name].dataType, StructType):
            log = log.withColumn(name, sf.to_json(name, _TIMES))  # without fields that are null
    _check_type(log, "body", (StringType, BinaryType), "JSON text (of a map: to_json(body)) or msgpack bytes")
    if isinstance(log.schema["body"].dataType, BinaryType) and "business_id" not in log.columns:
        message = "The log has bodies of msgpack bytes: it needs a column business_id, as Spark does not read those."
        raise LogError(message)
    given = [
        sf.col(name) if name in log.columns else sf.lit(None).cast("string").alias(name) for name in OPTIONAL
    ]
    whole = sf.struct(*(sf.col(_quoted(name)) for name in log.columns))
    return log.select(*REQUIRED, *given, _line(log).alias("line"), whole.alias(_GIVEN))


def _line(log: DataFrame) -> Column:
    """Return rows as JSON lines, from which they can be read as they were; a msgpack body in hexadecimal digits."""
    columns = {name: sf.col(_quoted(name)) for name in log.columns}
    if isinstance(log.schema["body"].dataType, BinaryType):
        columns["body"] = sf.lower(sf.hex("body"))
    return sf.to_json(sf.struct(*(column.alias(name) for name, column in columns.items())), _TIMES)


def _quoted(name: str) -> str:
    """Return the name of a column as Spark reads it, whatever it holds."""
    return "`" + name.replace("`", "``") + "`"


def _check_type(log: DataFrame, name: str, allowed: tuple[type[DataType], ...], expected: str) -> None:
    found = log.schema[name].dataType
    if not isinstance(found, allowed):
        message = f"The column {name} of the log is of type {found.simpleString()}; {expected} is expected."
        raise LogError(message)


def _required(name: str) -> Column:
    return sf.when(sf.coalesce(sf.col(name), sf.lit("")) == "", sf.lit(f"{name} is missing"))


def _number(found: DataType) -> Column:
    """Return sequence as a number, null where it is none."""
    column = sf.col("sequence")
    if isinstance(found, LongType | IntegerType | ShortType | ByteType):
        return column.cast("long")
    if not isinstance(found, StringType):
        message = (
            f"The column sequence of the log is of type {found.simpleString()}; a 64-bit integer is expected."
        )
        raise LogError(message)
    return sf.when(column.rlike(_NUMBER), column.try_cast("long"))


def _time(found: DataType) -> Column:
    """Return enqueued_at as a time, null where it is none; it may be one that cannot be stored."""
    column = sf.col("enqueued_at")
    if isinstance(found, TimestampType):
        return column
    if isinstance(found, TimestampNTZType):
        return _in_utc(column.cast("string")).try_cast(TimestampType())
    if not isinstance(found, StringType):
        message = (
            f"The column enqueued_at of the log is of type {found.simpleString()}; a timestamp is expected."
        )
        raise LogError(message)
    return sf.when(column.rlike(_TIME), _in_utc(column).try_cast(TimestampType()))


def _storable(column: Column) -> Column:
    """Return times that a store and a calendar can hold, null for others."""
    micros = sf.unix_micros(column)
    return sf.when((micros >= EARLIEST) & (micros <= _LATEST), column)


def _in_utc(column: Column) -> Column:
    """Return times as text with a zone, whatever the session's own is: UTC where they name none."""
    return sf.when(column.rlike(_ZONE), column).otherwise(sf.concat(column, sf.lit("Z")))


def _map(found: DataType) -> Column:
    """Return headers as a map, null where they are none."""
    column = sf.col("headers")
    if found.simpleString() == _HEADERS.simpleString():
        return column
    if not isinstance(found, StringType):
        message = f"The column headers of the log is of type {found.simpleString()}; map<string,string> is expected."
        raise LogError(message)
    return sf.from_json(column, _HEADERS, _JSON_OPTIONS)


def _lost(name: str, value: Column, problem: str) -> Column:
    given = sf.col(name)
    return sf.when(
        given.isNotNull() & value.isNull(), sf.concat(sf.lit(f"{name} {problem}: "), given.cast("string"))
    )

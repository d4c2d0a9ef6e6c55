"""Normalise message logs in the JVM, and route messages to the streams of handlers.

A normalised log has the columns of a log plus `problem`, the error of an invalid row, and `line`, its original content.
No value silently becomes NULL. Only a note of a large value reaches Python workers, see `runtime.messages.sizes`.

Each message gets a row for each of its routes, or for the handler named in the log. The rows of a stream are shuffled
to one partition and sorted, with copies of a message adjacent, at the smallest position of any copy.
"""

# For speed, headers are sent as JSON text, because a map costs the JVM more than all other columns together. Business
# ids are read by a regular expression, in a third of the time of Spark's JSON parser. It only matches a whole JSON
# object that has each field on the path once, and a text without escapes as business id; the parser reads the rest.
# Expressions are SQL text, which needs one call into Java instead of several for each part of a column.

import json
import re
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql import types as st
from pyspark.sql.types import BinaryType, DataType, MapType, StringType, StructType

from handlers import App
from handlers.app import KeyKind, Route
from runtime.clock import EARLIEST, to_microseconds
from runtime.errors import LogError, UsageError
from runtime.messages import envelope
from runtime.messages.sizes import KEPT, NOTE, USUAL, MessageLimits, sentence

REQUIRED = ("message_id", "type", "body")
OPTIONAL = ("business_id", "sequence", "enqueued_at", "headers", "handler")
UNREAD = "_unread"  # a column of a broker's records: why one is no message

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

_NUMBER = r"^-?[0-9]{1,19}\z"
_TIME = r"^\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:?\d{2})?\z"
_HIGH, _LOW = r"\\u[dD][89abAB][0-9a-fA-F]{2}", r"\\u[dD][c-fC-F][0-9a-fA-F]{2}"
_HALF = rf"{_HIGH}(?!{_LOW})|(?<!{_HIGH}){_LOW}"
"""An unpaired surrogate, which Spark would replace by a question mark."""

_GIVEN = "as_given"  # a column with the original row
_LATEST = to_microseconds(datetime(9999, 12, 31, 23, 59, 59, tzinfo=UTC))
_STORABLE = (
    f"CASE WHEN unix_micros(instant) >= {EARLIEST} AND unix_micros(instant) <= {_LATEST} THEN instant END"
)
"""A timestamp, or null if it is outside the range of stores or of the calendar."""
_Types = Mapping[str, DataType]
_EXPECTED = {
    **dict.fromkeys(("message_id", "type", "business_id", "handler"), ("text", "string")),
    "body": ("JSON text (of a map: to_json(body)) or msgpack bytes", "string", "binary"),
    "sequence": ("a 64-bit integer", "string", "bigint", "int", "smallint", "tinyint", "decimal(20,0)"),
    "enqueued_at": ("a timestamp", "string", "timestamp", "timestamp_ntz"),
    "headers": ("map<string,string>", "string", "map<string,string>"),
}
"""For each column, a description of the allowed types, and the types."""

_EXCESS = "excess"  # a column with the note of a large row, otherwise null
_JOINED_HEADERS = "concat(array_join(map_keys(headers), ''), array_join(map_values(headers), ''))"
_PART, _CONTENT = "excess_part", "excess_content"


def normalise(log: DataFrame, source: str | None = None, limits: MessageLimits = USUAL) -> DataFrame:
    """Return the envelopes of a log. `source`: a prefix for message ids.

    An invalid row has a `problem`, and its original content as `line`. A row beyond `limits` is invalid, with a note of
    its size and beginning as `line`. Raises `LogError` for missing columns or wrong types.
    """
    judged, types = _judge(log, source, limits)
    is_packed = isinstance(types["body"], BinaryType)
    note = f"CASE WHEN {_EXCESS} IS NOT NULL THEN to_json(named_struct({text(NOTE)}, {_EXCESS})) END"
    most = first_of(
        [
            (f"{_EXCESS}.part IN ('line', 'row')", f"{limits.line}"),
            (f"{_EXCESS}.part = 'body'", f"{limits.body}"),
        ],
        f"{limits.headers}",
    )
    values = f"{text(sentence('%s', '%,d', '%,d'))}, {_EXCESS}.part, {_EXCESS}.bytes, {most}"
    too_large = f"CASE WHEN {_EXCESS} IS NOT NULL THEN format_string({values}) END"
    return judged.selectExpr(
        "make_valid_utf8(id) AS message_id",
        "make_valid_utf8(type) AS type",
        "body" if is_packed else "make_valid_utf8(body) AS body",
        "make_valid_utf8(business_id) AS business_id",
        "number AS sequence",
        f"{_STORABLE} AS enqueued_at",
        "CASE WHEN problem IS NULL THEN entries END AS headers",
        "make_valid_utf8(handler) AS handler",
        f"coalesce({too_large}, problem) AS problem",
        f"coalesce({note}, CASE WHEN problem IS NOT NULL THEN make_valid_utf8(line) END) AS line",
    )


def keep_large(log: DataFrame, limits: MessageLimits, folder: str, name: str) -> str | None:
    """Write rows beyond `limits`, if any, to `folder/name.SUFFIX` in the log's format. Return the path or `None`."""

    def large(rows: DataFrame) -> DataFrame:
        return _judge(rows, None, limits)[0].where(f"{_EXCESS} IS NOT NULL")

    is_lines = log.columns == ["line"]
    if is_lines:
        is_long = sf.octet_length("line") > limits.line  # such lines are not parsed
        others = large(log.where(~is_long)).select(sf.col(_GIVEN).alias("line"))
        found = log.where(is_long).union(others)
    else:
        found = large(log).select(f"{_GIVEN}.*")
    if found.isEmpty():
        return None
    path = f"{folder}/{name}.{'jsonl' if is_lines else 'parquet'}"
    found.write.mode("overwrite").format("text" if is_lines else "parquet").save(path)
    return path


def _judge(log: DataFrame, source: str | None, limits: MessageLimits) -> tuple[DataFrame, _Types]:
    """Add to each row its parsed values, its problem, and a note if a value is large. Also return the column types."""
    given = _parse_lines(log, limits) if log.columns == ["line"] else _check_columns(log)
    types = {field.name: field.dataType for field in given.schema}
    parsed, message_id = _with_excess(given, types, limits), canonical("message_id")
    if source:
        check_source(source)
        prefix = text(f"{source}:")
        has_prefix = f"startswith({message_id}, {prefix})"  # for example a dead letter of this log
        message_id = first_of([(has_prefix, message_id)], f"concat({prefix}, {message_id})")
    number, headers = "try_cast(sequence AS BIGINT)", sf.col("headers")  # an unsigned column is a decimal
    if isinstance(types["sequence"], StringType):
        number = f"CASE WHEN sequence RLIKE {text(_NUMBER)} THEN {number} END"
    if not isinstance(types["headers"], MapType):
        headers = sf.from_json(headers, "map<string,string>", _JSON_OPTIONS)
    # In a projection of their own, so that Spark computes them once, not for each use.
    read = parsed.select(
        "*",
        sf.expr(f"{message_id} AS id"),
        sf.expr(f"{number} AS number"),
        sf.expr(f"{_time(types['enqueued_at'])} AS instant"),
        headers.alias("entries"),
    )
    checked = read.selectExpr("*", f"{first_of(_checks(types))} AS problem")
    if "line" not in types:
        # Only for rows that need it: writing each row would take longer than reading it.
        is_kept = sf.expr(f"problem IS NOT NULL AND {_EXCESS} IS NULL")
        whole: Any = types[_GIVEN]
        columns = {name: sf.col(f"{_GIVEN}.{_quoted(name)}") for name in whole.names}
        if isinstance(types["body"], BinaryType):
            columns["body"] = sf.lower(sf.hex(columns["body"]))
        line = sf.to_json(sf.struct(*(column.alias(name) for name, column in columns.items())), _TIMES)
        checked = checked.withColumn("line", sf.when(is_kept, line))
    is_long = f"problem IS NOT NULL AND octet_length(line) > {limits.line}"
    excess = first_of([(f"{_EXCESS} IS NOT NULL", _EXCESS), (is_long, _measured(text("row"), "line"))])
    return checked.withColumn(_EXCESS, sf.expr(excess)), types


def check_source(source: str) -> None:
    """Raise `UsageError` for a source with a colon: the id `a:b:x` could be `a` + `b:x` or `a:b` + `x`."""
    if ":" in source:
        raise UsageError(
            f"--source {source} has a colon, which separates it from the message id: use another character. For ids "
            "that a table already has from such a source, use a log with the complete ids and no --source."
        )


def _checks(types: _Types) -> Sequence[tuple[str, str]]:
    is_text = isinstance(types["enqueued_at"], StringType)
    untimely = "is not a time like 2026-01-31T12:00:00Z" if is_text else "is outside the years 1601 to 9999"

    def missing(name: str) -> tuple[str, str]:
        return f"coalesce({name}, '') = ''", text(f"{name} is missing")

    def lost(name: str, value: str, problem: str) -> tuple[str, str]:
        is_lost = f"{name} IS NOT NULL AND ({value}) IS NULL"
        return is_lost, f"concat({text(f'{name} {problem}: ')}, CAST({name} AS STRING))"

    is_of_broker = UNREAD in getattr(types[_GIVEN], "names", ())
    return [
        *_unreadable(types),
        *[(f"{_GIVEN}.{UNREAD} IS NOT NULL", f"{_GIVEN}.{UNREAD}")] * is_of_broker,
        missing("message_id"),
        (f"length(message_id) > {envelope.MAX_LENGTH}", text("message_id has more than 255 characters")),
        missing("type"),
        ("body IS NULL", text("body is missing")),
        lost("sequence", "number", "is not a 64-bit integer"),
        lost("enqueued_at", _STORABLE, untimely),
        lost("headers", "entries", "is not an object of strings"),
    ]


def canonical(name: str) -> str:
    """Return an SQL expression for a column, in which UUIDs of any spelling become lower case with hyphens."""
    pattern = text(envelope.UUID_PATTERN + r"\z")
    spelled = f"lower(regexp_replace({name}, {pattern}, '$1-$2-$3-$4-$5'))"
    # Most ids are canonical. Checking length and two hyphens detects that in a third of the time of a pattern.
    hyphens = " AND ".join(f"substring({name}, {place}, 1) = '-'" for place in (9, 24))
    done = f"{name} IS NULL OR (octet_length({name}) = 36 AND {hyphens} AND {name} = lower({name}))"
    return first_of([(done, name), (f"{name} RLIKE {pattern}", spelled)], name)


def _unreadable(types: _Types) -> Sequence[tuple[str, str]]:
    """Return SQL conditions of unreadable rows, each with an SQL expression of the problem, such as invalid UTF-8."""
    if "unparsed" in types:
        # Searching a fixed text is fast, and few lines contain such an escape. An escaped backslash begins no escape.
        escapes = " OR ".join(rf"contains(line, {text(start)})" for start in (r"\ud", r"\uD"))
        backslash = text(r"\\\\")
        half = f"regexp_replace(line, {backslash}, '/') RLIKE {text(_HALF)}"
        return [
            ("NOT is_valid_utf8(line)", text("the line is not UTF-8")),
            ("unparsed", text("the line is not one JSON object")),
            (f"({escapes}) AND {half}", text("the line has an unpaired surrogate")),
        ]
    texts = [name for name, found in types.items() if isinstance(found, StringType) and name != "line"]
    checks = [(f"NOT is_valid_utf8({name})", text(f"{name} is not UTF-8")) for name in texts]
    if isinstance(types["headers"], MapType):
        checks.append((f"NOT is_valid_utf8({_JOINED_HEADERS})", text("headers are not UTF-8")))
    return checks


def _parse_lines(log: DataFrame, limits: MessageLimits) -> DataFrame:
    # `from_json` ignores anything after the first value. So wrap the line in an array with a random last item: a second
    # value on the line becomes an extra item, or prevents the last item from being parsed.
    end = f"line_ends_{secrets.token_hex(8)}"
    mark = text(f'\n,{{"{end}":true}}]')
    wrapped = sf.expr(f"concat('[', line, {mark})")
    names = (*REQUIRED, *OPTIONAL)
    schema = f"array<struct<{','.join(f'{name}:string' for name in names)},{end}:boolean>>"
    items = sf.from_json(wrapped, schema, _JSON_OPTIONS)
    found = log.schema["line"].dataType
    if found != StringType():
        raise LogError(
            f"The column line of the log is of type {found.simpleString()}; use cast(line as string)."
        )
    # A null line becomes the JSON null. Large lines are removed first: each projection they passed through would keep a
    # buffer of twice their size until the task ends.
    given = log.select(sf.coalesce("line", sf.lit("null")).alias("line")).selectExpr(
        f"CASE WHEN octet_length(line) <= {limits.line} THEN line END AS line",
        f"CASE WHEN octet_length(line) > {limits.line} THEN {_measured(text('line'), 'line')} END AS {_EXCESS}",
    )
    envelope = f"CASE WHEN size(items) = 2 AND items[1].{end} THEN items[0] END AS envelope"
    parsed = given.select("*", items.alias("items")).selectExpr("line", _EXCESS, envelope)
    fields = [f"envelope.{name}" for name in names]
    return parsed.selectExpr(*fields, "line", _EXCESS, f"line AS {_GIVEN}", "envelope IS NULL AS unparsed")


def lacks(where: str, missing: Collection[str], names: Iterable[str]) -> LogError:
    """Return the error for a log without some required columns. `where`: its path, or empty. `names`: its columns."""
    at, lacking = f" at {where}" if where else "", ", ".join(name for name in REQUIRED if name in missing)
    has = ", ".join(names) or "none"
    return LogError(
        f"The log{at} lacks the column {lacking}. A log has {', '.join(REQUIRED)}; this one: {has}."
    )


def _check_columns(log: DataFrame) -> DataFrame:
    missing = [name for name in REQUIRED if name not in log.columns]
    if missing:
        raise lacks("", missing, log.columns)
    for name, count in Counter(map(str.lower, log.columns)).items():
        if count > 1:
            raise LogError(f"The log has two columns {name} when Spark ignores case: remove one of them.")
    # An empty column of a table in memory has no type.
    log = log.drop(
        *[name for name in OPTIONAL if name in log.columns and log.schema[name].dataType == st.NullType()]
    )
    for name in ("body", "headers"):
        if name in log.columns and isinstance(kind := log.schema[name].dataType, StructType):
            column = sf.col(name)
            if name == "headers":  # read as text later, by a parser that turns numbers into floats
                decimal = r'"(type|elementType|valueType)":"decimal\(\d+,\d+\)"'
                as_text = re.sub(decimal, r'"\1":"string"', kind.json())
                column = column.cast(StructType.fromJson(json.loads(as_text)))
            log = log.withColumn(name, sf.to_json(column, _TIMES))  # without fields that are null
    for name, (expected, *allowed) in _EXPECTED.items():
        found = log.schema[name].dataType.simpleString() if name in log.columns else "string"
        if found.partition(" ")[0] not in allowed:  # a collation may follow
            raise LogError(f"The column {name} of the log is of type {found}; {expected} is expected.")
    if isinstance(log.schema["body"].dataType, BinaryType) and "business_id" not in log.columns:
        raise LogError(
            "The log has binary bodies (msgpack), which Spark does not read, so it needs a column business_id. If they "
            "are JSON, cast them: .withColumn('body', sf.col('body').cast('string'))."
        )
    given = [
        sf.col(name) if name in log.columns else sf.expr(f"CAST(NULL AS STRING) AS {name}")
        for name in OPTIONAL
    ]
    whole = sf.struct(*(sf.col(_quoted(name)) for name in log.columns))
    return log.select(*REQUIRED, *given, whole.alias(_GIVEN))


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"


def _time(found: DataType) -> str:
    """Return an SQL expression for enqueued_at: a timestamp, perhaps out of range, or null for an invalid value."""
    if isinstance(found, st.TimestampType):
        return "enqueued_at"
    is_text = isinstance(found, StringType)
    written = "enqueued_at" if is_text else "CAST(enqueued_at AS STRING)"
    # Times without a zone are UTC, whatever the zone of the session.
    zone = text(r"(Z|[+-]\d{2}:?\d{2})\z")
    zoned = first_of([(f"{written} RLIKE {zone}", written)], f"concat({written}, 'Z')")
    time = f"try_cast({zoned} AS TIMESTAMP_LTZ)"
    return f"CASE WHEN enqueued_at RLIKE {text(_TIME)} THEN {time} END" if is_text else time


def _with_excess(log: DataFrame, types: _Types, limits: MessageLimits) -> DataFrame:
    """Replace values that are too large with null. The column `excess` has a note of one such value."""
    is_packed = isinstance(types["body"], BinaryType)
    named = ("message_id", "type", "business_id", "sequence", "enqueued_at", "handler")
    names = [name for name in named if isinstance(types[name], StringType)]
    headers = _JOINED_HEADERS if isinstance(types["headers"], MapType) else "headers"
    contents = {"body": "body", "headers": headers} | {name: name for name in names}
    most = dict.fromkeys(contents, limits.headers) | {"body": limits.body}
    # One column for all parts: the generated code for each of them would be most of the plan.
    part = first_of((f"octet_length({contents[each]}) > {most[each]}", text(each)) for each in contents)
    as_one_type = "CAST({} AS BINARY)" if is_packed else "{}"
    content = first_of((f"{_PART} = {text(each)}", as_one_type.format(contents[each])) for each in contents)
    found = f"CASE WHEN {_PART} IS NOT NULL THEN {_measured(_PART, _CONTENT, is_packed=is_packed)} END"
    before = f"coalesce({_EXCESS}, {found})" if _EXCESS in types else found
    kept = [name for name in types if name != _EXCESS]
    measured = (
        log.selectExpr("*", f"{part} AS {_PART}")
        .selectExpr("*", f"{content} AS {_CONTENT}")
        .selectExpr(*kept, f"{before} AS {_EXCESS}")
    )
    fitting = {name: f"{_EXCESS} IS NULL OR octet_length({name}) < {KEPT}" for name in names}
    fitting |= dict.fromkeys(("body", "headers"), f"{_EXCESS} IS NULL")
    columns = (
        f"CASE WHEN {fitting[name]} THEN {name} END AS {name}" if name in fitting else name for name in kept
    )
    return measured.selectExpr(*columns, _EXCESS)


def _measured(part: str, content: str, *, is_packed: bool = False) -> str:
    # Cut characters before bytes, or the whole text would be copied.
    first = f"substring(CAST(substring({content}, 1, {KEPT}) AS BINARY), 1, {KEPT})"
    begins = f"make_valid_utf8(CAST({first} AS STRING))"
    if is_packed:
        begins = f"CASE WHEN {part} = 'body' THEN lower(hex({first})) ELSE {begins} END"
    return (
        f"named_struct('part', {part}, 'bytes', octet_length({content}), 'sha256', sha2({content}, 256), "
        f"'begins', {begins})"
    )


def text(value: str) -> str:
    # Spark substitutes settings for `${name}`, even in literals.
    escaped = value.replace("\\", r"\\").replace("'", r"\'").replace("${", r"\u0024{")
    return f"'{escaped}'"


def texts(values: Iterable[str]) -> str:
    return ", ".join(map(text, values))


def first_of(cases: Iterable[tuple[str, str]], otherwise: str | None = None) -> str:
    """Return a flat SQL CASE: the value of the first condition that holds, else `otherwise`, else null."""
    branches = " ".join(f"WHEN {condition} THEN {value}" for condition, value in cases)
    if not branches:
        return otherwise or "NULL"
    return f"CASE {branches} END" if otherwise is None else f"CASE {branches} ELSE {otherwise} END"


_Routes = Mapping[str, Sequence[Route]]  # by message type
_STREAM = ("handler", "business_id", "spread")
SHARES = 1_000_000

# One SQL text needs few calls into Java. The window partitions by the columns of the shuffle and one more, so it needs
# no shuffle of its own. Business ids come first, because Spark compares eight bytes of the first column without reading
# the row, and handlers hardly differ.
_GROUPED = """
SELECT {columns} FROM (
    SELECT *, first(sequence) OVER copies AS position, first(enqueued_at) OVER copies AS position_time
    FROM (SELECT /*+ REPARTITION({partitions}, {stream}) */ * FROM {{routed}})
    WINDOW copies AS (
        PARTITION BY business_id, message_id, handler, spread ORDER BY sequence NULLS LAST, enqueued_at NULLS LAST
        ROWS BETWEEN UNBOUNDED PRECEDING AND UNBOUNDED FOLLOWING
    )
    SORT BY
        business_id, handler, spread, position NULLS LAST, position_time NULLS LAST,
        message_id, sequence NULLS LAST, enqueued_at NULLS LAST, type, body, headers, given
)
"""


FOLD_COLUMNS = (
    *("handler", "business_id", "message_id", "type", "body", "sequence", "enqueued_at"),
    *("headers", "given", "problem", "line"),
)
"""The columns that the fold reads, in this order. `headers` are JSON text.

`business_id` is the one by which a delivery is routed, `given` the one named in the log.
"""

FieldPath = tuple[str, ...]  # the field names from the body to the business id
_BODY_OPTIONS = {"allowSingleQuotes": "false", "allowUnquotedFieldNames": "false", "maxNumLen": "1000000000"}

# Possessive quantifiers, because others overflow Java's stack on long bodies.
_BLANK = r"[ \t\r\n]*+"
_CHARACTER = r'[^"\\\x00-\x1f]'
_NAME = rf'"{_CHARACTER}{{0,99}}+"'
_ESCAPE = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_TEXT_IN_JSON = rf'"{_CHARACTER}{{0,9999}}+(?:{_ESCAPE}{_CHARACTER}{{0,9999}}+){{0,999}}+"'
_NUMBER_IN_JSON = r"-?+(?:0|[1-9][0-9]{0,17}+)(?:\.[0-9]{1,17}+)?+(?:[eE][-+]?+[0-9]{1,2}+)?+"
_SCALAR = rf"(?:{_TEXT_IN_JSON}|{_NUMBER_IN_JSON}|true|false|null)"
_END_OF_ITEM = rf"{_BLANK}(?:,{_BLANK}(?![\]}}])|(?=[\]}}]))"
_NESTING = 3  # the supported nesting of values next to the business id


@dataclass(frozen=True, slots=True)
class Sample:
    """A share of all streams. With the same seed it contains the same streams in every run."""

    share: float
    seed: int = 0

    def takes(self) -> Column:
        """Return the condition that a row's stream is in the sample."""
        hash_ = sf.xxhash64(sf.lit(self.seed), *(sf.coalesce(sf.col(name), sf.lit("")) for name in _STREAM))
        return sf.pmod(hash_, sf.lit(SHARES)) < sf.lit(round(self.share * SHARES))


def route(
    messages: DataFrame,
    app: App,
    partitions: int,
    sample: Sample | None = None,
    types: Collection[str] | None = None,
) -> DataFrame:
    """Route messages with `find_routes`, then sort them with `group`. If `sample` is given, keep only its streams."""
    routed = find_routes(messages, app, types)
    if sample is not None:
        routed = routed.where(sample.takes())
    return group(routed, partitions)


def group(routed: DataFrame, partitions: int) -> DataFrame:
    """Shuffle routed rows to the partitions of their streams, and sort them there."""
    columns, stream = ", ".join(FOLD_COLUMNS), ", ".join(_STREAM)
    text_ = _GROUPED.format(columns=columns, partitions=partitions, stream=stream)
    return routed.sparkSession.sql(text_, routed=routed)


def find_routes(messages: DataFrame, app: App, types: Collection[str] | None = None) -> DataFrame:
    """Return a row for each message and each handler that takes it. Also works on a streaming DataFrame.

    If the log names a handler, only that handler gets the message. `types`: the allowed types, by default all that the
    app takes. A message of another type, or an invalid one, has one row without a stream.
    """
    taken = [name for name in app.message_types if types is None or name in types]
    routes = {name: app.routes(name) for name in taken}
    paths: dict[FieldPath, list[str]] = {}
    for name, handler_routes in routes.items():
        for path in dict.fromkeys(each.wire_path for each in handler_routes):
            paths.setdefault(path, []).append(name)
    return (
        _with_keys(messages.withColumnsRenamed({"business_id": "given", "handler": "wanted"}), paths)
        .selectExpr("*", f"explode({_handlers(routes)}) AS handler", "to_json(headers) AS headers_text")
        .selectExpr("*", f"{_business_id(routes, list(paths))} AS business_id")
        .selectExpr(
            *(name for name in FOLD_COLUMNS if name != "headers"),
            "headers_text AS headers",
            # Rows without a stream may be folded anywhere. Their id spreads them over the partitions.
            "CASE WHEN business_id IS NULL THEN coalesce(message_id, line) END AS spread",
        )
    )


def _handlers(routes: _Routes) -> str:
    types: dict[tuple[str, ...], list[str]] = {}
    for name, found in routes.items():
        types.setdefault(tuple(route.handler for route in found), []).append(name)
    cases = [
        (f"problem IS NULL AND wanted IS NULL AND type IN ({texts(names)})", f"array({texts(all_of_type)})")
        for all_of_type, names in types.items()
    ]
    return first_of(cases, "array(CASE WHEN problem IS NULL THEN wanted END)")


def _business_id(routes: _Routes, paths: Sequence[FieldPath]) -> str:
    types: dict[tuple[FieldPath, KeyKind], dict[str, list[str]]] = {}
    for name, found in routes.items():
        for route in found:
            takers = types.setdefault((route.wire_path, route.key_kind), {})
            takers.setdefault(route.handler, []).append(name)
    cases = []
    # One case for all handlers that read it in the same way, because it generates much code.
    for (path, kind), takers in types.items():
        key = f"key_{paths.index(path)}"
        takes = " OR ".join(
            f"(handler = {text(handler)} AND type IN ({texts(names)}))" for handler, names in takers.items()
        )
        cases.append((f"{key} != '' AND ({takes})", canonical(key) if kind is KeyKind.UUID else key))
    return first_of(cases, "CAST(NULL AS STRING)")


def _with_keys(messages: DataFrame, types: Mapping[FieldPath, Collection[str]]) -> DataFrame:
    """Add a column `key_N` for each path: the log's business id, else the body's. Null for types without the path."""
    given = "nullif(given, '')"
    if isinstance(messages.schema["body"].dataType, BinaryType):
        return messages.selectExpr("*", *(f"{given} AS key_{number}" for number in range(len(types))))
    # `quick` is used twice. As a separate column it is computed once.
    quick, keys = [], []
    for number, (path, names) in enumerate(types.items()):
        is_one, found = f"type IN ({texts(names)})", f"quick_{number}"
        quick.append(sf.when(sf.expr(f"{given} IS NULL AND {is_one}"), find(path)).alias(found))
        found_or_read = sf.when(sf.expr(f"{found} != ''"), sf.col(found)).otherwise(read(path))
        key = sf.when(sf.expr(is_one), sf.coalesce(sf.expr(given), found_or_read))
        keys.append(key.alias(f"key_{number}"))
    return messages.select("*", *quick).select("*", *keys)


def find(path: FieldPath) -> Column:
    """Return a column with the business id that a regular expression finds in each body, or an empty string."""
    return sf.regexp_extract("body", rf"^{_object_with(path)}{_BLANK}\z", 1)


def read(path: FieldPath) -> Column:
    """Return a column with the business id that Spark finds in each body, or null. Non-text values become JSON."""
    schema = "string"
    for name in reversed(path):
        schema = f"struct<`{name}`:{schema}>"
    column = sf.from_json(sf.col("body"), schema, _BODY_OPTIONS)
    for name in path:
        column = column.getField(name)
    return column


def _object_with(path: FieldPath) -> str:
    """Return a pattern of a JSON object. Its group is the business id at a path."""
    name = re.escape(path[0])
    value = _object_with(path[1:]) if path[1:] else rf'"({_CHARACTER}*+)"'
    other = rf'(?!"{name}"){_NAME}{_BLANK}:{_BLANK}{_value(_NESTING)}{_BLANK}'
    before, after = rf"(?:{other},{_BLANK})*+", rf"(?:,{_BLANK}{other})*+"
    return rf'\{{{_BLANK}{before}"{name}"{_BLANK}:{_BLANK}{value}{_BLANK}{after}\}}'


def _value(nesting: int) -> str:
    if nesting == 0:
        return _SCALAR
    inner = _value(nesting - 1)
    items = rf"\[{_BLANK}(?:{inner}{_END_OF_ITEM})*+\]"
    fields = rf"\{{{_BLANK}(?:{_NAME}{_BLANK}:{_BLANK}{inner}{_END_OF_ITEM})*+\}}"
    return rf"(?:{_SCALAR}|{items}|{fields})"

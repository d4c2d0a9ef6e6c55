"""Routing in the JVM: which handler takes a message, and which business object it is for.

Each message gets one row for each of its routes, or for the handler that the log names. The rows of a stream are
shuffled to one partition and sorted there: copies of a message are adjacent, at the smallest position of any of them.
Headers are sent as JSON text: a map costs the JVM more on its way to the workers than all other columns together.

Business ids are read from bodies, most of them by a regular expression, in a third of the time that Spark's JSON parser
takes. It matches only a whole JSON object that names each field on the way to the business id once, and the business id
as a text without escapes. The parser reads all others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType

from handlers import App
from handlers.handler import KeyKind, Route
from runtime.spark.logs.normalise import canonical, first_of, text, texts

_Routes = Mapping[str, Sequence[Route]]  # the routes of messages of each type
_STREAM = ("handler", "business_id", "spread")
SHARES = 1_000_000

# As one text, it costs the driver a few calls into Java, where columns take some for each of them. Partitioned by the
# columns of the shuffle and one more, the window needs no shuffle of its own. Business ids come first: Spark compares
# eight bytes of the first column without a look at the row, and those of handlers hardly differ.
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
"""The columns that the fold reads, in this order.

`business_id` is the one that a delivery is routed by, `given` the one that the log names. `headers` are JSON text.
"""

Place = tuple[str, ...]  # the names of the fields from the body down to the business id
_JSON_OPTIONS = {"allowSingleQuotes": "false", "allowUnquotedFieldNames": "false", "maxNumLen": "1000000000"}

# Repetitions are possessive: others overflow Java's stack with a long body.
_BLANK = r"[ \t\r\n]*+"
_CHARACTER = r'[^"\\\x00-\x1f]'
_NAME = rf'"{_CHARACTER}{{0,99}}+"'
_ESCAPE = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_TEXT = rf'"{_CHARACTER}{{0,9999}}+(?:{_ESCAPE}{_CHARACTER}{{0,9999}}+){{0,999}}+"'
_NUMBER = r"-?+(?:0|[1-9][0-9]{0,17}+)(?:\.[0-9]{1,17}+)?+(?:[eE][-+]?+[0-9]{1,2}+)?+"
_SCALAR = rf"(?:{_TEXT}|{_NUMBER}|true|false|null)"
_END_OF_ITEM = rf"{_BLANK}(?:,{_BLANK}(?![\]}}])|(?=[\]}}]))"
_NESTING = 3  # how deep values beside the business id may be nested


@dataclass(frozen=True, slots=True)
class Sample:
    """A share of all streams: the same ones in every run and on every machine with the same seed."""

    share: float
    seed: int = 0

    def takes(self) -> Column:
        """Return whether a row's stream is in the sample."""
        hash_ = sf.xxhash64(sf.lit(self.seed), *(sf.coalesce(sf.col(name), sf.lit("")) for name in _STREAM))
        return sf.pmod(hash_, sf.lit(SHARES)) < sf.lit(round(self.share * SHARES))


def route(
    messages: DataFrame,
    app: App,
    partitions: int,
    sample: Sample | None = None,
    types: Collection[str] | None = None,
) -> DataFrame:
    """Give each message a row for each handler that takes it, grouped and sorted by stream.

    A message for which the log names a handler goes to that one alone; if it does not take the type, in a row without a
    business id. Messages that no handler takes, with a problem, or of other types than `types`, keep one row without a
    handler. A business id is canonical text, null where there is none. With a sample, the messages of other streams are
    dropped before the shuffle.
    """
    routed = find_routes(messages, app, types)
    if sample is not None:
        routed = routed.where(sample.takes())
    return group(routed, partitions)


def group(routed: DataFrame, partitions: int) -> DataFrame:
    """Shuffle rows that have their routes to the partitions of their streams, and sort them there."""
    columns, stream = ", ".join(FOLD_COLUMNS), ", ".join(_STREAM)
    text_ = _GROUPED.format(columns=columns, partitions=partitions, stream=stream)
    return routed.sparkSession.sql(text_, routed=routed)


def find_routes(messages: DataFrame, app: App, types: Collection[str] | None = None) -> DataFrame:
    """Give each message its rows, row by row: also of a stream of Spark."""
    taken = [name for name in app.message_types if types is None or name in types]
    routes = {name: app.routes(name) for name in taken}
    places: dict[Place, list[str]] = {}
    for name, found in routes.items():
        for place in dict.fromkeys(each.wire_path for each in found):
            places.setdefault(place, []).append(name)
    return (
        _with_keys(messages.withColumnsRenamed({"business_id": "given", "handler": "wanted"}), places)
        .selectExpr("*", f"explode({_handlers(routes)}) AS handler", "to_json(headers) AS headers_text")
        .selectExpr("*", f"{_business_id(routes, list(places))} AS business_id")
        .selectExpr(
            *(name for name in FOLD_COLUMNS if name != "headers"),
            "headers_text AS headers",
            # Without a stream, a row may be folded anywhere: its id spreads such rows.
            "CASE WHEN business_id IS NULL THEN coalesce(message_id, line) END AS spread",
        )
    )


def _handlers(routes: _Routes) -> str:
    """Return the handlers of a message, or the one that the log names; null for a message with a problem."""
    types: dict[tuple[str, ...], list[str]] = {}
    for name, found in routes.items():
        types.setdefault(tuple(route.handler for route in found), []).append(name)
    cases = [
        (f"problem IS NULL AND wanted IS NULL AND type IN ({texts(names)})", f"array({texts(all_of_type)})")
        for all_of_type, names in types.items()
    ]
    return first_of(cases, "array(CASE WHEN problem IS NULL THEN wanted END)")


def _business_id(routes: _Routes, places: Sequence[Place]) -> str:
    """Return the business id that a handler takes a message for; null where it takes none, and for an empty one."""
    types: dict[tuple[Place, KeyKind], dict[str, list[str]]] = {}
    for name, found in routes.items():
        for route in found:
            takers = types.setdefault((route.wire_path, route.key_kind), {})
            takers.setdefault(route.handler, []).append(name)
    cases = []
    # Spelled once for all handlers that read it in the same way: it is much code of Spark's.
    for (place, kind), takers in types.items():
        key = _key_name(places.index(place))
        takes = " OR ".join(
            f"(handler = {text(handler)} AND type IN ({texts(names)}))" for handler, names in takers.items()
        )
        cases.append((f"{key} != '' AND ({takes})", canonical(key) if kind is KeyKind.UUID else key))
    return first_of(cases, "CAST(NULL AS STRING)")


def _with_keys(messages: DataFrame, types: Mapping[Place, Collection[str]]) -> DataFrame:
    """Add a column for each place: the business id that the sender names, unless it is empty, or that of the body.

    The columns are null for types without a business id in that place.
    """
    given = "nullif(given, '')"
    if isinstance(messages.schema["body"].dataType, BinaryType):
        return messages.selectExpr("*", *(f"{given} AS {_key_name(number)}" for number in range(len(types))))
    # `quick` is used twice, so it is a column of its own, or Spark would search for each use.
    quick, keys = [], []
    for number, (place, names) in enumerate(types.items()):
        is_one, found = f"type IN ({texts(names)})", f"quick_{number}"
        quick.append(sf.when(sf.expr(f"{given} IS NULL AND {is_one}"), find(place)).alias(found))
        found_or_read = sf.when(sf.expr(f"{found} != ''"), sf.col(found)).otherwise(read(place))
        key = sf.when(sf.expr(is_one), sf.coalesce(sf.expr(given), found_or_read))
        keys.append(key.alias(_key_name(number)))
    return messages.select("*", *quick).select("*", *keys)


def _key_name(number: int) -> str:
    return f"key_{number}"


def find(place: Place) -> Column:
    """Return the business ids that a regular expression recognises, an empty text for all others."""
    return sf.regexp_extract("body", rf"^{_object_with(place)}{_BLANK}\z", 1)


def read(place: Place) -> Column:
    """Return the business ids that Spark's parser finds, as JSON text where they are no texts, else null."""
    schema = "string"
    for name in reversed(place):
        schema = f"struct<`{name}`:{schema}>"
    column = sf.from_json(sf.col("body"), schema, _JSON_OPTIONS)
    for name in place:
        column = column.getField(name)
    return column


def _object_with(place: Place) -> str:
    """Return the pattern of a JSON object whose group is the business id in a place."""
    name = re.escape(place[0])
    value = _object_with(place[1:]) if place[1:] else rf'"({_CHARACTER}*+)"'
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

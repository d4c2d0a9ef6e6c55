"""Routing in the JVM: which handler takes a message, and which business object it is for.

Each message gets one row for each of its routes, or for the handler that the log names for it. Rows that reach the same
stream are shuffled to the same partition and sorted there: copies of one message are adjacent, at the smallest position
of any of them. Headers go on as JSON text: a map costs the JVM more on its way to the workers than all other columns
together.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType

from handlers import App
from handlers.route import KeyKind, Route
from runtime.spark.logs.log import canonical

_ROUTES = "array<struct<handler:string,business_id:string>>"
_JSON_OPTIONS = {"allowSingleQuotes": "false", "allowUnquotedFieldNames": "false"}
_STREAM = ("handler", "business_id", "spread")
_SHARES = 1_000_000

# As text, what is planned for each micro-batch costs the driver fewer calls into Java than as columns.
_OWN = "struct(sequence IS NULL AS no_sequence, sequence, enqueued_at IS NULL AS no_time, enqueued_at) AS own"
# Partitioned by the columns of the shuffle and one more, the window needs no shuffle of its own.
_POSITION = f"min(own) OVER (PARTITION BY {', '.join(_STREAM)}, message_id) AS position"

FOLD_COLUMNS = (
    "handler",
    "business_id",
    "message_id",
    "type",
    "body",
    "sequence",
    "enqueued_at",
    "headers",
    "given",
    "problem",
    "line",
)
"""What the fold reads, in this order.

`business_id` is the one that a delivery is routed by, `given` the one that the log names for it. `headers` are the JSON
text of an object, null where there are none.
"""


@dataclass(frozen=True, slots=True)
class Sample:
    """A share of all streams, the same ones in every run and on every machine; another seed gives others."""

    share: float
    seed: int = 0

    def takes(self) -> Column:
        """Say whether a row's stream is in the sample."""
        hash_ = sf.xxhash64(sf.lit(self.seed), *(sf.coalesce(sf.col(name), sf.lit("")) for name in _STREAM))
        return sf.pmod(hash_, sf.lit(_SHARES)) < sf.lit(round(self.share * _SHARES))


def route(
    messages: DataFrame,
    app: App,
    partitions: int,
    sample: Sample | None = None,
    types: Collection[str] | None = None,
) -> DataFrame:
    """Give each message a row for each handler that takes it, grouped and sorted by stream.

    A message for which the log names a handler goes to that one alone; if it does not take the type, in a row without a
    business id. Messages that no handler takes, and those with a problem, keep one row without a handler. The business
    id is read from the body with one schema for each message type, as text in its canonical form, and is null when it
    cannot be found. Copies of a message are adjacent, the first delivery first. With a sample, the messages of all
    other streams are dropped before the shuffle. With `types`, messages of all others have one row, without a stream.
    """
    routed = find_routes(messages, app, types)
    if sample is not None:
        routed = routed.where(sample.takes())
    return group(routed, partitions)


def group(routed: DataFrame, partitions: int) -> DataFrame:
    """Shuffle rows that have their routes to the partitions of their streams, and sort them there."""
    shuffled = routed.repartition(partitions, *_STREAM)
    placed = shuffled.selectExpr("*", _OWN).selectExpr("*", _POSITION)
    order = (*_STREAM, "position", "message_id", "own", "type", "body", "headers", "given")
    return placed.sortWithinPartitions(*order).select(*FOLD_COLUMNS)


def find_routes(messages: DataFrame, app: App, types: Collection[str] | None = None) -> DataFrame:
    """Give each message its rows, row by row: a stream of Spark may be given, too."""
    packed = isinstance(messages.schema["body"].dataType, BinaryType)
    keys = {path: f"key_{number}" for number, path in enumerate(_types_by_path(app))}
    routes = _no_route()
    for name in app.message_types:
        is_of_type = (sf.col("type") == name) & sf.col("problem").isNull()
        routes = sf.when(is_of_type, _routes(app.routes(name), keys)).otherwise(routes)
    if types is not None:
        routes = sf.when(sf.col("type").isin(list(types)), routes).otherwise(_no_route())
    return (
        messages.withColumnsRenamed({"business_id": "given", "handler": "wanted"})
        # Each key is a column of its own, so that it is read once, however often the routes name it.
        .select("*", *_keys(app, keys, packed=packed))
        .select("*", sf.explode(routes).alias("route"))
        # An empty business id names no stream.
        .select("*", "route.handler", sf.nullif("route.business_id", sf.lit("")).alias("business_id"))
        # Without a stream to belong to, a row may be folded anywhere: its id spreads such rows.
        .withColumn("spread", sf.when(sf.col("business_id").isNull(), sf.coalesce("message_id", "line")))
        .withColumn("headers", sf.to_json("headers"))
    )


def _no_route() -> Column:
    wanted = sf.when(sf.col("problem").isNull(), sf.col("wanted"))
    return sf.array(sf.struct(wanted.alias("handler"), sf.lit(None).alias("business_id"))).cast(_ROUTES)


def _routes(found: Sequence[Route], keys: Mapping[tuple[str, ...], str]) -> Column:
    """Return the routes of messages of one type: all, or the one to the handler that the log names."""
    each = {route.handler: _route(route, keys[route.wire_path]) for route in found}
    routes = sf.when(sf.col("wanted").isNull(), sf.array(*each.values()).cast(_ROUTES))
    for handler, route in each.items():
        routes = routes.when(sf.col("wanted") == handler, sf.array(route).cast(_ROUTES))
    return routes.otherwise(_no_route())


def _route(found: Route, key: str) -> Column:
    business_id = canonical(sf.col(key)) if found.key_kind is KeyKind.UUID else sf.col(key)
    return sf.struct(sf.lit(found.handler).alias("handler"), business_id.alias("business_id"))


def _types_by_path(app: App) -> dict[tuple[str, ...], list[str]]:
    """Return the places of business ids in bodies, each with the message types that have it there."""
    types: dict[tuple[str, ...], list[str]] = {}
    for name in app.message_types:
        for path in {found.wire_path for found in app.routes(name)}:
            types.setdefault(path, []).append(name)
    return types


def _keys(app: App, names: Mapping[tuple[str, ...], str], *, packed: bool) -> list[Column]:
    """Return the business ids as the sender names them, or else as the body has them, a column for each place.

    A sender that names an empty one names none.
    """
    given = sf.nullif(sf.col("given"), sf.lit(""))
    return [
        (given if packed else sf.when(sf.col("type").isin(types), sf.coalesce(given, _read(path)))).alias(
            names[path]
        )
        for path, types in _types_by_path(app).items()
    ]


def _read(path: tuple[str, ...]) -> Column:
    schema = "string"
    for name in reversed(path):
        schema = f"struct<`{name}`:{schema}>"
    column = sf.from_json(sf.col("body"), schema, _JSON_OPTIONS)
    for name in path:
        column = column.getField(name)
    return column

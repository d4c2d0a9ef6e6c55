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

from handlers import App
from handlers.route import KeyKind, Route
from runtime.spark.logs.keys import Place, key_name, with_keys
from runtime.spark.logs.log import canonical
from runtime.spark.logs.sql import first_of, text, texts

_Routes = Mapping[str, Sequence[Route]]
"""The routes of messages of each type."""

_STREAM = ("handler", "business_id", "spread")
_SHARES = 1_000_000

# As one text, what is planned for each micro-batch costs the driver a few calls into Java, where columns take some for
# each of them. Partitioned by the columns of the shuffle and one more, the window needs no shuffle of its own. Business
# ids come first: Spark compares eight bytes of the first column without a look at the row, and those of handlers hardly
# differ.
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

_ROUTED = (
    *("message_id", "type", "body", "given", "sequence", "enqueued_at", "headers_text AS headers"),
    *("problem", "line", "handler", "business_id"),
)

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
    columns, stream = ", ".join(FOLD_COLUMNS), ", ".join(_STREAM)
    text_ = _GROUPED.format(columns=columns, partitions=partitions, stream=stream)
    return routed.sparkSession.sql(text_, routed=routed)


def find_routes(messages: DataFrame, app: App, types: Collection[str] | None = None) -> DataFrame:
    """Give each message its rows, row by row: a stream of Spark may be given, too."""
    taken = [name for name in app.message_types if types is None or name in types]
    routes = {name: app.routes(name) for name in taken}
    places: dict[Place, list[str]] = {}
    for name, found in routes.items():
        for place in dict.fromkeys(each.wire_path for each in found):
            places.setdefault(place, []).append(name)
    return (
        with_keys(messages.withColumnsRenamed({"business_id": "given", "handler": "wanted"}), places)
        .selectExpr("*", f"explode({_handlers(routes)}) AS handler", "to_json(headers) AS headers_text")
        .selectExpr("*", f"{_business_id(routes, list(places))} AS business_id")
        # Without a stream to belong to, a row may be folded anywhere: its id spreads such rows.
        .selectExpr(*_ROUTED, "CASE WHEN business_id IS NULL THEN coalesce(message_id, line) END AS spread")
    )


def _handlers(routes: _Routes) -> str:
    """Return the handlers of a message, or the one that the log names; of one with a problem a null."""
    types: dict[tuple[str, ...], list[str]] = {}
    for name, found in routes.items():
        types.setdefault(tuple(route.handler for route in found), []).append(name)
    cases = [
        (f"problem IS NULL AND wanted IS NULL AND type IN ({texts(names)})", f"array({texts(all_of_type)})")
        for all_of_type, names in types.items()
    ]
    return first_of(cases, "array(CASE WHEN problem IS NULL THEN wanted END)")


def _business_id(routes: _Routes, places: Sequence[Place]) -> str:
    """Return the business id that a handler takes a message for; null where it takes none. An empty one names none."""
    types: dict[tuple[Place, KeyKind], dict[str, list[str]]] = {}
    for name, found in routes.items():
        for route in found:
            takers = types.setdefault((route.wire_path, route.key_kind), {})
            takers.setdefault(route.handler, []).append(name)
    cases = []
    # A business id that several handlers read in one way is spelled once for all of them: that is much code of Spark's.
    for (place, kind), takers in types.items():
        key = key_name(places.index(place))
        takes = " OR ".join(
            f"(handler = {text(handler)} AND type IN ({texts(names)}))" for handler, names in takers.items()
        )
        cases.append((f"{key} != '' AND ({takes})", canonical(key) if kind is KeyKind.UUID else key))
    return first_of(cases, "CAST(NULL AS STRING)")

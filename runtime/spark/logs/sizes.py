"""The size of messages, looked at in the JVM: of what is too large only a note goes on, as `too_large` has it."""

from __future__ import annotations

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType, MapType, StringType

from runtime.messages.limits import MessageLimits
from runtime.messages.too_large import KEPT, NOTE, sentence

EXCESS = "excess"
"""A column with what is too large of a row, null for all others."""

_NAMES = ("message_id", "type", "business_id", "sequence", "enqueued_at", "handler")


def without_long_lines(log: DataFrame, limits: MessageLimits) -> DataFrame:
    """Take lines that are too large from a log of lines, and leave a note on them, first of all that is done.

    Each projection that such a line passed would keep a buffer of twice its size until the task ends.
    """
    line = sf.col("line")
    fitting = sf.when(sf.octet_length(line) <= limits.line, line)
    return log.select(fitting.alias("line"), _measure("line", line, limits.line).alias(EXCESS))


def with_excess(log: DataFrame, limits: MessageLimits) -> DataFrame:
    """Add what is too large of each row: a part of its envelope; and take from such a row what is large."""
    found = [sf.col(EXCESS)] if EXCESS in log.columns else []
    measured = log.withColumn(EXCESS, sf.coalesce(*found, *_excesses(log, limits)))
    fits = sf.col(EXCESS).isNull()
    large = [name for name in ("body", "headers") if name in log.columns]
    names = [name for name in _NAMES if isinstance(log.schema[name].dataType, StringType)]
    return measured.withColumns(
        {name: sf.when(fits, sf.col(name)) for name in large}
        | {name: sf.when(fits | (sf.octet_length(name) < KEPT), sf.col(name)) for name in names}
    )


def measured_row(limits: MessageLimits) -> Column:
    """Return what is too large of a row that is kept as a line of JSON, null when nothing is."""
    return _measure("row", sf.col("line"), limits.line)


def too_large(limits: MessageLimits) -> Column:
    """Return why a row is too large, null when it is not."""
    excess = sf.col(EXCESS)
    most = (
        sf.when(excess.part.isin("line", "row"), limits.line)
        .when(excess.part == "body", limits.body)
        .otherwise(limits.headers)
    )
    form = sentence("%s", "%,d", "%,d")
    return sf.when(excess.isNotNull(), sf.format_string(form, excess.part, excess.bytes, most))


def note() -> Column:
    """Return what is kept of a row that is too large, null for all others."""
    excess = sf.col(EXCESS)
    return sf.when(excess.isNotNull(), sf.to_json(sf.struct(excess.alias(NOTE))))


def _excesses(log: DataFrame, limits: MessageLimits) -> list[Column]:
    names = [name for name in _NAMES if isinstance(log.schema[name].dataType, StringType)]
    return [
        _measure("body", sf.col("body"), limits.body, is_packed=_is_packed(log)),
        _measure("headers", _headers(log), limits.headers),
        *[_measure(name, sf.col(name), limits.headers) for name in names],
    ]


def _measure(part: str, content: Column, most: int, *, is_packed: bool = False) -> Column:
    # So many characters first: all bytes of a text would be copied.
    first = sf.substring(sf.substring(content, 1, KEPT).cast("binary"), 1, KEPT)
    begins = sf.lower(sf.hex(first)) if is_packed else sf.make_valid_utf8(first.cast("string"))
    measured = sf.struct(
        sf.lit(part).alias("part"),
        sf.octet_length(content).alias("bytes"),
        sf.sha2(content, 256).alias("sha256"),
        begins.alias("begins"),
    )
    return sf.when(sf.octet_length(content) > most, measured)


def _headers(log: DataFrame) -> Column:
    """Return the bytes of the headers; of a column of another type, which is no log's, nothing."""
    found = log.schema["headers"].dataType
    if not isinstance(found, MapType):
        return sf.col("headers") if isinstance(found, StringType) else sf.lit(None).cast("string")
    keys, values = sf.map_keys("headers"), sf.map_values("headers")
    return sf.concat(sf.array_join(keys, ""), sf.array_join(values, ""))


def _is_packed(log: DataFrame) -> bool:
    return isinstance(log.schema["body"].dataType, BinaryType)

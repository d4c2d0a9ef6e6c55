"""Business ids, read from bodies in the JVM: a column for each place that a business id has in a body.

Spark's JSON parser takes longer for a body than all else that is done with a message before the shuffle, and a regular
expression a third of that. It matches nothing but a whole JSON object that names each field on the way to the business
id once, and the business id as a text without escapes. Most bodies are so; Spark's parser reads all others.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as sf
from pyspark.sql.types import BinaryType

from runtime.spark.logs.sql import texts

Place = tuple[str, ...]
"""The names of the fields, from the body down, of which the last one is a business id."""

_JSON_OPTIONS = {"allowSingleQuotes": "false", "allowUnquotedFieldNames": "false"}

# Repetitions are possessive: for all others Java keeps on its stack where to return to, and a long body overflows it.
_BLANK = r"[ \t\r\n]*+"
_CHARACTER = r'[^"\\\x00-\x1f]'
_NAME = rf'"{_CHARACTER}{{0,99}}+"'
_ESCAPE = r'\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4})'
_TEXT = rf'"{_CHARACTER}{{0,9999}}+(?:{_ESCAPE}{_CHARACTER}{{0,9999}}+){{0,999}}+"'
_NUMBER = r"-?+(?:0|[1-9][0-9]{0,17}+)(?:\.[0-9]{1,17}+)?+(?:[eE][-+]?+[0-9]{1,2}+)?+"
_SCALAR = rf"(?:{_TEXT}|{_NUMBER}|true|false|null)"
_END_OF_ITEM = rf"{_BLANK}(?:,{_BLANK}(?![\]}}])|(?=[\]}}]))"
_NESTING = 3
"""How deep values beside the business id may be nested."""


def with_keys(messages: DataFrame, types: Mapping[Place, Collection[str]]) -> DataFrame:
    """Add a column for each place, in their order: what the sender names, unless it is empty, or what the body has.

    The columns are null for messages of other types than those that have a business id in that place.
    """
    given = "nullif(given, '')"
    if isinstance(messages.schema["body"].dataType, BinaryType):
        return messages.selectExpr("*", *(f"{given} AS {key_name(number)}" for number in range(len(types))))
    # What is found is looked at twice, so it is a column of its own, or Spark would search for each use.
    quick, keys = [], []
    for number, (place, names) in enumerate(types.items()):
        is_one, found = f"type IN ({texts(names)})", f"quick_{number}"
        quick.append(sf.when(sf.expr(f"{given} IS NULL AND {is_one}"), find(place)).alias(found))
        found_or_read = sf.when(sf.expr(f"{found} != ''"), sf.col(found)).otherwise(read(place))
        key = sf.when(sf.expr(is_one), sf.coalesce(sf.expr(given), found_or_read))
        keys.append(key.alias(key_name(number)))
    return messages.select("*", *quick).select("*", *keys)


def key_name(number: int) -> str:
    """Return the name of the column of a place."""
    return f"key_{number}"


def find(place: Place) -> Column:
    """Return the business ids of bodies that a regular expression recognises, an empty text for all others."""
    return sf.regexp_extract("body", rf"^{_object_with(place)}{_BLANK}\z", 1)


def read(place: Place) -> Column:
    """Return the business ids of bodies, as JSON text where they are no texts; null where there are none."""
    schema = "string"
    for name in reversed(place):
        schema = f"struct<`{name}`:{schema}>"
    column = sf.from_json(sf.col("body"), schema, _JSON_OPTIONS)
    for name in place:
        column = column.getField(name)
    return column


def _object_with(place: Place) -> str:
    """Return the pattern of a JSON object with a business id in a place, which is its group."""
    name = re.escape(place[0])
    value = _object_with(place[1:]) if place[1:] else rf'"({_CHARACTER}*+)"'
    other = rf'(?!"{name}"){_NAME}{_BLANK}:{_BLANK}{_value(_NESTING)}{_BLANK}'
    before, after = rf"(?:{other},{_BLANK})*+", rf"(?:,{_BLANK}{other})*+"
    return rf'\{{{_BLANK}{before}"{name}"{_BLANK}:{_BLANK}{value}{_BLANK}{after}\}}'


def _value(nesting: int) -> str:
    """Return the pattern of a JSON value."""
    if nesting == 0:
        return _SCALAR
    inner = _value(nesting - 1)
    items = rf"\[{_BLANK}(?:{inner}{_END_OF_ITEM})*+\]"
    fields = rf"\{{{_BLANK}(?:{_NAME}{_BLANK}:{_BLANK}{inner}{_END_OF_ITEM})*+\}}"
    return rf"(?:{_SCALAR}|{items}|{fields})"

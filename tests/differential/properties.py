"""The properties of rows: names that meet often, and rows as large as can be."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from tests.differential.values import KIB, VALUES, WRONG_VALUES, Repeated


@dataclass(frozen=True, slots=True)
class Wide:
    """Many properties P0, P1 ... of the same value."""

    count: int
    each: int | Repeated


def values_of(properties: Mapping[str, Any] | Wide) -> dict[str, Any]:
    """Return properties with all that is long written out."""
    if isinstance(properties, Wide):
        properties = {f"P{number}": properties.each for number in range(properties.count)}
    return {
        name: value.value() if isinstance(value, Repeated) else value for name, value in properties.items()
    }


_FREQUENT_NAMES = st.sampled_from(["A", "B"])
# Not among them is what every JavaScript object has, such as toString: Azurite drops properties of such names.
_OTHER_NAMES = st.sampled_from(
    [
        *("a", "_under", "Größe", "名前", "x" * 255, "e\u0301", "\ufb01"),
        *("\U0001d431", "true", "null", "NaN"),
        *("etag", "eTag", "odata", "Edm", "value", "properties", "length", "meta"),
        *("partitionKey", "rowkey", "timestamp"),
    ]
)
_WRONG_NAMES = st.sampled_from(
    [
        *("", "with space", "with-hyphen", "9lives", "a.b", "a'b", "😀", "x" * 256),
        *("odata.etag", "A@odata.type", "PartitionKey", "RowKey", "Timestamp"),
    ]
)
_ABSENT_NAMES = st.sampled_from(
    [
        *("P0", "P7", "P251", "Absent", "PartitionKey", "odata.etag"),
        *("", "*", " A", "A,B", "A B", "A'", "$A", "A&$top=1"),
    ]
)
_NAMES = st.one_of(_FREQUENT_NAMES, _FREQUENT_NAMES, _OTHER_NAMES)

# So few at a time that merging them makes no row too large, which Azurite would not refuse.
PROPERTIES = st.dictionaries(_NAMES, VALUES, max_size=3)
WRONG_PROPERTIES = st.one_of(
    st.dictionaries(_NAMES, WRONG_VALUES, min_size=1, max_size=2),
    st.dictionaries(_WRONG_NAMES, VALUES, min_size=1, max_size=2),
    st.dictionaries(_NAMES, VALUES | WRONG_VALUES, min_size=2, max_size=4),
)

# What can be inserted, what can also be replaced as Azurite measures it, and what is over a limit.
BULKY_PROPERTIES = st.sampled_from(
    [Wide(16, Repeated(b"x", 64 * KIB - 40)), Wide(25, Repeated("\u2028", 20 * KIB))]
)
RATHER_BULKY_PROPERTIES = st.sampled_from(
    [Wide(252, 1), Wide(252, Repeated(b"x", 2 * KIB)), Wide(11, Repeated(b"x", 64 * KIB))]
)
TOO_BULKY_PROPERTIES = st.sampled_from(
    [Wide(253, 1), Wide(17, Repeated(b"x", 62 * KIB)), Wide(16, Repeated("é", 32 * KIB))]
)

SELECTIONS: st.SearchStrategy[list[str] | None] = st.one_of(
    st.none(),
    st.sampled_from([["A"], ["B", "A"]]),
    st.lists(st.one_of(_NAMES, _ABSENT_NAMES), max_size=4),
    _NAMES.map(lambda name: [name, name]),
)

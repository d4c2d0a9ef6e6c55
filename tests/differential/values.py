r"""Keys, values and properties that tables can have, and some that none can have.

Keys collide often, and have characters that tables and URLs have trouble with. Ranges are promised for ASCII keys only:
beyond them some services compare UTF-16 units and others characters. The two orders agree unless a character from
U+E000 to U+FFFF meets one beyond U+FFFF. So row keys have only the latter and partition keys only the former, and each
range has the same rows everywhere.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta, timezone
from enum import IntEnum, StrEnum
from typing import Any
from uuid import UUID
from zoneinfo import ZoneInfo

from hypothesis import strategies as st

from eventstore import Int64

LAST = "\U0010ffff"
"""The end of a range that takes in every row key of a program."""

BULKY_KEYS = ("bulky-1", "bulky-2")
"""Keys of the rows that are as large as rows can be; they are never merged into."""

_PLAIN = ["a", "b", "c", "A", "SS-HEAD", "fill-0500", "fill-0999", "1", "01", "1.0", "1e0", "NaN", "null"]
_TRICKY = [
    *("/", "a/b", "\\", "#", "a?b", "%", "50%", "%2F", "%252F", "'", "''"),
    *("it's", ",", "a,b", "~", "~2F", "~~"),
    *("\x00", "\t", "a\r\nb", "\x1f", "\x7f", "\x85", "\x9f", "\u2028"),
    *("\u2029", "\xa0", "a\u200bb", "x" * 512),
    *(".", "..", " ", " a", "a ", "+", "a+b", "a&b=c", "$1", "(", "')", '"', "*", ";", "<a>", "{}", "`", "|"),
    *("é", "e\u0301", "ß", "日本"),
]
_CHARACTERS = st.sampled_from("ab01/\\#?%',~ .+&\"é日\x00\n\x80\u2028")


def _keys(*more: str) -> st.SearchStrategy[str]:
    return st.one_of(
        st.sampled_from(_PLAIN),
        st.sampled_from([*_TRICKY, *more]),
        st.text(_CHARACTERS, min_size=1, max_size=6),
    )


ROW_KEYS = _keys("😀", "a😀", "👩\u200d🚀")
PARTITION_KEYS = _keys("\ufeffa", "ﬁ", "a\uffff")
WRONG_KEYS = st.sampled_from(
    ["", "x" * 513, "/" * 171, "é" * 513, "😀" * 257, "\x00" * 170 + "abc", "half \ud83d", "\ude00"]
)


def ends_of_ranges(keys: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    """Return keys, and what lies before, between and after them."""
    return st.one_of(
        keys,
        keys.filter(lambda key: len(key) < 100).map(lambda key: key + "!"),
        keys.map(lambda key: key[:-1]),
        st.sampled_from(["", "!", "a", "b~", "~", "\x7f"]),
    )


KIB = 1024


@dataclass(frozen=True, slots=True)
class Repeated:
    """A long value, written so that a program which has it can be read."""

    piece: str | bytes
    times: int

    def value(self) -> str | bytes:
        return self.piece * self.times


class Size(IntEnum):
    LARGE = 3


class Colour(StrEnum):
    RED = "red"


def _subclass(of: Any) -> Any:
    return type(f"Own{of.__name__}", (of,), {})


Text, Moment = _subclass(str), _subclass(datetime)


_ZONES = st.sampled_from(
    [
        *(UTC, timezone.utc, ZoneInfo("UTC"), ZoneInfo("Europe/Paris"), ZoneInfo("America/New_York")),  # noqa: UP017
        *(timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-23, minutes=-59))),
        timezone(timedelta(seconds=1)),
    ]
)
_DATETIMES = st.one_of(
    st.datetimes(datetime(1601, 1, 2), datetime(9999, 12, 30), timezones=_ZONES),  # noqa: DTZ001 - Hypothesis adds zones
    st.sampled_from(
        [
            datetime(1601, 1, 1, tzinfo=UTC),
            datetime(1601, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
            datetime(1600, 12, 31, 23, tzinfo=timezone(timedelta(hours=-1))),
            datetime(1969, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
            datetime(9999, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        ]
    ),
)
_TEXTS = st.one_of(
    st.text(max_size=12),
    st.sampled_from(
        [
            *("", " ", "\x00", "\t", "\r\n", "\r\n\r\n", "\x85", "\u2028"),
            *("\u2029", "\ufeff", "\uffff", "😀"),
            *("--changeset_eventstore--", "--batch_eventstore--", "HTTP/1.1 404 Not Found\r\n\r\n"),
            *("null", "true", "1", "2024-01-01T00:00:00Z"),
            *("W/\"datetime'2024'\"", '{"a": 1}', "\\u0041", "&amp;"),
        ]
    ),
)
_NUMBERS = st.one_of(
    st.integers(-(2**31), 2**31 - 1),
    st.sampled_from([0, 1, -(2**31), 2**31 - 1]),
    st.integers(-(2**63), 2**63 - 1).map(Int64),
    st.sampled_from([Int64(0), Int64(2**53 + 1), Int64(-(2**63)), Int64(2**63 - 1)]),
    st.floats(),
    st.sampled_from([0.0, -0.0, 1.0, 1e15, 1e21, 1e22, 5e-324, 1.7976931348623157e308, math.inf, -math.inf]),
    st.just(math.nan),
)
_SUBCLASSES = st.sampled_from(
    [
        *(Size.LARGE, Colour.RED, Text("text"), _subclass(bytes)(b"blob"), _subclass(float)(0.5)),
        *(_subclass(Int64)(2**40), _subclass(UUID)(int=7), Moment(2024, 2, 29, 12, tzinfo=UTC)),
        Moment(2024, 10, 27, 2, 30, tzinfo=ZoneInfo("Europe/Paris"), fold=1),
    ]
)
_LONG = st.sampled_from(
    [*(Repeated(text, 32 * KIB) for text in ("x", "é", b"\x00\xff")), Repeated("😀", 16 * KIB)]
)
_BINARIES = st.one_of(
    st.binary(max_size=20),
    # SQLite keeps those over 512 bytes apart from the others.
    st.sampled_from([b"", Repeated(b"x", 512), Repeated(b"y", 513), Repeated(b"z", 2000)]),
)
VALUES = st.one_of(
    _TEXTS, st.booleans(), _NUMBERS, _DATETIMES, st.uuids(), _BINARIES, _SUBCLASSES, _LONG, st.none()
)
_WRONG_TYPES = st.sampled_from(
    [[1], {"a": 1}, (1,), {1}, 1j, bytearray(b"x"), object, timedelta(1), date(2024, 1, 1)]
)
_OUT_OF_RANGE = st.sampled_from(
    [
        *(2**31, -(2**31) - 1, Int64(2**63), Int64(-(2**63) - 1)),
        *("half a character \ud800", "\udc00\ud800", Text("\ud83d")),
        datetime(2024, 1, 1),  # noqa: DTZ001 - that is the point
        datetime(1600, 12, 31, 23, 59, 59, 999999, tzinfo=UTC),
        datetime(1601, 1, 1, tzinfo=timezone(timedelta(hours=1))),
        datetime(9999, 12, 31, 23, tzinfo=timezone(timedelta(hours=-2))),
        datetime(1, 1, 1, tzinfo=timezone(timedelta(hours=1))),
    ]
)
_TOO_LONG = st.sampled_from(
    [Repeated("x", 32 * KIB + 1), Repeated("😀", 16 * KIB + 1), Repeated(b"x", 64 * KIB + 1)]
)
WRONG_VALUES = st.one_of(_WRONG_TYPES, _OUT_OF_RANGE, _TOO_LONG)


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

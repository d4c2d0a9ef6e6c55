"""Rows of any kind, and transactions that are just at a limit of the table service, or just over it."""

from datetime import UTC, datetime

from hypothesis import strategies as st

from eventstore import Int64, Operation, Value
from eventstore.limits import AROUND_ALL_BYTES, MAX_ROW_BYTES, MAX_TRANSACTION_BYTES, prepare_row, sent_bytes

KIB = 1024
PARTITION_KEY = "orders-7"


def row_of(size: int, row_key: str = "r") -> Operation:
    """Return the insert of a row that takes so many bytes, its keys included."""
    left = size - 4 * (len(PARTITION_KEY) + len(row_key))
    properties: dict[str, Value] = {}
    while True:
        name = f"P{len(properties):02}"
        room = left - prepare_row({**properties, name: b""})[1]
        properties[name] = b"x" * min(room, 64 * KIB)
        if room <= 64 * KIB:
            return Operation.insert(row_key, properties)


def transaction_of(size: int) -> list[Operation]:
    """Return a transaction of ten rows that counts as so many bytes."""
    text = {f"P{number:02}": "x" * 32 * KIB for number in range(14)}
    rows = [Operation.insert(f"r{number}", text) for number in range(9)]
    pad = size - counted_bytes([*rows, _padding(0)])
    return [*rows, _padding(pad)]


def _padding(size: int) -> Operation:
    texts = [min(max(size - start, 0), 32 * KIB) for start in range(0, 8 * 32 * KIB, 32 * KIB)]
    return Operation.insert("r9", {f"P{number:02}": "x" * length for number, length in enumerate(texts)})


def counted_bytes(operations) -> int:
    return AROUND_ALL_BYTES + sum(sent_bytes(PARTITION_KEY, each, each.properties) for each in operations)


def wide_row(count: int) -> Operation:
    return Operation.insert("r", {f"P{number}": 1 for number in range(count)})


def rows(count: int) -> list[Operation]:
    return [Operation.insert(f"r{number}", {"P": number}) for number in range(count)]


AT_A_LIMIT: dict[str, list[Operation]] = {
    "bytes of a binary": [Operation.insert("r", {"P": b"x" * 64 * KIB})],
    "characters of a string": [Operation.insert("r", {"P": "x" * 32 * KIB})],
    "characters of two units of a string": [Operation.insert("r", {"P": "😀" * 16 * KIB})],
    "properties of a row": [wide_row(252)],
    "bytes of a row": [row_of(MAX_ROW_BYTES)],
    "characters of a property name": [Operation.insert("r", {"P" * 255: 1})],
    "characters of a key": [Operation.insert("r" * 512, {})],
    "characters of two units of a key": [Operation.insert("😀" * 256, {})],
    "characters of an escaped key": [Operation.insert("/" * 170 + "rr", {})],
    "operations of a transaction": rows(100),
    "bytes of a transaction": transaction_of(MAX_TRANSACTION_BYTES),
}
OVER_A_LIMIT: dict[str, list[Operation]] = {
    "bytes of a binary": [Operation.insert("r", {"P": b"x" * (64 * KIB + 1)})],
    "characters of a string": [Operation.insert("r", {"P": "x" * (32 * KIB + 1)})],
    "characters of two units of a string": [Operation.insert("r", {"P": "😀" * 16 * KIB + "x"})],
    "properties of a row": [wide_row(253)],
    "bytes of a row": [row_of(MAX_ROW_BYTES + 1)],
    "characters of a property name": [Operation.insert("r", {"P" * 256: 1})],
    "characters of a key": [Operation.insert("r" * 513, {})],
    "characters of two units of a key": [Operation.insert("😀" * 256 + "r", {})],
    "characters of an escaped key": [Operation.insert("/" * 170 + "rrr", {})],
    "operations of a transaction": rows(101),
    "bytes of a transaction": transaction_of(MAX_TRANSACTION_BYTES + 1),
}
TAKEN_BY_THE_EMULATOR = {"properties of a row", "bytes of a row", "characters of a property name"}
"""What Azurite takes beyond Azure's documented limit."""


# Rows of any kind, for properties.

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=30)
TRICKY = st.text(
    st.sampled_from("/\\#?%'~\x00\t\n\x7f\x85 \",;:&+=()[]{}|$!*@<>^`aZ0éß你\u2028\ufeff😀"),
    min_size=1,
    max_size=12,
)
KEYS = TEXT | TRICKY
VALUES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.text(st.sampled_from('\x00\x01"\\\u2028é😀'), max_size=30),
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Int64),
    st.floats(allow_nan=False),
    st.datetimes(datetime(1601, 1, 1), timezones=st.just(UTC)),  # noqa: DTZ001 - Hypothesis adds the zone
    st.uuids(),
    st.binary(max_size=700),
)
ROWS = st.dictionaries(st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{2,10}", fullmatch=True), VALUES, max_size=8)

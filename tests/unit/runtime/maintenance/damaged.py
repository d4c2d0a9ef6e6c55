"""Tables whose rows somebody has damaged: real rows of all kinds, and one value of them that is another one."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import msgpack
import zstandard
from hypothesis import strategies as st

from eventstore import Int64, Operation, Table, drive
from runtime import Processor
from runtime.algorithms.state_based.truncation import RetentionRules
from runtime.leases import CleanUpLease
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.maintenance.policies import Policies, Scope
from runtime.messages.outcome import Output
from runtime.versions import limits
from tests.unit.runtime import diary
from tests.unit.runtime.diary import misbehave, write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker

STREAM = "Diary-d-1"
WITH_RUNS = "Diary-d-2"
BATCH = BatchContext("b", number=1)
KNOWN = "a", "b", "c", "d"
Rows = Mapping[tuple[str, str], Mapping[str, Any]]


@contextmanager
def small_segments() -> Iterator[None]:
    """Let runs be made of three versions."""
    before, limits.MAX_SEGMENT_VERSIONS = limits.MAX_SEGMENT_VERSIONS, 2
    try:
        yield
    finally:
        limits.MAX_SEGMENT_VERSIONS = before


async def _ignore(_output: Output) -> None: ...


@cache
def sound() -> Rows:
    """Return rows of all kinds: a stream with a tail and letters, one with runs, an entity, ledger, policies, lease."""
    table, clock = memory_table(), ToldClock()
    ledger = Ledger(table, clock, PATIENCE)
    drive(ledger.begin("b", "input", "/out"))
    of_stream = Worker(table, batch=BATCH)
    of_stream.process(*[write(each, headers={"trace": each}, enqueued_at=NOW - 9 * DAY) for each in KNOWN])
    of_stream.process(misbehave("fail", "bad"))
    with small_segments():
        of_runs = Worker(table, batch=BATCH, business_id="d-2")
        for group in ("abc", "def"):
            of_runs.process(
                *[write(each, diary="d-2", enqueued_at=NOW - 9 * DAY) for each in group],
            )
        of_runs.process(write("g", diary="d-2", enqueued_at=NOW - 8 * DAY))
    processor = Processor(diary.app, table, _ignore, clock=clock, retries=PATIENCE)
    drive(processor.process(write("x")._replace(type="Unknown")))
    rules = RetentionRules(older_than=2 * DAY, keep_last=1)
    drive(Policies(table, clock, PATIENCE).set_rules(Scope(), rules))
    drive(CleanUpLease(table, clock).take("somebody"))
    return rows(table)


def table_of(found: Rows) -> Table:
    table = memory_table()
    for (partition_key, row_key), properties in found.items():
        drive(table.transact(partition_key, [Operation.insert(row_key, properties)]))
    return table


def changed(found: Rows, place: tuple[str, str], name: str, value: Any) -> Rows:
    """Return the rows with one property of one of them changed, or without it for None."""
    properties = {**found[place], name: value}
    return {**found, place: {key: each for key, each in properties.items() if each is not None}}


_SCALARS = st.sampled_from(
    [None, True, False, 0, 1, -1, 2**31, 2**63 - 1, -(2**63), 0.5, "", "x", "\u2028", b"", b"\x00", b"{}"]
)
_LEAVES = _SCALARS | st.integers(-(2**63), 2**64 - 1) | st.text(max_size=3) | st.binary(max_size=20)
_STORED = st.one_of(
    st.booleans(),
    st.integers(-(2**31), 2**31 - 1),
    st.integers(-(2**63), 2**63 - 1).map(Int64),
    st.floats(allow_nan=False),
    st.text(max_size=5),
    st.binary(max_size=40),
)


@st.composite
def damage(draw: st.DrawFn, found: Rows) -> Rows:
    """Return rows of which one value is another one, or lacks."""
    place = draw(st.sampled_from(sorted(found)))
    names = sorted(found[place])
    if not names:
        return found
    name = draw(st.sampled_from(names))
    value = found[place][name]
    return changed(found, place, name, draw(_other(value)))


def _other(value: Any) -> st.SearchStrategy[Any]:
    others = st.none() | _STORED
    return others | _bytes(value) | _bytes(value) | _bytes(value) if isinstance(value, bytes) else others


@st.composite
def _bytes(draw: st.DrawFn, data: bytes) -> bytes:
    """Return bytes that are cut, flipped, or well made and say something else."""
    unpacked = _unpacked(data)
    if unpacked is None or draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        return draw(
            st.sampled_from(
                [data[:at], data + b"\x00", data[:at] + bytes([draw(st.integers(0, 255))]) + data[at + 1 :]]
            )
        )
    tree, is_compressed = unpacked
    packed: bytes = msgpack.packb(draw(_mutated(tree)), unicode_errors="surrogatepass")
    return zstandard.ZstdCompressor(write_checksum=True).compress(packed) if is_compressed else packed


def _unpacked(data: bytes) -> tuple[Any, bool] | None:
    """Return what bytes hold as msgpack, and whether it was compressed."""
    for is_compressed in (True, False):
        try:
            raw = zstandard.ZstdDecompressor().decompress(data) if is_compressed else data
            return msgpack.unpackb(raw, strict_map_key=False, unicode_errors="surrogatepass"), is_compressed
        except (zstandard.ZstdError, ValueError, TypeError, msgpack.UnpackException):
            continue  # a TypeError: a map whose key is a list or a map
    return None


@st.composite
def _mutated(draw: st.DrawFn, tree: Any) -> Any:
    """Return a tree with one node exchanged, dropped or repeated."""
    if isinstance(tree, list | dict) and tree and draw(st.integers(0, 4)):
        places = range(len(tree)) if isinstance(tree, list) else sorted(tree, key=repr)
        place = draw(st.sampled_from(list(places)))
        copy = tree.copy()
        match draw(st.sampled_from(["inside", "inside", "inside", "drop", "repeat"])):
            case "inside":
                copy[place] = draw(_mutated(tree[place]))
            case "drop":
                del copy[place]
            case _ if isinstance(copy, list):
                copy.append(copy[place])
        return copy
    if isinstance(tree, bytes) and len(tree) > 8 and draw(st.booleans()):
        return draw(_bytes(tree))
    return draw(
        _LEAVES | st.lists(_LEAVES, max_size=3) | st.dictionaries(st.text(max_size=2), _LEAVES, max_size=2)
    )

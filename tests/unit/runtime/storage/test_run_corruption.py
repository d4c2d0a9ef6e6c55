"""Runs: bytes that are not what was written are told, and are never taken for another run."""

import dataclasses
from typing import Any

import msgpack
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from eventstore import EventData, RecordedEvent
from runtime.errors import StoredDataError
from runtime.versions.run import read_index, read_run
from tests.unit.runtime.runs import joined, run_of, stored, version


def altered(event: RecordedEvent, **changes: Any) -> RecordedEvent:
    properties = {**event.properties, **changes}
    return dataclasses.replace(
        event, properties={name: value for name, value in properties.items() if value is not None}
    )


EVENT = stored(run_of(version(1, after=b'{"rings":1}', headers={"trace": "t"}), version(2, enqueued_at=9)))
DATA, IDS = joined(EVENT, ["Data"]), joined(EVENT, ["Ids"])


@pytest.mark.parametrize("name", sorted(EVENT.properties.keys() - {"Newest"}))
def test_a_lacking_property_is_told(name):
    with pytest.raises(StoredDataError, match="The run in event 1 cannot be read"):
        read_run(altered(EVENT, **{name: None}))


@pytest.mark.parametrize(
    "changes",
    [
        {"Data": b""},
        {"Data": b"no zstandard"},
        {"Data": DATA[:-1]},
        {"Data": "text"},
        {"Ids": b""},
        {"Ids": b"\x02\x05"},
        {"Ids": b"\x02\xc1"},
        {"Ids": b"\x02\x92\xa1a"},
        {"Ids": "text"},
        {"Count": 3},
        {"Count": "2"},
        {"Ids": IDS[:-16]},
        {"First": "one"},
        {"Commits": b""},
        {"Commits": 7},
        {"Commits": msgpack.packb([(1, None, 7)])},
        {"Commits": msgpack.packb([(2, 7, 7)])},
        {"Commits": msgpack.packb([(2, None, "7")])},
        {"Commits": msgpack.packb([(2, None)])},
        {"Commits": msgpack.packb([(2, "night", 7, "1")])},
        {"Commits": msgpack.packb([(2, "night", 7, 1, 1)])},
        {"Newest": 7},
    ],
)
def test_properties_that_are_not_what_was_written_are_told(changes):
    with pytest.raises(StoredDataError, match="The run in event 1 "):
        read_run(altered(EVENT, **changes))


@given(st.data())
def test_a_flipped_bit_never_gives_another_run(data):
    damaged = bytearray(DATA)
    bit = data.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[bit // 8] ^= 1 << bit % 8

    try:
        found = read_run(altered(EVENT, Data=bytes(damaged)))
    except StoredDataError:
        return
    assert found == read_run(EVENT)


def test_a_format_of_newer_code_is_told():
    columns = msgpack.unpackb(zstandard.ZstdDecompressor().decompress(DATA))
    newer = zstandard.ZstdCompressor().compress(msgpack.packb([3, *columns[1:]]))

    with pytest.raises(StoredDataError, match="format 3 is unknown; this code reads format 2"):
        read_run(altered(EVENT, Data=newer))


def test_a_decompression_bomb_is_refused():
    bomb = zstandard.ZstdCompressor().compress(bytes(65 * 2**20))
    assert len(bomb) < 10_000

    with pytest.raises(StoredDataError, match="are more than a run can have"):
        read_run(altered(EVENT, Data=bomb))


def test_a_frame_that_does_not_say_its_size_is_refused():
    silent = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000))

    with pytest.raises(StoredDataError, match="are more than a run can have"):
        read_run(altered(EVENT, Data=silent))


def test_an_event_of_someone_else_is_no_run():
    with pytest.raises(StoredDataError, match="The run in event 4 cannot be read"):
        read_index(RecordedEvent(4, EventData({"Hits": 1}).properties))


def test_a_small_frame_does_not_become_millions_of_objects():
    bomb = zstandard.ZstdCompressor().compress(b"\xdd\x00\xe0\x00\x00" + b"\x90" * (14 * 2**20))
    assert len(bomb) < 2_000

    with pytest.raises(StoredDataError, match="max_array_len"):
        read_run(altered(EVENT, Data=bomb))

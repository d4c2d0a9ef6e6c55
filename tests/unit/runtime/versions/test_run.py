"""Runs: versions come back whatever they hold, and bytes that are not what was written are told."""

import dataclasses
import random
from contextlib import suppress
from typing import Any

import msgpack
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from eventstore import EventData, RecordedEvent
from runtime.errors import StoredDataError
from runtime.messages.envelope import id_key
from runtime.versions.limits import MAX_RUN_ID_BYTES
from runtime.versions.run import (
    DATA_PROPERTIES,
    ID_PROPERTIES,
    INDEX_PROPERTIES,
    Commit,
    Run,
    StateVersion,
    VersionColumns,
    read_ids,
    read_index,
    read_run,
)
from tests.unit.runtime.runs import joined, run_of, stored, version

moments = st.integers(-(10**16), 10**17)
digests = st.binary(min_size=16, max_size=16)
texts = st.text(max_size=8)
versions = st.builds(
    StateVersion,
    message_id=st.binary(min_size=16, max_size=16) | st.text(min_size=1, max_size=20).map(id_key),
    type=st.sampled_from(["Rang", "Struck"]),
    fingerprint=digests,
    now=moments,
    enqueued_at=st.none() | moments,
    headers=st.none() | st.dictionaries(texts, texts, min_size=1, max_size=2),
    captured=st.none() | st.dictionaries(texts, st.binary(max_size=8), min_size=1, max_size=2),
    revision=st.integers(0, 9),
    outputs_digest=digests,
    state_digest=digests,
    after=st.none() | st.just(b"") | st.binary(max_size=60),
)


written = st.tuples(st.none() | texts, moments) | st.tuples(texts, moments, st.integers(1, 2**53))
"""Who wrote the versions of a commit, and when: a batch with or without a number, or none."""


@st.composite
def made_runs(draw: st.DrawFn) -> Run:
    """Draw a run of versions of one or several commits."""
    pieces = draw(st.lists(st.lists(versions, min_size=1, max_size=5), min_size=1, max_size=3))
    commits = [Commit(len(piece), *draw(written)) for piece in pieces]
    numbers = draw(st.integers(1, 10**15)), draw(st.integers(1, 9))
    versions_of = VersionColumns.of([each for piece in pieces for each in piece])
    return Run(*numbers, draw(st.binary(max_size=60)), versions_of, commits)


@given(made_runs())
def test_a_run_comes_back_and_its_index_without_ids_and_states(run):
    event = stored(run, version=3)
    properties = {name: event.properties[name] for name in INDEX_PROPERTIES if name in event.properties}

    index = read_index(RecordedEvent(3, properties))

    assert read_run(event) == run
    assert read_ids(event) == [made.message_id for made in run.versions]
    times = [made.enqueued_at for made in run.versions]
    assert (index.event, index.first, index.last) == (3, run.first, run.first + len(run.versions) - 1)
    assert (index.count, index.commits) == (len(run.versions), run.commits)
    assert index.written_at == max(commit.written_at for commit in run.commits)
    assert index.newest == max((time for time in times if time is not None), default=None)
    assert index.undated == (None in times)


@given(made_runs())
def test_each_version_knows_the_state_it_was_made_on(run):
    states = [*run.states_before(), run.after]

    assert states[0] == run.before
    for made, before, after in zip(run.versions, states, states[1:], strict=False):
        assert after == (before if made.after is None else made.after)


@pytest.mark.parametrize("size", [65_000, 65_537, 800_000])
def test_data_and_ids_over_64_kib_are_split_and_joined_again(size):
    # Random bytes, so that compression does not make them small
    noisy = run_of(version(1, captured={"noise": random.randbytes(size)}))
    many = run_of(*(version(1, message_id=f"{number:0250d}") for number in range(size // 800)))

    for run, names in ((noisy, DATA_PROPERTIES), (many, ID_PROPERTIES)):
        event = stored(run)
        parts = [name for name in names if name in event.properties]
        assert len(parts) == -(-len(joined(event, names)) // 65_536)
        assert read_run(event) == run


def test_what_a_row_cannot_hold_is_refused_rather_than_cut():
    too_much = run_of(version(1, captured={"noise": random.randbytes(65_536 * len(DATA_PROPERTIES) + 1)}))
    too_many = run_of(*(version(1, message_id="x" * 255) for _ in range(MAX_RUN_ID_BYTES // 255 + 10)))

    for run in (too_much, too_many):
        with pytest.raises(ValueError, match="bytes exceed the limit of a row"):
            run.event()


def altered(event: RecordedEvent, **changes: Any) -> RecordedEvent:
    properties = {name: value for name, value in {**event.properties, **changes}.items() if value is not None}
    return dataclasses.replace(event, properties=properties)


EVENT = stored(run_of(version(1, after=b'{"rings":1}', headers={"trace": "t"}), version(2, enqueued_at=9)))
DATA, IDS = joined(EVENT, ["Data"]), joined(EVENT, ["Ids"])


def compressed(data: bytes, **options: Any) -> bytes:
    return zstandard.ZstdCompressor(**options).compress(data)


@pytest.mark.parametrize(
    "changes",
    [
        *({name: None} for name in sorted(EVENT.properties.keys() - {"Newest"})),
        *({"Data": value} for value in (b"", b"no zstandard", DATA[:-1], "text")),
        *({"Ids": value} for value in (b"", b"\x02\x05", b"\x02\xc1", b"\x02\x92\xa1a", "text", IDS[:-16])),
        *({"Count": 3}, {"Count": "2"}, {"First": "one"}, {"Commits": b""}, {"Commits": 7}, {"Newest": 7}),
        *(
            {"Commits": msgpack.packb([commit])}
            for commit in [
                *((1, None, 7), (2, 7, 7), (2, None, "7"), (2, None)),
                *((2, "night", 7, "1"), (2, "night", 7, 1, 1)),
            ]
        ),
    ],
)
def test_properties_that_are_not_what_was_written_are_told(changes):
    with pytest.raises(StoredDataError, match="The run in event 1 "):
        read_run(altered(EVENT, **changes))


COLUMNS = msgpack.unpackb(zstandard.ZstdDecompressor().decompress(DATA))


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (compressed(msgpack.packb([3, *COLUMNS[1:]])), "format 3 is unknown; this code reads format 2"),
        (compressed(bytes(65 * 2**20)), "exceed the limit of a run"),
        (compressed(bytes(1000), write_content_size=False), "exceed the limit of a run"),
        (compressed(b"\xdd\x00\xe0\x00\x00" + b"\x90" * (14 * 2**20)), "max_array_len"),
    ],
    ids=["newer code", "a bomb", "a frame that does not say its size", "millions of objects"],
)
def test_what_a_small_frame_becomes_is_bounded(data, problem):
    assert len(data) < 10_000
    with pytest.raises(StoredDataError, match=problem):
        read_run(altered(EVENT, Data=data))


@given(st.integers(0, len(DATA) * 8 - 1))
def test_a_flipped_bit_never_gives_another_run(bit):
    damaged = bytearray(DATA)
    damaged[bit // 8] ^= 1 << bit % 8

    with suppress(StoredDataError):
        assert read_run(altered(EVENT, Data=bytes(damaged))) == read_run(EVENT)


def test_an_event_of_someone_else_is_no_run():
    with pytest.raises(StoredDataError, match="The run in event 4 cannot be read"):
        read_index(RecordedEvent(4, EventData({"Hits": 1}).properties))

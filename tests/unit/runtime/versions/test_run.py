"""Runs: what is stored comes back, and bytes that are not what was written are told."""

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

# Runs: what is stored of state versions comes back, whatever they hold.


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
    first, schema, before = (
        draw(st.integers(1, 10**15)),
        draw(st.integers(1, 9)),
        draw(st.binary(max_size=60)),
    )
    return Run(
        first, schema, before, VersionColumns.of([each for piece in pieces for each in piece]), commits
    )


runs = made_runs()


@given(runs)
def test_a_run_comes_back(run):
    assert read_run(stored(run)) == run


@given(runs)
def test_the_index_tells_without_the_states(run):
    event = stored(run, version=3)
    projected = RecordedEvent(
        3, {name: event.properties[name] for name in INDEX_PROPERTIES if name in event.properties}
    )

    index = read_index(projected)

    times = [made.enqueued_at for made in run.versions]
    dated = [time for time in times if time is not None]
    assert (index.event, index.first, index.last) == (3, run.first, run.first + len(run.versions) - 1)
    assert (index.count, index.commits) == (len(run.versions), run.commits)
    assert index.written_at == max(commit.written_at for commit in run.commits)
    assert read_ids(event) == [made.message_id for made in run.versions]
    assert index.newest == max(dated, default=None)
    assert index.undated == (None in times)
    assert not {*DATA_PROPERTIES, *ID_PROPERTIES} & set(projected.properties)


@given(runs)
def test_each_version_knows_the_state_it_was_made_on(run):
    states = run.states_before()

    assert states[0] == run.before
    for made, before, following in zip(run.versions, states, [*states[1:], None], strict=True):
        if following is not None:
            assert following == (before if made.after is None else made.after)


@pytest.mark.parametrize("size", [65_000, 65_537, 800_000])
def test_what_is_over_64_kib_is_split_and_joined_again(size):
    # Random bytes, so that compression does not make them small.
    run = run_of(version(1, captured={"noise": random.randbytes(size)}))

    event = stored(run)

    parts = [name for name in DATA_PROPERTIES if name in event.properties]
    assert len(parts) == -(-len(joined(event, DATA_PROPERTIES)) // 65_536)
    assert read_run(event) == run


def test_ids_over_64_kib_are_split_and_joined_again():
    keys = [f"{number:0250d}" for number in range(1000)]
    run = run_of(*(version(1, message_id=key) for key in keys))

    event = stored(run)

    assert len([name for name in ID_PROPERTIES if name in event.properties]) == 4
    assert read_ids(event) == keys
    assert read_run(event) == run


def test_what_a_row_cannot_hold_is_refused_rather_than_cut():
    too_much = run_of(version(1, captured={"noise": random.randbytes(65_536 * len(DATA_PROPERTIES) + 1)}))
    too_many = run_of(*(version(1, message_id="x" * 255) for _ in range(MAX_RUN_ID_BYTES // 255 + 10)))

    for run in (too_much, too_many):
        with pytest.raises(ValueError, match="bytes exceed the limit of a row"):
            run.event()


# Runs: bytes that are not what was written are told, and are never taken for another run.


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

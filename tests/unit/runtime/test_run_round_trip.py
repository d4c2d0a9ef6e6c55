"""Runs: what is stored of state versions comes back, whatever they hold."""

import dataclasses
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import EventData, Partition, RecordedEvent, Stream, connect, drive
from runtime.errors import RunCorruptError
from runtime.message_ids import id_key
from runtime.run import (
    DATA_PROPERTIES,
    ID_PROPERTIES,
    INDEX_PROPERTIES,
    MAX_ID_BYTES,
    Run,
    StateVersion,
    read_index,
    read_run,
)

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
    after=st.none() | st.binary(max_size=60),
)
runs = st.builds(
    Run,
    first=st.integers(1, 10**15),
    batch=st.none() | texts.filter(bool),
    written_at=moments,
    schema=st.integers(1, 9),
    before=st.binary(max_size=60),
    versions=st.lists(versions, min_size=1, max_size=12),
)


def version(number: int, **fields: object) -> StateVersion:
    made = StateVersion(
        number.to_bytes(16, "big"), "Rang", bytes(16), 7, None, None, None, 1, bytes(16), bytes(16), None
    )
    return made._replace(**fields)


def run_of(*versions: StateVersion, before: bytes = b"{}") -> Run:
    return Run(1, None, 7, 1, before, list(versions))


def stored(run: Run, *, version: int = 1) -> RecordedEvent:
    return RecordedEvent(version, run.event().properties)


@given(runs)
def test_a_run_comes_back(run):
    assert read_run(stored(run)) == run


@given(runs)
def test_the_index_tells_without_the_states(run):
    event = stored(run, version=3)
    projected = RecordedEvent(3, {name: event.properties[name] for name in INDEX_PROPERTIES if name in event.properties})

    index = read_index(projected)

    times = [made.enqueued_at for made in run.versions]
    dated = [time for time in times if time is not None]
    assert (index.event, index.first, index.last) == (3, run.first, run.first + len(run.versions) - 1)
    assert index.ids == [made.message_id for made in run.versions]
    assert (index.batch, index.written_at) == (run.batch, run.written_at)
    assert index.newest == max(dated, default=None)
    assert index.undated == (None in times)
    assert not set(DATA_PROPERTIES) & set(projected.properties)


@given(runs)
def test_each_version_knows_the_state_it_was_made_on(run):
    states = run.states_before()

    assert states[0] == run.before
    for made, before, following in zip(run.versions, states, [*states[1:], None], strict=True):
        if following is not None:
            assert following == (before if made.after is None else made.after)


def test_columns_that_are_empty_for_all_versions_come_back_empty():
    run = run_of(version(1), version(2))

    back = read_run(stored(run))

    assert [(made.headers, made.captured, made.after) for made in back.versions] == [(None, None, None)] * 2


def test_an_empty_state_is_not_no_change():
    run = run_of(version(1, after=b""), version(2, after=None))

    assert [made.after for made in read_run(stored(run)).versions] == [b"", None]


@pytest.mark.parametrize("size", [65_000, 65_536, 65_537, 200_000, 800_000])
def test_what_is_over_64_kib_is_split_and_joined_again(size):
    # Random bytes, so that compression does not make them small.
    run = run_of(version(1, captured={"noise": os.urandom(size)}))

    event = stored(run)

    parts = [name for name in DATA_PROPERTIES if name in event.properties]
    assert len(parts) == -(-sum(len(event.properties[name]) for name in parts) // 65_536)
    assert all(len(event.properties[name]) <= 65_536 for name in parts)
    assert read_run(event) == run


def test_ids_over_64_kib_are_split_and_joined_again():
    keys = [f"{number:0250d}" for number in range(1000)]
    run = run_of(*(version(1, message_id=key) for key in keys))

    event = stored(run)

    assert len([name for name in ID_PROPERTIES if name in event.properties]) == 4
    assert read_index(event).ids == keys
    assert read_run(event) == run


def test_what_a_row_cannot_hold_is_refused_rather_than_cut():
    too_much = run_of(version(1, captured={"noise": os.urandom(65_536 * len(DATA_PROPERTIES) + 1)}))
    too_many = run_of(*(version(1, message_id="x" * 255) for _ in range(MAX_ID_BYTES // 255 + 10)))

    for run in (too_much, too_many):
        with pytest.raises(ValueError, match="bytes are more than a row of a run can hold"):
            run.event()


def test_a_run_can_be_written_as_it_is():
    table = drive(connect("memory:").table("runs"))
    run = run_of(version(1, after=os.urandom(300_000), headers={"trace": "ä"}, enqueued_at=5), before=b"{}")

    drive(Stream.write(Partition(table, "Bell-east"), run.event(), expected_version=0))

    (event,) = drive(Stream.read(Partition(table, "Bell-east"))).events
    assert read_run(event) == run


def altered(event: RecordedEvent, **changes: object) -> RecordedEvent:
    properties = {**event.properties, **changes}
    return dataclasses.replace(event, properties={name: value for name, value in properties.items() if value is not None})


EVENT = stored(run_of(version(1, after=b'{"rings":1}', headers={"trace": "t"}), version(2, enqueued_at=9)))


@pytest.mark.parametrize("name", [name for name in EVENT.properties])
def test_a_lacking_property_is_told(name):
    with pytest.raises(RunCorruptError, match="Event 1 is no readable run"):
        read_run(altered(EVENT, **{name: None})) if name != "Newest" else read_run(altered(EVENT, Data=None))


@pytest.mark.parametrize(
    "changes",
    [
        {"Data": b""},
        {"Data": b"no zstandard"},
        {"Data": EVENT.properties["Data"][:-1]},
        {"Data": "text"},
        {"Ids": b""},
        {"Ids": b"\x02\x05"},
        {"Ids": b"\x02\xc1"},
        {"Ids": b"\x02\x92\xa1a"},
        {"Ids": "text"},
        {"Count": 3},
        {"Count": "2"},
        {"Ids": EVENT.properties["Ids"][:-16]},
        {"First": "one"},
        {"WrittenAt": 7},
        {"Newest": 7},
        {"Batch": 7},
    ],
)
def test_properties_that_are_not_what_was_written_are_told(changes):
    with pytest.raises(RunCorruptError, match="^Event 1 "):
        read_run(altered(EVENT, **changes))


@given(st.data())
def test_a_flipped_bit_never_gives_another_run(data):
    damaged = bytearray(EVENT.properties["Data"])
    bit = data.draw(st.integers(0, len(damaged) * 8 - 1))
    damaged[bit // 8] ^= 1 << bit % 8

    try:
        found = read_run(altered(EVENT, Data=bytes(damaged)))
    except RunCorruptError:
        return
    assert found == read_run(EVENT)


def test_a_format_of_newer_code_is_told():
    import msgpack  # noqa: PLC0415
    import zstandard  # noqa: PLC0415

    columns = msgpack.unpackb(zstandard.ZstdDecompressor().decompress(EVENT.properties["Data"]))
    newer = zstandard.ZstdCompressor().compress(msgpack.packb([2, *columns[1:]]))

    with pytest.raises(RunCorruptError, match="format 2 is unknown; this code reads format 1"):
        read_run(altered(EVENT, Data=newer))


def test_a_decompression_bomb_is_refused():
    import zstandard  # noqa: PLC0415

    bomb = zstandard.ZstdCompressor().compress(bytes(65 * 2**20))
    assert len(bomb) < 10_000

    with pytest.raises(RunCorruptError, match="are more than a run can have"):
        read_run(altered(EVENT, Data=bomb))


def test_a_frame_that_does_not_say_its_size_is_refused():
    import zstandard  # noqa: PLC0415

    silent = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(1000))

    with pytest.raises(RunCorruptError, match="are more than a run can have"):
        read_run(altered(EVENT, Data=silent))


def test_an_event_of_someone_else_is_no_run():
    with pytest.raises(RunCorruptError, match="Event 4 is no readable run of state versions"):
        read_index(RecordedEvent(4, EventData({"Hits": 1}).properties))

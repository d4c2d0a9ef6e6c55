"""Runs: what is stored of state versions comes back, whatever they hold."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Partition, RecordedEvent, Stream, connect, drive
from runtime.messages.envelope import id_key
from runtime.versions.columns import StateVersion, VersionColumns
from runtime.versions.limits import MAX_RUN_ID_BYTES
from runtime.versions.run import (
    DATA_PROPERTIES,
    ID_PROPERTIES,
    INDEX_PROPERTIES,
    Commit,
    Run,
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
    after=st.none() | st.binary(max_size=60),
)


written = st.tuples(st.none() | texts, moments) | st.tuples(texts, moments, st.integers(1, 2**53))
"""Who wrote the versions of a commit, and when: a batch with or without a number, or none."""


@st.composite
def made_runs(draw: st.DrawFn) -> Run:
    """Draw a run of versions of one or several commits."""
    pieces = draw(st.lists(st.lists(versions, min_size=1, max_size=5), min_size=1, max_size=3))
    commits = [Commit(len(piece), *draw(written)) for piece in pieces]
    made = [version for piece in pieces for version in piece]
    return Run(
        draw(st.integers(1, 10**15)),
        draw(st.integers(1, 9)),
        draw(st.binary(max_size=60)),
        VersionColumns.of(made),
        commits,
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
        with pytest.raises(ValueError, match="bytes are more than a row of a run can hold"):
            run.event()


def test_a_run_can_be_written_as_it_is():
    table = drive(connect("memory:").table("runs"))
    run = run_of(
        version(1, after=random.randbytes(300_000), headers={"trace": "ä"}, enqueued_at=5), before=b"{}"
    )

    drive(Stream.write(Partition(table, "Bell-east"), run.event(), expected_version=0))

    (event,) = drive(Stream.read(Partition(table, "Bell-east"))).events
    assert read_run(event) == run

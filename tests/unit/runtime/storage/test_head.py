"""The head of a stream comes back from the header's properties as it was."""

from hypothesis import given
from hypothesis import strategies as st

from eventstore import Operation, drive
from runtime.versions.dead_letters import Waiting
from runtime.versions.limits import MAX_HEAD_STATE_BYTES
from runtime.versions.tail import HEAD_PROPERTIES, Head, Tombstone, read_head
from tests.unit.runtime.tables import memory_table

moments = st.integers(-(10**16), 10**17)
heads = st.builds(
    Head,
    state=st.none() | st.binary(max_size=50),
    schema=st.integers(1, 9),
    versions=st.integers(1, 10**15),
    kept_from=st.just(1),
    last_now=moments,
    horizon=st.none() | moments,
    undated_cut=st.booleans(),
    tail=st.none(),
    tombstone=st.none() | st.builds(Tombstone, moments, st.booleans()),
    waiting=st.builds(
        Waiting, st.integers(0, 1000), st.none() | moments, st.booleans(), st.integers(0, 10**6)
    ),
).flatmap(lambda head: st.integers(1, head.versions + 1).map(lambda first: head._replace(kept_from=first)))


@given(heads)
def test_a_head_comes_back(head):
    assert read_head(head.properties()) == head
    assert set(head.properties()) <= set(HEAD_PROPERTIES)


@given(heads)
def test_a_head_can_be_written_as_it_is(head):
    table = memory_table()

    drive(table.transact("Diary-d-1", [Operation.insert("SS-HEAD", head.properties())]))

    row = drive(table.get("Diary-d-1", "SS-HEAD"))
    assert row is not None
    assert read_head(row.properties) == head


def test_a_state_that_is_too_large_is_left_to_the_newest_run():
    fits, too_large = (
        Head(b"x" * size, 1, versions=1) for size in (MAX_HEAD_STATE_BYTES, MAX_HEAD_STATE_BYTES + 1)
    )

    assert read_head(fits.properties()).state == fits.state
    assert read_head(too_large.properties()).state is None


def test_a_stream_that_has_letters_only_has_no_state():
    assert read_head(Head(b"initial", 1).properties()).state is None


@given(st.none() | moments, st.none() | moments, st.booleans())
def test_what_is_too_late_is_told_by_the_horizon_or_the_mark(enqueued_at, horizon, undated_cut):
    head = Head(b"", 1, horizon=horizon, undated_cut=undated_cut)

    if enqueued_at is None:
        assert head.is_too_late(enqueued_at) is undated_cut
    else:
        assert head.is_too_late(enqueued_at) is (horizon is not None and enqueued_at <= horizon)

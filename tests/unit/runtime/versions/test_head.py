"""The header: the newest state, and the newest versions segment by segment, until they are enough for a run."""

import random

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Operation, drive
from runtime.errors import StoredDataError
from runtime.versions import limits
from runtime.versions.dead_letter_rows import Waiting
from runtime.versions.head import HEAD_PROPERTIES, Head, Segment, Tail, Tombstone, read_head, read_tail
from runtime.versions.limits import MAX_HEAD_STATE_BYTES
from runtime.versions.run import Commit, Run, VersionColumns
from tests.unit.runtime.diary import write
from tests.unit.runtime.indexes import check_index
from tests.unit.runtime.runs import body_of, version, with_body
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import Worker, made_by, stored

LARGE = random.Random(1).randbytes(2000)


def tail_of(*commits: list, before: bytes = b"{}") -> Tail:
    """Return a tail of some commits, each with its versions."""
    made = Tail(1, 1, before)
    for versions in commits:
        state = made.run().after if made.segments else made.before
        made = made.plus(segment_of(*versions, before=state, commit=Commit(len(versions), "b", 7)))
    return made


def segment_of(*versions, before: bytes = b"{}", commit: Commit | None = None) -> Segment:
    """Return the segment of some versions, by default of one commit without a batch."""
    return Segment.of(VersionColumns.of(versions), 1, before, commit or Commit(len(versions), None, 7))


@given(
    st.lists(
        st.lists(st.none() | st.binary(max_size=40) | st.just(LARGE), min_size=1, max_size=4),
        min_size=1,
        max_size=5,
    ),
    st.sampled_from([b"{}", LARGE]),
)
def test_a_tail_comes_back_as_the_run_that_it_is(commits, before):
    numbers = iter(range(1, 100))
    versions = [[version(next(numbers), after=after) for after in commit] for commit in commits]

    made = tail_of(*versions, before=before)

    back = read_tail(made.pack())
    columns = VersionColumns.of([made for commit in versions for made in commit])
    assert back == made
    assert back.run() == Run(1, 1, before, columns, [Commit(len(commit), "b", 7) for commit in versions])
    assert [index.first for index in back.indexes()] == [commit[0].message_id[-1] for commit in versions]


def test_a_segment_of_a_batch_has_its_number_and_others_are_stored_as_before_there_were_any():
    commits = [Commit(1, None, 7), Commit(1, "old", 8), Commit(1, "new", 9, 3)]
    segments = [segment_of(version(number), commit=commit) for number, commit in enumerate(commits, 1)]
    tail = Tail.of(1, 1, b"{}", segments)

    unpacker = msgpack.Unpacker()
    unpacker.feed(msgpack.unpackb(body_of(tail))[-1])
    assert [len(segment) for segment in unpacker] == [7, 7, 8]
    assert list(read_tail(tail.pack()).run().commits) == commits
    assert [index.commits for index in read_tail(tail.pack()).indexes()] == [[commit] for commit in commits]
    packed = bytes(tail.run().event().properties["Commits"])  # type: ignore[arg-type]
    assert msgpack.unpackb(packed) == [[1, None, 7], [1, "old", 8], [1, "new", 9, 3]]


@given(st.lists(st.integers(1, 4), min_size=2, max_size=5), st.data())
def test_what_is_left_of_a_tail_is_what_it_was(lengths, data):
    numbers = iter(range(1, 100))
    whole = tail_of(
        *[[version(next(numbers), after=random.randbytes(600)) for _ in range(each)] for each in lengths]
    )
    gone = sum(lengths[: data.draw(st.integers(0, len(lengths) - 1))])

    left = whole.from_version(1 + gone)

    assert left.count == sum(lengths) - gone
    assert left.run().versions == whole.run().versions[gone:]
    assert left.run().states_before() == whole.run().states_before()[gone:]


def test_a_tail_is_full_of_bytes_before_and_after_compression():
    one = segment_of(version(1, after=bytes(3 * 2**20)))
    assert one.size < 1000
    assert Tail(1, 1, b"{}").takes(one, 1)

    for full in (one, segment_of(version(1, after=random.randbytes(20_000)))):
        assert not Tail(1, 1, b"{}").plus(full).takes(full, 1)


@given(
    batches=st.lists(st.lists(st.integers(0, 30), min_size=1, max_size=6), max_size=12),
    room=st.sampled_from([0, 300, 900, 32_768]),
    few=st.integers(1, 6),
)
def test_wherever_versions_are_kept_each_message_takes_effect_once(batches, room, few):
    plain, table = memory_table(), memory_table()
    for number, batch in enumerate(batches):
        messages = [write(str(line)) for line in batch]
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(limits, "MAX_SEGMENT_BYTES", 0)
            expected = Worker(plain, batch=str(number)).process(*messages)
            patch.setattr(limits, "MAX_SEGMENT_BYTES", room)
            patch.setattr(limits, "MAX_SEGMENT_VERSIONS", few)
            patch.setattr(limits, "MAX_TAIL_BYTES", room)
            found = Worker(table, batch=str(number)).process(*messages)
        assert found == expected

    check_index(table)
    check_index(plain)
    assert made_by(table) == made_by(plain)
    assert [(each.number, each.record, each.before, each.batch) for each in stored(table)] == [
        (each.number, each.record, each.before, each.batch) for each in stored(plain)
    ]


def test_a_small_change_of_a_large_state_takes_few_bytes_also_one_by_one(table):
    count, random_lines = 400, random.Random(1)
    Worker(table).process(write(random_lines.randbytes(4000).hex(), "first"))
    for number in range(count):
        Worker(table, batch="batch-1").process(write("x", f"{number:032x}"))

    assert len(made_by(table)) == 1 + count
    values = [value for row in rows(table).values() for value in row.values() if isinstance(value, bytes)]
    state = rows(table)["Diary-d-1", "SS-HEAD"]["State"]
    assert len(state) > 8000
    # The newest state is in the header, and so is the state before the tail.
    assert (sum(map(len, values)) - 3 * len(state)) / count < 200


TAIL = tail_of([version(1, after=b"x")], [version(2)])
GOOD = TAIL.pack()
FIRST, SCHEMA, BEFORE, LENGTH, COUNT, RAW_BYTES, IDS, SEGMENTS = range(8)


def check_is_told(packed: bytes) -> None:
    with pytest.raises(StoredDataError, match="The tail of the stream cannot be read"):
        read_tail(packed).run()


@given(st.integers(0, len(GOOD) - 1), st.integers(0, 7))
def test_one_changed_bit_is_told_wherever_it_stands(at, bit):
    changed = bytearray(GOOD)
    changed[at] ^= 1 << bit

    check_is_told(bytes(changed))


@pytest.mark.parametrize(
    "bad",
    [
        *(b"", b"\xc1", msgpack.packb(7), msgpack.packb([]), msgpack.packb([2, 7]), GOOD[:-1]),
        *(with_body(b""), with_body(msgpack.packb(7))),
        *(msgpack.packb([1, 1, 1, b"", segments]) for segments in ([[1]], [])),
        msgpack.packb([3, *msgpack.unpackb(GOOD)[1:]]),
    ],
)
def test_bytes_that_are_no_tail_are_told(bad):
    check_is_told(bad)


@pytest.mark.parametrize(
    "change", [{0: 0}, {0: None}, {1: 7}, {6: "text"}, {6: b"no zstandard"}, {7: "text"}]
)
@pytest.mark.parametrize("position", [0, 1])
def test_a_segment_with_a_field_that_cannot_be_is_told_wherever_it_stands(change, position):
    fields = msgpack.unpackb(body_of(TAIL))
    unpacker = msgpack.Unpacker()
    unpacker.feed(fields[SEGMENTS])
    segments = list(unpacker)
    segments[position] = list((dict(enumerate([*segments[position], None])) | change).values())
    fields[SEGMENTS] = b"".join(map(msgpack.packb, segments))

    check_is_told(with_body(msgpack.packb(fields)))


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *((FIRST, 0), (SCHEMA, "1"), (BEFORE, None), (COUNT, 3), (COUNT, True)),
        *((LENGTH, number) for number in (0, 1, 3, 2**40)),
        *((IDS, b"\x02\xc1"), (IDS, TAIL.packed_ids[:-16])),
        *((SEGMENTS, b""), (SEGMENTS, TAIL.packed + b"\x07"), (SEGMENTS, msgpack.packb([1]) * 2)),
    ],
)
def test_segments_that_do_not_agree_with_their_numbers_are_told_when_they_are_read(field, value):
    fields = msgpack.unpackb(body_of(TAIL))
    fields[field] = value

    check_is_told(with_body(msgpack.packb(fields)))


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
    followed=st.integers(0, 10**15),
    shared=st.booleans(),
).flatmap(lambda head: st.integers(1, head.versions + 1).map(lambda first: head._replace(kept_from=first)))


@given(heads)
def test_a_head_comes_back_as_it_was_written(head):
    assert set(head.properties()) <= set(HEAD_PROPERTIES)
    table = memory_table()

    drive(table.transact("Diary-d-1", [Operation.insert("SS-HEAD", head.properties())]))

    row = drive(table.get("Diary-d-1", "SS-HEAD"))
    assert row is not None
    assert read_head(row.properties) == read_head(head.properties()) == head


def test_a_state_that_is_too_large_is_left_to_the_newest_run_and_letters_alone_have_none():
    for size, is_kept in ((MAX_HEAD_STATE_BYTES, True), (MAX_HEAD_STATE_BYTES + 1, False)):
        head = Head(b"x" * size, 1, versions=1)
        assert read_head(head.properties()).state == (head.state if is_kept else None)
    assert read_head(Head(b"initial", 1).properties()).state is None


@pytest.mark.parametrize(
    ("enqueued_at", "horizon", "undated_cut", "expected"),
    [
        (7, 7, False, True),
        (8, 7, True, False),
        (7, None, True, False),
        (None, 7, False, False),
        (None, 7, True, True),
    ],
)
def test_what_is_too_late_is_told_by_the_horizon_or_the_mark(enqueued_at, horizon, undated_cut, expected):
    assert Head(b"", 1, horizon=horizon, undated_cut=undated_cut).is_too_late(enqueued_at) is expected

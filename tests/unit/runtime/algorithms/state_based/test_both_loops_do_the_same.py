"""The loop of a chain in C does what the one in Python does, whatever handlers do."""

from __future__ import annotations

from typing import Any

import msgpack
import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers.context import OutputRoom
from runtime.algorithms.state_based.chain import Known, Progress, Replays
from runtime.storage import limits
from tests.unit.runtime.algorithms.state_based.deeds import DEEDS, FINE, ODD, Do
from tests.unit.runtime.algorithms.state_based.loops import (
    EMPTY,
    HANDLER,
    begin,
    both,
    clock_of,
    handle_all,
    needs_native,
    replay_all,
    row,
    rows_of,
    shown_progress,
)

pytestmark = needs_native

ROOM = OutputRoom(4, 200)
METHOD = HANDLER.routes["Do"].revisions[3]
ONE = HANDLER.codec.encode(HANDLER.codec.reread(EMPTY).model_copy(update={"count": 1}))
EVERYTHING = 10**9

headers = st.sampled_from([None, {}, {"a": "b"}])
deeds = st.one_of(st.sampled_from(sorted(FINE)), st.sampled_from(sorted(DEEDS)))
numbers = st.sampled_from([0, 1, 1, 2, -3, 10**6, 2**64])
rows = st.builds(row, deeds, numbers, headers, st.sampled_from(["Do", "Do", "Do", "Make", "Undo", "Unknown"]))
times = st.lists(
    st.one_of(
        st.integers(0, 9),
        st.sampled_from([True, 2.5, float("nan"), "noon", None, OSError("no time"), SystemExit()]),
    ),
    min_size=1,
    max_size=4,
)


@pytest.mark.parametrize("deed", DEEDS)
def test_a_deed_comes_to_the_same_in_both_loops(deed):
    # Given a deed on a new state and on one that another deed has made, and one that follows
    given_rows = rows_of([row(deed), row("note", 5), row(deed, 2, {"a": "b"}), row("add"), row(deed, 3)])

    native, python = (
        handle_all(make(clock_of([3, 4, 2])), given_rows, EVERYTHING, begin()) for make in both(room=ROOM)
    )

    assert native == python


@pytest.mark.parametrize("deed", DEEDS)
def test_a_deed_that_is_replayed_comes_to_the_same_in_both_loops(deed):
    captured = {"c": msgpack.packb(3)}
    known = [
        Known(f"m-{place}", METHOD, Do(id="the one", deed=each), place, None, captured, before)
        for place, (each, before) in enumerate([("add", EMPTY), (deed, ONE), ("add", EMPTY), (deed, EMPTY)])
    ]

    native, python = (replay_all(make(clock_of([0])), known) for make in both())
    first_native, first_python = (replay_all(make(clock_of([0])), known[3:]) for make in both())

    assert native == python
    assert first_native == first_python


@pytest.mark.parametrize("before", [EMPTY, ONE, b""])
def test_a_replay_without_records_captures_nothing_in_both_loops(before):
    known = [Known("m", METHOD, Do(id="the one", deed="capture"), 1, None, None, before)]

    native, python = (replay_all(make(clock_of([0])), known) for make in both())

    assert native == python


@pytest.mark.parametrize("more", [-1, 0, 1])
@pytest.mark.parametrize("deed", ["very long text", "capture"])
def test_a_version_is_too_large_from_the_same_byte_on(monkeypatch, deed, more):
    # Given the size of a version, of which the state or what is beside it is the larger part
    given_rows = rows_of([row("add"), row(deed, 1, {"a": "b" * 99})])
    progress = begin()
    both()[1](clock_of([1])).handle(progress, given_rows, EVERYTHING)
    largest = max(len(progress.afters[1]), 82 + 4 * (1 + 99) + (5 if deed == "capture" else 0))
    monkeypatch.setattr(limits, "MAX_STATE_BYTES", largest + more)

    seen = [begin(), begin()]
    for make, each in zip(both(), seen, strict=True):
        make(clock_of([1])).handle(each, given_rows, EVERYTHING)

    assert shown_progress(seen[0]) == shown_progress(seen[1])
    assert [each.excess for each in seen] == [largest if more < 0 else 0] * 2


@pytest.mark.parametrize(("more", "handled"), [(-1, 2), (0, 2), (1, 3)])
def test_a_run_ends_at_the_same_byte(more, handled):
    given_rows = rows_of([row("add"), row("copy"), row("add")])
    progress = begin()
    both()[1](clock_of([1])).handle(progress, given_rows._replace(end=2), EVERYTHING)

    seen = [begin(), begin()]
    for make, each in zip(both(), seen, strict=True):
        make(clock_of([1])).handle(each, given_rows, progress.size + more)

    assert shown_progress(seen[0]) == shown_progress(seen[1])
    assert len(seen[0].made) == handled


@pytest.mark.parametrize("first", FINE)
@pytest.mark.parametrize("second", ["add", "return the input", "change and fail", "set past the guard"])
def test_what_follows_a_deed_comes_to_the_same(first, second):
    native, python = (
        handle_all(
            make(clock_of([1])), rows_of([row(first, 4), row(second), row(first, 4)]), EVERYTHING, begin()
        )
        for make in both()
    )

    assert native == python


@given(
    st.lists(rows, max_size=9),
    times,
    st.sampled_from([None, ROOM]),
    st.sampled_from([1, 200, 400, 700, EVERYTHING]),
    st.sampled_from([100, 4000, EVERYTHING]),
)
def test_messages_in_a_row_come_to_the_same_in_both_loops(given_rows, given_times, room, size, largest):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_STATE_BYTES", largest)
        native, python = (
            handle_all(make(clock_of(given_times)), rows_of(given_rows), size, begin())
            for make in both(room=room)
        )

    assert native == python


known_messages = st.builds(
    Known,
    st.sampled_from(["m-1", "m-2"]),
    st.just(METHOD),
    st.builds(Do, id=st.just("the one"), deed=deeds, number=numbers),
    st.integers(0, 9),
    headers,
    st.sampled_from([None, {}, {"c": msgpack.packb(3)}, {"c": b"\xc1"}, {"d": b""}]),
    st.sampled_from([EMPTY, EMPTY, EMPTY, ONE, ONE, b"{", b"[]", b'{"count":"x"}', b'{"count":"1"}', b"{}"]),
)


@given(st.lists(known_messages, max_size=6))
def test_messages_that_are_replayed_in_a_row_come_to_the_same_in_both_loops(known):
    native, python = (replay_all(make(clock_of([0])), known) for make in both())

    assert native == python


@pytest.mark.parametrize(("first", "end"), [(0, 0), (1, 3), (2, 2), (0, 4)])
def test_only_the_rows_that_are_asked_for_are_handled(first, end):
    given_rows = rows_of([row("add", number) for number in range(4)], first, end)
    seen = [begin(), begin()]

    for make, progress in zip(both(), seen, strict=True):
        make(clock_of([1])).handle(progress, given_rows, EVERYTHING)

    assert shown_progress(seen[0]) == shown_progress(seen[1])
    assert seen[0].made.positions == list(range(first, end))


def test_sizes_add_up_over_calls_that_go_on_with_one_progress():
    seen = [begin(), begin()]

    for make, progress in zip(both(), seen, strict=True):
        for size in (1, 500, EVERYTHING):
            make(clock_of([1])).handle(progress, rows_of([row("add"), row("copy"), row("publish")]), size)

    assert shown_progress(seen[0]) == shown_progress(seen[1])
    assert seen[0].size > 500


@pytest.mark.parametrize("change", ["take away", "add many", "add many and in the call", "reorder"])
def test_a_state_that_somebody_changes_between_two_calls_comes_to_the_same(change):
    def run(make):
        progress = begin()

        def clock() -> int:
            fields = progress.state.__dict__
            if change.startswith("add many"):
                fields.update({f"much_{place}": place for place in range(90)})
            else:
                most = fields.pop("most", None)
            if change == "reorder":
                object.__setattr__(progress.state, "__dict__", {"most": most, **fields})
            return 1

        chain = make(clock)
        deed = "grow" if change == "add many and in the call" else "add and take back"
        return handle_all(chain, rows_of([row("copy"), row(deed), row("add")]), EVERYTHING, progress)

    native, python = map(run, both())

    assert native == python


def test_a_replay_that_fails_leaves_the_state_of_the_last_that_did_not():
    known = [
        Known("m-1", METHOD, Do(id="the one", deed="add"), 1, None, None, EMPTY),
        Known("m-2", METHOD, Do(id="the one", deed="change and fail", number=9), 1, None, None, EMPTY),
    ]

    for make in both():
        replays: Any = Replays()
        with pytest.raises(ValueError, match="changed"):
            make(clock_of([1])).replay(replays, known)

        assert (replays.state.count, replays.before, replays.is_calling) == (1, ONE, True)


@pytest.mark.parametrize(
    "deed", ["delete what was published", "delete what was captured", "delete the documents"]
)
def test_an_output_that_a_handler_deletes_is_its_error(deed):
    for make in both():
        progress = begin()
        with pytest.raises(AttributeError):
            make(clock_of([1])).handle(progress, rows_of([row("add"), row(deed)]), EVERYTHING)

        assert progress.is_calling
        assert {len(column) for column in progress.made.columns()} == {1}


def test_an_unknown_type_is_no_error_of_the_handler():
    for make in both():
        progress = begin()
        with pytest.raises(KeyError, match="Unknown"):
            make(clock_of([1])).handle(
                progress, rows_of([row("add"), row("add", type_="Unknown")]), EVERYTHING
            )

        assert (progress.is_calling, len(progress.made), progress.state.count) == (False, 1, 1)


def test_the_deeds_are_what_they_are_meant_to_be():
    # Given each deed alone, an odd one fails or leaves no trace, so that the tests above see both
    failed = set()
    for deed in DEEDS:
        progress: Progress = begin()
        try:
            both(room=ROOM)[1](clock_of([1])).handle(progress, rows_of([row(deed)]), EVERYTHING)
        except BaseException:  # noqa: BLE001 - any
            failed.add(deed)

    assert failed <= set(ODD)
    assert len(failed) > len(ODD) / 2

"""The loop of a chain in C: it is there and used, stops at what it cannot do, and keeps nothing that it was given."""

import gc
import subprocess
import sys
import tracemalloc
from importlib import import_module
from typing import Any
from unittest.mock import Mock

import pytest
from pydantic import create_model

from handlers import App, Context, Handler, Message, State, handles
from handlers.context import OutputRoom
from handlers.native import PURE_PYTHON
from runtime.algorithms.state_based import chain as chains
from runtime.algorithms.state_based.chain import Chain, Known, Replays
from runtime.storage import limits
from tests.unit.runtime.algorithms.state_based.deeds import DEEDS, FINE, Do, Seen
from tests.unit.runtime.algorithms.state_based.loops import (
    EMPTY,
    HANDLER,
    begin,
    both,
    clock_of,
    handle_all,
    interrupts,
    native_module,
    needs_native,
    row,
    rows_of,
)

FIELDS = 64
EVERYTHING = 10**9
ROUNDS = 200
FIRST = 300
"""A position of which Python has no number at hand."""
METHOD = HANDLER.routes["Do"].revisions[3]

IN_ANOTHER_PROCESS = """
from tests.unit.runtime.algorithms.state_based.loops import HANDLER, begin, clock_of, row, rows_of
from runtime.algorithms.state_based import chain
progress, made = begin(), chain.Chain(HANDLER, "the one", clock_of([1]))
made.handle(progress, rows_of([row("add"), row("add")]), 10**9)
print(chain._native, made._parts, progress.state.count)
"""


class Grow(Message):
    id: str
    deed: str


def wide_handler(count):
    """Return a handler whose state has so many fields."""
    fields: Any = {f"f{place}": (int, 0) for place in range(count)}
    state_type: Any = create_model("Wide", __base__=State, **fields)

    class Widener(Handler[state_type]):
        @handles(by="id")
        def grow(self, state, message: Grow, context: Context):
            last = f"f{count - 1}"
            match message.deed:
                case "add":
                    return state.model_copy(update={last: getattr(state, last) + 1})
                case "add to the input":
                    state.__dict__.update({f"more_{place}": 1 for place in range(FIELDS)})
                    return state.model_copy(update={last: 1})
                case "add to the result":
                    copy = state.model_copy()
                    copy.__dict__["more"] = 1
                    return copy
                case "take from the input":
                    copy = state.model_copy()
                    del state.__dict__[last]
                    return copy
                case "change the input":
                    state.__dict__[last] = 5_000
            return state

    return App(Widener).handlers["Widener"]


def wide_rows():
    deeds = ["add", "return", "add to the input", "add", "take from the input", "add to the result", "add",
             "change the input", "add"]  # fmt: skip
    return rows_of([(f"m-{deed}", "Grow", None, Grow(id="w", deed=deed)) for deed in deeds])


@needs_native
def test_a_chain_of_plain_states_runs_in_c(monkeypatch):
    # Given a loop in C that tells when it is called
    native = native_module()
    spy = Mock(wraps=native, MAX_FIELDS=native.MAX_FIELDS)
    monkeypatch.setattr(chains, "_native", spy)
    progress = begin()
    replays: Any = Replays()

    # When messages are handled and replayed
    made = Chain(HANDLER, "the one", clock_of([1]))
    made.handle(progress, rows_of([row("add"), row("add")]), EVERYTHING)
    made.replay(replays, [Known("m", METHOD, Do(id="the one", deed="add"), 1, None, None, EMPTY)])

    # Then it was, once for all of them
    assert (spy.handle.call_count, spy.replay.call_count) == (1, 1)
    assert (progress.state.count, replays.state.count) == (2, 1)


@needs_native
def test_most_deeds_of_a_good_handler_are_not_settled_by_python():
    # Given a chain in C that counts what it leaves to Python
    chain = both()[0](clock_of([1]))
    *others, settle, size = chain._parts
    spy = Mock(wraps=settle)
    chain._parts = (*others, spy, size)
    settled = set()

    # When each good deed is done on a state
    for deed in FINE:
        spy.reset_mock()
        chain.handle(begin(), rows_of([row(deed)]), EVERYTHING)
        if spy.called:
            settled.add(deed)

    # Then it was left those whose states are not as pydantic reads them, or long
    assert settled == {"make anew", "very long text"}


@needs_native
def test_with_a_place_for_documents_a_chain_runs_in_python():
    progress = begin()

    both()[0](clock_of([1])).handle(progress, rows_of([row("store a document")]), EVERYTHING, "the/place")

    assert progress.documents[0].reference.name == "the/place-8-some.txt"


@needs_native
@pytest.mark.parametrize("count", [1, 2, FIELDS - 1, FIELDS])
def test_states_of_up_to_64_fields_come_to_the_same_in_both_loops(count):
    handler = wide_handler(count)

    native, python = (
        handle_all(make(clock_of([1])), wide_rows(), EVERYTHING, begin(handler.initial, handler=handler))
        for make in both(handler)
    )

    assert native_module().MAX_FIELDS == FIELDS
    assert native == python


def test_a_state_of_more_fields_is_handled_in_python():
    handler = wide_handler(FIELDS + 1)
    progress = begin(handler.initial, handler=handler)
    chain = Chain(handler, "the one", clock_of([1]))

    chain.handle(progress, wide_rows()._replace(end=2), EVERYTHING)

    assert chain._parts is None
    assert (len(progress.made), progress.state.f64) == (2, 1)


def test_without_the_part_in_c_python_does_it_all(monkeypatch):
    monkeypatch.setattr(chains, "_native", None)
    progress = begin()
    chain = Chain(HANDLER, "the one", clock_of([1]))

    chain.handle(progress, rows_of([row("add"), row("add")]), EVERYTHING)

    assert chain._parts is None
    assert progress.state.count == 2


def test_a_process_that_wants_python_alone_leaves_the_part_in_c_aside(monkeypatch):
    monkeypatch.setenv(PURE_PYTHON, "1")

    ended = subprocess.run(
        [sys.executable, "-c", IN_ANOTHER_PROCESS], capture_output=True, text=True, check=True
    )

    assert ended.stdout == "None None 2\n"


@needs_native
@pytest.mark.parametrize(
    "wrong",
    [
        {"before": "text"},
        {"before": None},
        {"afters": ()},
        {"size": "large"},
        {"size": 2**70},
        {"made": None},
        {"state": None},
    ],
)
def test_what_is_no_progress_is_an_error_and_no_crash(wrong):
    progress = begin()
    for name, value in wrong.items():
        setattr(progress, name, value)

    with pytest.raises((TypeError, OverflowError, AttributeError)):
        both()[0](clock_of([1])).handle(progress, rows_of([row("add")]), EVERYTHING)


@needs_native
@pytest.mark.parametrize(("place", "wrong"), [(4, ()), (8, []), (9, ()), (11, "many"), (11, 2**70)])
def test_what_are_no_parts_of_a_chain_is_an_error_and_no_crash(place, wrong):
    chain = both()[0](clock_of([1]))
    parts = list(chain._parts)
    parts[place] = wrong

    for each in (tuple(parts), tuple(parts[1:]), parts, None):
        chain._parts = each or ()
        with pytest.raises((TypeError, OverflowError)):
            chain.handle(begin(), rows_of([row("add")]), EVERYTHING)


@needs_native
@pytest.mark.parametrize("place", [-1, 1, 2**40])
def test_a_row_that_is_not_there_is_an_error(place):
    with pytest.raises(IndexError):
        both()[0](clock_of([1])).handle(begin(), rows_of([row("add")], place, place + 1), EVERYTHING)


@needs_native
@pytest.mark.parametrize("settled", [None, (), ("state", "text"), ("state", b"", 1)])
def test_what_is_settled_in_another_way_is_an_error_and_no_crash(settled):
    chain = both()[0](clock_of([1]))
    *others, _, size = chain._parts
    chain._parts = (*others, lambda *_: settled, size)

    with pytest.raises((TypeError, SystemError)):
        chain.handle(begin(), rows_of([row("make anew")]), EVERYTHING)


@needs_native
def test_a_handler_may_take_away_what_the_loop_was_given():
    # Given rows that a handler empties while it handles one of them
    rows: Any = rows_of([(f"m-{place}" * 9, "Do", {"a": "b"}, row("add")[3]) for place in range(3)])

    def clock():
        for column in rows[:4]:
            column.clear()
        return 1

    # When they are handled, then the first is, and the next is not there
    progress = begin()
    with pytest.raises(IndexError):
        both()[0](clock).handle(progress, rows, EVERYTHING)

    assert (len(progress.made), progress.is_calling) == (1, False)


@needs_native
def test_a_handler_may_handle_messages_of_another_stream(monkeypatch):
    # Given a deed that handles messages itself, by the loop in C
    def nested(state, number, context):
        inner = begin()
        both()[0](clock_of([1])).handle(inner, rows_of([row("add")] * 3), EVERYTHING)
        return state.model_copy(update={"count": state.count + inner.state.count})

    monkeypatch.setitem(DEEDS, "nested", nested)
    progress = begin()

    both()[0](clock_of([1])).handle(progress, rows_of([row("nested")] * 2), EVERYTHING)

    assert progress.state.count == 6


@needs_native
def test_nothing_is_kept_of_what_was_handled(monkeypatch):
    # Given rows for each deed, and a chain in C
    chain = both(room=OutputRoom(4, 200))[0](clock_of([10**9]))
    monkeypatch.setattr(limits, "MAX_STATE_BYTES", 10_000)
    before = [row("add")] * FIRST
    given = {
        deed: rows_of([*before, row(deed, 3), row("add", 3, {"a": "b"}), row(deed, 3)], FIRST)
        for deed in DEEDS
    }
    known = {
        deed: [
            Known("m" * 9, METHOD, Do(id="the one", deed=each), 10**9, {"a": "b"}, {"c": b"\x03"}, EMPTY)
            for each in ("add", deed)
        ]
        for deed in DEEDS
    }
    shared = [
        *chain._parts,
        *chain._ways.values(),
        *(cell for rows in given.values() for column in rows[:4] for cell in column[FIRST:]),
        *(cell for row in known.values() for each in row for cell in (each, *each)),
    ]
    shared = [each for each in shared if each is not None]

    def once():
        for deed in (*DEEDS, *["very long text"] * 4):  # ends a run by its size, which no other does
            progress, replays = begin(), Replays()
            for run in (
                lambda: chain.handle(progress, given[deed], EVERYTHING),  # noqa: B023 - called at once
                lambda: chain.replay(replays, known[deed]),  # noqa: B023 - called at once
            ):
                try:
                    run()
                except BaseException as error:  # noqa: BLE001 - handlers raise any
                    _forget_traces(error)
        Seen.calls, Seen.returned = [], None

    def grown():
        before = sys.getallocatedblocks()
        for _ in range(ROUNDS):
            once()
        gc.collect()
        return sys.getallocatedblocks() - before  # Python itself takes and frees some blocks now and then

    # When all is done again and again
    with interrupts():
        for _ in range(10):
            once()
        gc.collect()
        counts = list(map(sys.getrefcount, shared))
        is_steady = any(grown() < ROUNDS / 2 for _ in range(3))

    # Then no memory is kept each time, no reference is left, and none is missing
    assert is_steady
    now = list(map(sys.getrefcount, shared))
    assert [
        after - before for before, after in zip(counts, now, strict=True) if abs(after - before) > 5
    ] == []


@needs_native
def test_no_large_state_is_kept():
    chain = both()[0](clock_of([1]))
    rows = rows_of([row("very long text"), row("long text"), row("an integer too long"), row("no note")])

    def peak_after(times):
        for _ in range(times):
            with pytest.raises(BaseException):  # noqa: B017, PT011 - whatever it is
                chain.handle(begin(), rows, EVERYTHING)
        Seen.calls, Seen.returned = [], None
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    try:
        before = peak_after(2)
        after = peak_after(100)
    finally:
        tracemalloc.stop()

    assert after - before < 50_000


def test_the_part_in_c_is_found_by_its_name():
    assert chains._native is None or chains._native is import_module("runtime.algorithms.state_based._chain")


def _forget_traces(error):
    while error is not None:
        error.__traceback__ = None
        error = error.__context__

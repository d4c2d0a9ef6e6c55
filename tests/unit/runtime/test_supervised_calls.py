"""A supervised call does the same in C and in Python: it notes its message, tries suspects apart, and expires."""

from __future__ import annotations

import gc
import os
import sys
from functools import wraps
from types import SimpleNamespace
from typing import Any

import pytest

from handlers.native import PURE_PYTHON
from runtime.algorithms.invocation import CallCrashedError, CallTimedOutError
from runtime.supervision import watch as supervision
from runtime.supervision.note import ROOM, Note
from runtime.supervision.watch import Watch

is_pure = os.environ.get(PURE_PYTHON, "0") not in {"", "0"}
needs_c = pytest.mark.skipif(is_pure, reason=f"{PURE_PYTHON} is set")


@pytest.fixture(params=[pytest.param("C", marks=needs_c), "Python"])
def language(request, monkeypatch):
    """Have calls supervised in a language."""
    if request.param == "Python":
        monkeypatch.setattr(supervision, "_native", None)
    else:
        assert supervision._native is not None, "the part in C was not built: make setup-test"
    return request.param


def context(message_id: object = "m") -> Any:
    return SimpleNamespace(_message_id=message_id)


def noted(note: Note) -> bytes:
    size = int.from_bytes(note.memory[:2], "little")
    return note.memory[2 : 2 + size]


def supervise(method: Any, watch: Any = None) -> Any:
    """Return a supervised method, whatever it takes and gives."""
    return (watch or Watch(30, Note())).supervise(method)


class CrashingWatch(Watch):
    """Says of each suspect that it ends its process."""

    def _try_apart(self, *given: Any) -> None:
        raise CallCrashedError(given)


def test_it_gives_what_the_method_gives_and_knows_its_message_meanwhile(language):
    note = Note()
    watch = Watch(30, note)
    seen = []

    def do(*given: object) -> object:
        seen.append((given, watch._now.message_id, watch._now.calls, noted(note)))
        return given

    call = supervise(do, watch)
    a, b, c = 1, "two", context("first")

    assert call(a, b, c) == (a, b, c)
    assert call(a, b, context("second"))
    assert seen == [((a, b, c), "first", 1, b"first"), ((a, b, context("second")), "second", 2, b"second")]
    # Then the note stays, and nothing is being handled
    assert (watch._now.message_id, watch._now.calls, noted(note)) == (None, 2, b"second")


@pytest.mark.parametrize(
    "message_id",
    ["", "x", "x" * 255, "x" * 256, "x" * ROOM, "x" * (ROOM + 1), "ä€😀" * 400, "\ud800", "\0"],
    ids=ascii,
)
def test_any_id_is_noted(language, message_id):
    note = Note()
    call = supervise(lambda *_: noted(note), Watch(30, note))

    assert call(1, 2, context(message_id)) == message_id.encode("utf-8", "surrogatepass")[:ROOM]


@pytest.mark.parametrize(
    "error", [ValueError("its own"), KeyboardInterrupt(), SystemExit(3), CallTimedOutError("now")]
)
def test_an_error_leaves_nothing_behind(language, error):
    watch = Watch(30, Note())

    def fail(*_: object) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        supervise(fail, watch)(1, 2, context())

    assert raised.value is error
    assert watch._now.message_id is None


def test_a_suspect_is_tried_apart_before_and_counts_as_no_call(language):
    watch = CrashingWatch(30, Note(), ["suspect"])
    handled = []
    call = supervise(lambda *given: handled.append(given), watch)

    call(1, 2, context("other"))
    with pytest.raises(CallCrashedError) as raised:
        call(1, 2, context("suspect"))

    assert raised.value.args[0][1:] == (1, 2, context("suspect"))
    assert (len(handled), watch._now.calls, watch._now.message_id) == (1, 1, None)


@pytest.mark.parametrize("ends", ["returns", "raises", "is interrupted"])
def test_what_took_too_long_has_failed_however_it_ends(language, ends):
    watch = Watch(0.5, Note())
    own = {"raises": ValueError("its own"), "is interrupted": CallTimedOutError("by the signal")}.get(ends)

    def do(*_: object) -> str:
        watch._now.expired = watch._now.calls
        if own is not None:
            raise own
        return "done"

    with pytest.raises(CallTimedOutError, match=r"took longer than 0\.5 s, and was interrupted") as raised:
        supervise(do, watch)(1, 2, context())

    assert raised.value.__context__ is own
    assert watch._now.message_id is None
    # And the next one is another call
    call = supervise(lambda *_: "next", watch)
    assert call(1, 2, context()) == "next"


def test_a_context_without_an_id_is_an_error(language):
    with pytest.raises(AttributeError):
        supervise(print)(1, 2, 3)


@pytest.mark.parametrize("given", [(), (1, 2), (1, 2, context(), 4)])
def test_other_arguments_are_an_error(language, given):
    call = supervise(lambda *_: None)
    with pytest.raises(TypeError):
        call(*given)


def test_it_takes_the_names_of_its_method(language):
    def described(*_: object) -> None:
        """Do nothing."""

    call = wraps(described)(supervise(described))

    assert (call.__name__, call.__qualname__, call.__doc__) == (
        "described",
        described.__qualname__,
        "Do nothing.",
    )
    assert call.__wrapped__ is described


@needs_c
def test_c_is_taken_where_it_is():
    assert type(supervise(print)).__name__ == "Call"


@needs_c
@pytest.mark.parametrize(
    "given",
    [
        (),
        (print, None, frozenset(), bytearray(9), 4, print, print, print),
        (print, "now", {"set"}, bytearray(9), 4, print, print, print),
        (print, "now", frozenset(), b"read only", 4, print, print, print),
        (print, "now", frozenset(), bytearray(9), "4", print, print, print),
    ],
)
def test_c_takes_nothing_else(given):
    native: Any = supervision._native
    with pytest.raises((TypeError, BufferError)):
        native.Call(*(native.Now() if each == "now" else each for each in given))


@needs_c
def test_c_writes_within_the_memory_that_it_has():
    native: Any = supervision._native
    memory = bytearray(b"." * 6)
    left: list[str] = []
    call = native.Call(lambda *_: None, native.Now(), frozenset(), memory, 1000, left.append, print, print)

    call(1, 2, context("abcd"))
    assert memory == b"\x04\0abcd"
    call(1, 2, context("abcde"))
    assert memory == b"\x04\0abcd"
    assert left == ["abcde"]


def test_calls_keep_nothing(language):
    watch = Watch(30, Note(), ["other"])
    message_id, result, handled = "m" * 40, object(), context("m" * 40)
    handled._message_id = message_id

    def fail(*_: object) -> None:
        raise ValueError

    good = supervise(lambda *_: result, watch)
    bad = supervise(fail, watch)
    kept = (message_id, result, handled, good, bad)
    before = [sys.getrefcount(each) for each in kept]
    for _ in range(100):
        good(1, 2, handled)
        with pytest.raises(ValueError, match=r"^$"):
            bad(1, 2, handled)
    assert [sys.getrefcount(each) for each in kept] == before

    # And a method that knows its own supervised call is collected with it
    class Method:
        def __call__(self, *_: object) -> None: ...

    method: Any = Method()
    method.call = supervise(method, watch)
    del good, bad, kept, method
    gc.collect()
    assert not [each for each in gc.get_objects() if type(each) is Method]

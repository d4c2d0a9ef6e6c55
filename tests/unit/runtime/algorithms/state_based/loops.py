"""Both loops of a chain, in Python and in C, and what can be seen of them."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from handlers import App
from handlers.app import HandlerDefinition
from handlers.native import PURE_PYTHON
from runtime.algorithms.invocation import failure_of
from runtime.algorithms.state_based import chain as chains
from runtime.algorithms.state_based.chain import Chain, Known, Progress, Replays, Rows
from runtime.blame import is_from_outside
from runtime.clock import Clock
from tests.unit.runtime.algorithms.state_based.deeds import Do, Doer, Seen, Undo

needs_native = pytest.mark.skipif(
    os.environ.get(PURE_PYTHON, "0") not in {"", "0"},
    reason=f"{PURE_PYTHON} is set: the loop in C is not wanted",
)
HANDLER = App(Doer).handlers["Doer"]
EMPTY = HANDLER.initial

Row = tuple[str, str, dict[str, str] | None, Any]


def native_module() -> Any:
    """Return the module in C, which must be there."""
    assert chains._native is not None, "The loop in C was not built: python setup.py build_ext --inplace"
    return chains._native


def both(handler: HandlerDefinition = HANDLER, **settings: Any) -> tuple[Callable[[Clock], Any], ...]:
    """Return what makes a chain that runs in C, and one that runs in Python."""
    native_module()

    def native(clock: Clock) -> Chain:
        made = Chain(handler, "the one", clock, **settings)
        assert made._parts is not None
        return made

    def python(clock: Clock) -> Chain:
        made = Chain(handler, "the one", clock, **settings)
        made._parts = None
        return made

    return native, python


def row(deed: str, number: int = 1, headers: dict[str, str] | None = None, type_: str = "Do") -> Row:
    message = Undo(id="the one") if type_ == "Undo" else Do(id="the one", deed=deed, number=number)
    return f"m-{deed}-{number}", type_, headers, message


def rows_of(rows: Sequence[Row], first: int = 0, end: int | None = None) -> Rows:
    """Return rows as columns."""
    columns: Any = [list(column) for column in zip(*rows, strict=True)] or [[], [], [], []]
    message_ids, types, headers, messages = columns
    return Rows(message_ids, types, headers, messages, first, len(rows) if end is None else end)


def begin(before: bytes = EMPTY, last_now: int = 0, handler: HandlerDefinition = HANDLER) -> Any:
    return Progress(handler.codec.reread(before), before, last_now, 7)


def clock_of(times: Sequence[Any]) -> Clock:
    """Return a clock that says these times again and again, and raises those that are errors."""
    said = -1

    def clock() -> Any:
        nonlocal said
        said += 1
        now = times[said % len(times)]
        if isinstance(now, BaseException):
            raise now
        return now

    return clock


def shown(state: Any) -> object:
    """Return all that there is to see of a state."""
    if state is None:
        return None
    fields_set = getattr(state, "__pydantic_fields_set__", "none")
    name = type(fields_set).__name__
    fields = [(key, type(value), _text(value)) for key, value in vars(state).items()]
    return type(state), fields, name, sorted(fields_set) if isinstance(fields_set, set) else name


def shown_progress(progress: Progress) -> tuple[object, ...]:
    made = progress.made
    return (
        *(shown(progress.state), progress.before, progress.last_now, progress.number, progress.size),
        *(progress.excess, progress.is_calling, repr(progress.documents), repr(progress.afters)),
        *(
            made.positions,
            list(map(repr, made.nows)),
            made.revisions,
            list(map(repr, made.captured)),
            made.published,
        ),
    )


def shown_replays(replays: Replays) -> tuple[object, ...]:
    return (
        *(shown(replays.state), replays.before, replays.is_calling, replays.error),
        *(replays.afters, replays.published),
    )


def shown_error(error: BaseException) -> tuple[object, ...]:
    """Return what would be told of an error."""
    failure = failure_of(error)
    return type(error), is_from_outside(error), type(failure), str(failure), type(error.__cause__)


def handle_all(chain: Chain, rows: Rows, size: int, progress: Progress) -> list[object]:
    """Handle messages as a batch does, those after one that failed too, and return all that can be seen."""
    Seen.calls, Seen.returned = [], None
    seen: list[object] = []
    first = rows.first
    while first < rows.end:
        try:
            with interrupts():
                chain.handle(progress, rows._replace(first=first), size)
        except BaseException as error:  # noqa: BLE001 - handlers raise any
            seen.append(shown_error(error))
        seen.append(shown_progress(progress))
        first += len(progress.made) + 1 if _has_failed(seen, progress) else max(1, len(progress.made))
        progress = begin(progress.before, progress.last_now, chain._handler)
    return [*seen, *Seen.calls]


def replay_all(chain: Chain, known: list[Known]) -> list[object]:
    """Replay messages, and return all that can be seen."""
    Seen.calls, Seen.returned = [], None
    replays, seen = Replays(), []
    try:
        with interrupts():
            chain.replay(replays, known)
    except BaseException as error:  # noqa: BLE001 - handlers raise any
        seen.append(shown_error(error))
    return [*seen, shown_replays(replays), *Seen.calls]


@contextmanager
def interrupts():
    """Let Python raise KeyboardInterrupt for SIGINT, as it does by itself."""
    import signal

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _has_failed(seen: list[object], progress: Progress) -> bool:
    return bool(progress.excess) or (len(seen) > 1 and isinstance(seen[-2], tuple) and len(seen[-2]) == 5)


def _text(value: object) -> str:
    return type(value).__name__ if type(value).__repr__ is object.__repr__ else _short(value)


def _short(value: object) -> str:
    if isinstance(value, int) and value.bit_length() > 10_000:
        return hex(value)
    return repr(value)

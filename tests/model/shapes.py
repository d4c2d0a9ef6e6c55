"""Shapes: what values are like but for their marks and times, and those in the order in which they stand there.

Marks only tell processes and writes apart: ids that were drawn, ETags, the numbers of runs. Code may ask whether two
are equal, and which of two times is the later one; nothing else hangs on them. All values that runs keep have a shape,
suspended coroutines among them: where each frame stands, the locals that are still to be read there, and what lies on
the value stacks, such as the iterators of loops, as `gc.get_referents` shows it after the locals. Things that can
change are told apart even when they are equal, by the order in which they are come upon.
"""

import dis
import gc
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache, partial
from types import (
    AsyncGeneratorType,
    BuiltinFunctionType,
    CodeType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any, NamedTuple

import msgpack

from handlers.app import HandlerDefinition, Route
from runtime.clock import to_datetime
from runtime.messages.parsing import Prepared
from tests.model.processes import DRAWN, NOW, SECOND, IncomparableTime, Process

Mark = tuple[str, int, int]
"""What a mark is: the kind, the number of the process or the write, and which of its draws."""

_HALF_A_DAY = 12 * 60 * 60 * SECOND
_MICROSECOND = timedelta(microseconds=1)
_NOW = to_datetime(NOW)
_FOUND = re.compile(
    r"(?:e-tag|colour|run) \d+|[0-9a-f]{12,64}|20\d\d-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?\+00:00"
)


class Part(NamedTuple):
    """A mark, or a time, in a text, in some form."""

    form: str
    what: Mark | int


@cache
def parts(text: str) -> tuple[str | Part, ...]:
    """Return a text in parts: what is the same in all processes, and between it marks and times."""
    return tuple(_parts(text))


def time_of(value: int | datetime) -> int | None:
    """Return the time, in microseconds, that a number or a date is; None when no process lives then."""
    at = value if isinstance(value, int) else NOW + (value - _NOW) // _MICROSECOND
    return int(at) if abs(at - NOW) < _HALF_A_DAY else None


def _parts(text: str) -> Iterator[str | Part]:
    at = 0
    for match in _FOUND.finditer(text):
        part = _part(match[0])
        if part is not None:
            yield text[at : match.start()]
            yield part
            at = match.end()
    yield text[at:]


def _part(word: str) -> Part | None:
    if word in DRAWN:
        form, number, draw = DRAWN[word]
        return Part(form, ("drawn", number, draw))
    form, _, count = word.rpartition(" ")
    if form:
        return Part(form, ("e-tag" if form == "e-tag" else "run", int(count), 0))
    time = time_of(datetime.fromisoformat(word)) if "T" in word else None
    return None if time is None else Part("iso", time)


Suspended = CoroutineType | GeneratorType | AsyncGeneratorType

_GO_ELSEWHERE = frozenset({
    "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD", "RAISE_VARARGS", "RERAISE", "RETURN_VALUE",
})  # fmt: skip


def _stack(suspended: Suspended, code: CodeType, bound: Any) -> tuple[Any, ...]:
    """Return what lies on the value stack. What `gc` shows before it ends with the code, cells, and bound locals."""
    shown = gc.get_referents(suspended)
    begin = max(index for index, each in enumerate(shown) if each is code) + 1
    plain = [name for name in code.co_varnames if name not in code.co_cellvars and name in bound]
    return tuple(shown[begin + len(plain) + len(code.co_cellvars) + len(code.co_freevars) :])


@cache
def _live_after(code: CodeType) -> dict[int, frozenset[str]]:
    """Return for each instruction what is live after it: the usual analysis, backwards until nothing changes."""
    instructions = list(dis.get_instructions(code))
    following = _following(code, instructions)
    always = frozenset(code.co_cellvars) | frozenset(code.co_freevars)
    before: dict[int, frozenset[str]] = {each.offset: always for each in instructions}
    after = dict(before)
    changes = True
    while changes:
        changes = False
        for each in reversed(instructions):
            out = always.union(*[before[offset] for offset in following[each.offset]])
            names = each.argval if isinstance(each.argval, tuple) else (each.argval,)
            is_set = each.opname == "STORE_FAST"
            into = out.difference(names) if is_set else out.union(names if "FAST" in each.opname else ())
            changes = changes or (out, into) != (after[each.offset], before[each.offset])
            after[each.offset], before[each.offset] = out, into
    return after


def _following(code: CodeType, instructions: list[dis.Instruction]) -> dict[int, list[int]]:
    """Return to which instructions each may lead, handlers of exceptions among them."""
    offsets = [each.offset for each in instructions]
    following: dict[int, list[int]] = {offset: [] for offset in offsets}
    for each, beyond in zip(instructions, [*offsets[1:], None], strict=True):
        if beyond is not None and each.opname not in _GO_ELSEWHERE:
            following[each.offset].append(beyond)
        if each.opcode in dis.hasjrel or each.opcode in dis.hasjabs:
            following[each.offset].append(each.argval)
    for entry in dis._parse_exception_table(code):  # type: ignore[attr-defined]
        for offset in offsets:
            if entry.start <= offset < entry.end:
                following[offset].append(entry.target)
    return following


class Shape(NamedTuple):
    """The number of a shape, and the marks and the times of the value that has it, each once.

    Which of them stands where, when there are several, belongs to the shape.
    """

    number: int
    marks: tuple[Mark, ...]
    times: tuple[int, ...]


NO_SHAPE = Shape(-1, (), ())


class Shapes:
    """Gives shapes numbers, the same one when nothing differs but marks and times."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[Any, ...], int] = {}

    def of(self, *values: Any) -> Shape:
        writer = _Writer()
        for value in values:
            writer.write(value)
        number = self._numbers.setdefault(tuple(writer.written), len(self._numbers))
        return Shape(number, tuple(writer.marks), tuple(writer.times))

    def joined(self, shapes: Sequence[Shape]) -> Shape:
        marks: dict[Mark, int] = {}
        times: dict[int, int] = {}
        written: list[Any] = []
        for shape in shapes:
            written.append(shape.number)
            written += [marks.setdefault(mark, len(marks)) for mark in shape.marks]
            written += [times.setdefault(time, len(times)) for time in shape.times]
        number = self._numbers.setdefault(("joined", *written), len(self._numbers))
        return Shape(number, tuple(marks), tuple(times))


class NoShapeError(TypeError):
    """Raised for a value that a run keeps, and of which it is not known here what it consists of."""


class _Writer:
    """Writes down of values what is the same in all processes, and beside it their marks and times."""

    def __init__(self) -> None:
        self.written: list[Any] = []
        self.marks: dict[Mark, int] = {}
        self.times: dict[int, int] = {}
        self._seen: dict[int, int] = {}
        self._kept: list[Any] = []

    def write(self, value: Any) -> None:
        kind = type(value)
        method = _METHODS.get(kind)
        if method is None:
            method = _METHODS[kind] = _method(kind)
        method(self, value)

    def itself(self, value: Any) -> None:
        """Write what is the same thing in all runs, and never changes."""
        self.written += ["itself", value]

    def identity(self, value: Any) -> None:
        """Write what is the same thing in all runs and is compared with nothing; it is kept, and so its identity."""
        _IDENTICAL[id(value)] = value
        self.written += ["the", id(value)]

    def builtin(self, value: Any) -> None:
        """Write a function that is not written in Python, and what it is bound to."""
        self.written += ["builtin", value.__name__]
        self.write(value.__self__)

    def constant(self, value: Any) -> None:
        """Write a value that is equal to no value of another type."""
        self.written += [type(value), value]

    def number(self, value: int) -> None:
        if time_of(value) is None:
            self.written += [type(value), int(value)]
        else:
            self.time(int if isinstance(value, IncomparableTime) else type(value), int(value))

    def date(self, value: datetime) -> None:
        at = time_of(value)
        if at is None:
            self.written += [datetime, value]
        else:
            self.time(datetime, at)

    def time(self, form: Any, at: int) -> None:
        """Write that there is a time in some form, and note it."""
        self.written += ["time", form, self.times.setdefault(at, len(self.times))]

    def mark(self, form: str, mark: Mark) -> None:
        """Write that there is a mark in some form, and note it."""
        self.written += ["mark", form, self.marks.setdefault(mark, len(self.marks))]

    def text(self, value: str) -> None:
        """Write a text, in which there may be marks and times."""
        found = parts(value)
        self.written += [str, len(found)]
        for part in found:
            if isinstance(part, str):
                self.written.append(part)
            elif isinstance(part.what, int):
                self.time(part.form, part.what)
            else:
                self.mark(part.form, part.what)

    def data(self, value: bytes) -> None:
        """Write bytes: what was drawn, something packed, a text, or others."""
        drawn = parts(value.hex())
        if len(drawn) > 1:
            self.written.append(bytes)
            self.text(value.hex())
            return
        unpacked = _unpacked(value)
        if unpacked is not None:
            self.written.append("packed")
            self.write(unpacked)
            return
        try:
            text = value.decode()
        except UnicodeDecodeError:
            self.constant(value)
        else:
            self.written.append("encoded")
            self.text(text)

    def row(self, value: Sequence[Any]) -> None:
        """Write a tuple, which has no identity."""
        self.written += [type(value), len(value)]
        for each in value:
            self.write(each)

    def message(self, value: Prepared) -> None:
        """Write a message, which is the same in all frames of a run, and in which no process has left marks."""
        known = _MESSAGES.get(id(value))
        if known is None:
            writer = _Writer()
            writer.row(value)
            known = _MESSAGES[id(value)] = value, (*writer.written, *writer.marks, *writer.times)
        self.written += ["message", known[1]]

    def process(self, value: Process) -> None:
        """Write a process: what it draws next is new, whatever it drew before."""
        if self._is_new(value):
            self.mark("process", ("run", value.number, 0))
            self.time("clock", value.now)

    def several(self, value: list[Any]) -> None:
        if self._is_new(value):
            self.row(value)

    def mapping(self, value: Mapping[Any, Any]) -> None:
        if self._is_new(value):
            self.written += [type(value), len(value)]
            for name, each in value.items():
                self.write(name)
                self.write(each)

    def group(self, value: AbstractSet[Any]) -> None:
        if self._is_new(value):
            self.written += [type(value), len(value)]
            for each in sorted(value, key=repr):
                self.write(each)

    def suspended(self, value: Any) -> None:
        if self._is_new(value):
            found = [getattr(value, name, None) for name in ("cr_frame", "gi_frame", "ag_frame")]
            frame: Any = next(each for each in found if each is not None)
            code, at, bound = frame.f_code, frame.f_lasti, frame.f_locals
            names = tuple(name for name in bound if name in _live_after(code)[at])
            stack = _stack(value, code, bound)
            self.written += [code, at, names, len(stack)]
            for each in (*[bound[name] for name in names], *stack):
                self.write(each)

    def parts_of(self, value: Any) -> None:
        if self._is_new(value):
            self.written.append(type(value))
            for each in _CONSISTS_OF[type(value)](value):
                self.write(each)

    def _is_new(self, value: Any) -> bool:
        """Say whether a thing is come upon for the first time; write which one it is if not."""
        at = self._seen.get(id(value))
        if at is not None:
            self.written += ["again", at]
            return False
        self._seen[id(value)] = len(self._seen)
        self._kept.append(value)
        return True


def _unpacked(value: bytes) -> Any:
    """Return the list or mapping that bytes are when unpacked; None when they are none, or not packed like that."""
    try:
        unpacked = msgpack.unpackb(value)
    except Exception:  # noqa: BLE001 - whatever it is, it was not packed
        return None
    return unpacked if isinstance(unpacked, list | dict) and msgpack.packb(unpacked) == value else None


def _method(kind: type) -> Callable[[_Writer, Any], None]:
    for base, method in _BY_BASE:
        if issubclass(kind, base):
            return method
    if kind not in _CONSISTS_OF:
        _CONSISTS_OF[kind] = _consistence(kind)
    return _Writer.parts_of


def _consistence(kind: type) -> Callable[[Any], tuple[Any, ...]]:
    """Return what gives the parts of things of a type."""
    if is_dataclass(kind):
        names = [field.name for field in fields(kind)]
        return lambda value: tuple([getattr(value, name) for name in names])
    if issubclass(kind, BaseException):
        return lambda value: (value.args, value.__cause__, value.__context__)
    if issubclass(kind, _ITERATORS):
        return lambda value: value.__reduce__()[1:]
    if kind.__name__ in _AWAITED:
        return lambda value: tuple(gc.get_referents(value))
    slots = [name for base in kind.__mro__ for name in getattr(base, "__slots__", ()) if name != "__dict__"]
    if slots or kind.__dictoffset__:
        return lambda value: (
            tuple([(name, getattr(value, name, None)) for name in slots]),
            getattr(value, "__dict__", None),
        )
    raise NoShapeError(f"Say in {__name__} what a {kind.__name__} consists of.")


_IDENTICAL: dict[int, object] = {}
_MESSAGES: dict[int, tuple[Prepared, tuple[Any, ...]]] = {}
_EXAMPLES: tuple[Any, ...] = ([], (), {}, {}.values(), {}.items(), range(0), enumerate(()))
_ITERATORS = tuple(type(iter(each)) for each in _EXAMPLES)
_AWAITED = {"async_generator_asend", "coroutine_wrapper"}

_METHODS: dict[type, Callable[[_Writer, Any], None]] = {
    type(None): _Writer.constant,
    bool: _Writer.constant,
    float: _Writer.constant,
    str: _Writer.text,
    bytes: _Writer.data,
}

_BY_BASE: tuple[tuple[Any, Callable[[_Writer, Any], None]], ...] = (
    (Enum, _Writer.constant),
    (int, _Writer.number),
    (datetime, _Writer.date),
    (Prepared, _Writer.message),
    (tuple, _Writer.row),
    (list, _Writer.several),
    (Mapping, _Writer.mapping),
    (AbstractSet, _Writer.group),
    ((range, timedelta), _Writer.constant),
    (CodeType, _Writer.itself),
    ((type, ModuleType, HandlerDefinition, Route), _Writer.identity),
    (BuiltinFunctionType, _Writer.builtin),
    (Process, _Writer.process),
    ((CoroutineType, GeneratorType, AsyncGeneratorType), _Writer.suspended),
)

_CONSISTS_OF: dict[type, Callable[[Any], tuple[Any, ...]]] = {
    partial: lambda value: (value.func, value.args, value.keywords),
    MethodType: lambda value: (value.__func__, value.__self__),
    FunctionType: lambda value: (
        (value.__code__, value.__defaults__, value.__kwdefaults__),
        tuple(cell.cell_contents for cell in value.__closure__ or ()),
    ),
}

"""Frames: the local state of a suspended coroutine, which decides what it does next, whatever led there.

It is where each of its frames stands, the locals that are still to be read there, and what lies on the value stacks,
such as the iterators of `for` loops. Stacks are shown by `gc.get_referents`: after the locals, in their order.
"""

from __future__ import annotations

import dis
import gc
from functools import cache
from types import AsyncGeneratorType, CodeType, CoroutineType, GeneratorType
from typing import Any, NamedTuple

Suspended = CoroutineType | GeneratorType | AsyncGeneratorType

_GO_ELSEWHERE = frozenset({
    "JUMP_BACKWARD", "JUMP_BACKWARD_NO_INTERRUPT", "JUMP_FORWARD", "RAISE_VARARGS", "RERAISE", "RETURN_VALUE",
})  # fmt: skip


class Frame(NamedTuple):
    """One frame: its code, the instruction at which it waits, the locals that it will read, and its value stack."""

    code: CodeType
    at: int
    names: tuple[str, ...]
    values: tuple[Any, ...]
    stack: tuple[Any, ...]


def frame_of(suspended: Suspended) -> Frame:
    """Return the frame of a coroutine or generator that is suspended."""
    frame = _frame(suspended)
    code: CodeType = frame.f_code
    bound = frame.f_locals
    read = live(code, frame.f_lasti)
    names = tuple(name for name in bound if name in read)
    return Frame(
        code, frame.f_lasti, names, tuple(bound[name] for name in names), _stack(suspended, code, bound)
    )


def _frame(suspended: Any) -> Any:
    for name in ("cr_frame", "gi_frame", "ag_frame"):
        frame = getattr(suspended, name, None)
        if frame is not None:
            return frame
    raise TypeError(f"{suspended!r} is not suspended.")


def _stack(suspended: Suspended, code: CodeType, bound: Any) -> tuple[Any, ...]:
    """Return what lies on the value stack. What `gc` shows before it ends with the code, cells, and bound locals."""
    shown = gc.get_referents(suspended)
    begin = max(index for index, each in enumerate(shown) if each is code) + 1
    plain = [name for name in code.co_varnames if name not in code.co_cellvars and name in bound]
    return tuple(shown[begin + len(plain) + len(code.co_cellvars) + len(code.co_freevars) :])


@cache
def live(code: CodeType, at: int) -> frozenset[str]:
    """Return the names of the locals that may be read after an instruction before they are set again."""
    return _live_after(code)[at]


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
            into = (out - _set_by(each)) | _read_by(each)
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


def _read_by(instruction: dis.Instruction) -> frozenset[str]:
    if "FAST" not in instruction.opname or instruction.opname == "STORE_FAST":
        return frozenset()
    names = instruction.argval
    return frozenset(names if isinstance(names, tuple) else [names])


def _set_by(instruction: dis.Instruction) -> frozenset[str]:
    return frozenset([instruction.argval]) if instruction.opname == "STORE_FAST" else frozenset()

"""What a handler may do, and what it should not: each deed takes a state, a number and a context, and returns anything.

A deed does the same whenever it is done, so that two loops in which it is done can be compared.
"""

from __future__ import annotations

import signal
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from handlers import Context, Handler, Message, OutputsTooLargeError, State, handles
from runtime.algorithms.invocation import CallTimedOutError

LONG = 5000
"""More digits than Python writes of an integer."""

Deed = Callable[[Any, int, Context], Any]

_SEVEN: Any = 7
_NOTHING: dict[str, Thing] = {}


class Thing(State):
    """A plain state with all that a plain one may have."""

    count: int = 0
    share: float = 0.0
    name: str = ""
    is_open: bool = False
    note: str | None = None
    most: int | None = None


class Special(Thing):
    pass


class Other(State):
    count: int = 0


class Told(Message):
    id: str
    text: str = ""


class Do(Message, aliases=("Make",)):
    id: str
    deed: str
    number: int = 1


class Undo(Message):
    id: str


class Doer(Handler[Thing]):
    """Does what the message says."""

    @handles(by="id", revision=3)
    def do(self, state: Thing, message: Do, context: Context) -> Thing:
        returned: Thing = done(DEEDS[message.deed], state, message.number, context)
        return returned

    @handles(by="id", revision=2)
    def do_as_before(self, state: Thing, message: Do, context: Context) -> Thing:
        raise NotImplementedError

    @handles(by="id")
    def undo(self, state: Thing, message: Undo, context: Context) -> Thing:
        return state.model_copy(update={"count": 0})


class Seen:
    """What the handler was called with, in order, and what it returned last."""

    calls: list[tuple[object, ...]] = []  # noqa: RUF012 - is emptied by whoever compares
    returned: object = None


def done(deed: Deed, state: Thing, number: int, context: Context) -> Any:
    """Do a deed, and note what was passed in."""
    call = repr(vars(state)), state is Seen.returned, context.message_id, context.business_id, context.now
    Seen.calls.append((*call, dict(context.headers)))
    Seen.returned = deed(state, number, context)
    return Seen.returned


class Loud(int):
    pass


class Text(str):
    __slots__ = ()


class Clearing(str):
    """A name that is equal to one of a field, and empties the dict that it is in when it is compared."""

    __slots__ = ("fields",)
    fields: dict[str, Any]

    def __eq__(self, other: object) -> bool:
        self.fields.clear()
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


class Hashed(type):
    """The type of types whose hash cannot be had."""

    def __hash__(cls) -> int:
        raise ValueError("no hash")


class Unhashed(metaclass=Hashed):
    pass


class ClearingHash(type):
    """The type of types that empty a dict when their hash is asked for."""

    fields: dict[str, Any]

    def __hash__(cls) -> int:
        cls.fields.clear()
        return 1


class TimesOutOnce(str):
    """A name that is equal to that of a field, but raises when it is compared first."""

    __slots__ = ("is_known",)
    is_known: bool

    def __eq__(self, other: object) -> bool:
        if not self.is_known:
            self.is_known = True
            raise CallTimedOutError("while it was compared")
        return str.__eq__(self, other)

    def __hash__(self) -> int:
        return str.__hash__(self)


class Incomparable(set[str]):
    def __eq__(self, other: object) -> bool:
        raise LookupError("not to be compared")

    __hash__ = None


class Interrupting(set[str]):
    def __eq__(self, other: object) -> bool:
        raise CallTimedOutError("while it was compared")

    __hash__ = None


class UnprintableError(Exception):
    def __str__(self) -> str:
        raise ValueError("no text")


class NeitherTrueNorFalse(dict[str, bytes]):
    def __bool__(self) -> bool:
        raise LookupError("neither")


def with_values(state: Thing, **values: object) -> Thing:
    """Return a copy with values that nobody validates; None removes no field, and any name is added."""
    copy = state.model_copy()
    copy.__dict__.update(values)
    return copy


def without(state: Thing, name: str) -> Thing:
    copy = state.model_copy()
    del copy.__dict__[name]
    return copy


def with_dict(state: Thing, fields: dict[str, Any]) -> Thing:
    copy = state.model_copy()
    object.__setattr__(copy, "__dict__", fields)
    return copy


def with_fields_set(state: Thing, fields: object) -> Thing:
    copy = state.model_copy()
    object.__setattr__(copy, "__pydantic_fields_set__", fields)
    return copy


def without_fields_set(state: Thing) -> Thing:
    object.__delattr__(state, "__pydantic_fields_set__")
    return state


def _ordered(state: Thing) -> Thing:
    """Return a state whose fields are in order for who asks the dict, but not in memory."""
    fields = OrderedDict(reversed(state.__dict__.items()))
    for name in Thing.model_fields:
        fields.move_to_end(name)
    return with_dict(state, fields)


def _disordered(state: Thing) -> Thing:
    fields = OrderedDict(state.__dict__)
    fields.move_to_end("count")
    return with_dict(state, fields)


def _clearing(state: Thing) -> Thing:
    name = Clearing("count")
    rest = {key: value for key, value in state.__dict__.items() if key != "count"}
    fields = {name: Loud(10**30), **rest}
    name.fields = fields
    return with_dict(state, fields)


def _clearing_hash(state: Thing) -> Thing:
    copy = state.model_copy()
    kind = ClearingHash("Kind", (), {"fields": copy.__dict__})
    copy.__dict__["most"] = kind()
    return copy


def _timing_out_once(state: Thing) -> Thing:
    name = TimesOutOnce("count")
    name.is_known = True
    fields_set = {*Thing.model_fields} - {"count"} | {name}
    name.is_known = False
    return with_fields_set(state, fields_set)


def _set(state: Thing, name: str, value: object) -> Thing:
    object.__setattr__(state, name, value)
    return state


def _raise(error: BaseException) -> Deed:
    def run(*_: object) -> None:
        raise error.with_traceback(None)

    return run


def _change_and_fail(state: Thing, number: int, _: Context) -> None:
    state.__dict__["count"] = number
    raise ValueError("changed")


def _change_and_restore(state: Thing, *_: object) -> Thing:
    before = state.count
    state.__dict__["count"] = 77_000
    state.__dict__["count"] = before
    return state


def _grow(state: Thing, number: int, _: Context) -> Thing:
    state.__dict__.update({f"more_{place}": place for place in range(70)})
    return with_values(without_many(state), count=number)


def without_many(state: Thing) -> Thing:
    return Thing.model_construct(**{name: getattr(state, name) for name in Thing.model_fields})


def _grow_and_shrink(state: Thing, *_: object) -> Thing:
    state.__dict__.update({f"more_{place}": place for place in range(70)})
    for place in range(70):
        del state.__dict__[f"more_{place}"]
    return state


def _swap(state: Thing, *_: object) -> Thing:
    fields = dict(state.__dict__)
    object.__setattr__(state, "__dict__", {})
    object.__setattr__(state, "__dict__", fields)
    return state


def _empty(state: Thing, *_: object) -> Thing:
    copy = state.model_copy()
    state.__dict__.clear()
    return copy


def _drop(state: Thing, *_: object) -> Thing:
    object.__delattr__(state, "__dict__")
    return without_many(Thing())


def _add_and_take_back(state: Thing, *_: object) -> Thing:
    copy = state.model_copy()
    del state.__dict__["most"]
    state.__dict__["most"] = copy.most
    return copy


def _reorder(state: Thing, *_: object) -> Thing:
    count = state.__dict__.pop("count")
    state.__dict__["count"] = count
    return state


def _draw(state: Thing, number: int, context: Context) -> Thing:
    drawn = context.random.randrange(10**6) + context.random.randrange(1 + abs(number))
    return state.model_copy(update={"count": drawn, "name": str(context.new_guid())})


def _capture(state: Thing, number: int, context: Context) -> Thing:
    return state.model_copy(update={"most": context.capture("c", lambda: number)})


def _capture_twice(state: Thing, number: int, context: Context) -> Thing:
    context.capture("c", lambda: number)
    return state.model_copy(update={"most": context.capture("c", lambda: number)})


def _publish(state: Thing, number: int, context: Context) -> Thing:
    for place in range(abs(number) % 5):
        context.publish(
            Told(id=str(place), text=state.name[:9]), headers={"place": str(place)} if place else None
        )
    return state


def _publish_too_much(state: Thing, number: int, context: Context) -> Thing:
    try:
        for place in range(20):
            context.publish(Told(id=str(place)))
    except OutputsTooLargeError:
        return state.model_copy(update={"count": number})
    return state


def _publish_anything(state: Thing, number: int, context: Context) -> Thing:
    context.publish(number)  # type: ignore[arg-type] # on purpose
    return state


def _store(state: Thing, number: int, context: Context) -> Thing:
    reference = context.store_document(b"content", media_type="text/plain", name="some.txt")
    return state.model_copy(update={"name": reference.name, "count": number})


def _delete(name: str) -> Deed:
    def run(state: Thing, number: int, context: Context) -> Thing:
        delattr(context, name)
        return state.model_copy(update={"count": number})

    return run


def _replace(name: str, value: object) -> Deed:
    def run(state: Thing, number: int, context: Context) -> Thing:
        setattr(context, name, value)
        return state.model_copy(update={"count": number})

    return run


def _add(state: Thing, number: int, _: Context) -> Thing:
    return state.model_copy(update={"count": state.count + number})


FINE: dict[str, Deed] = {
    "add": _add,
    "return the input": lambda state, *_: state,
    "copy": lambda state, *_: state.model_copy(),
    "name": lambda state, number, _: state.model_copy(update={"name": "ä\n\x00€" * (abs(number) % 9)}),
    "share": lambda state, number, _: state.model_copy(update={"share": number / 3, "is_open": number > 0}),
    "note": lambda state, number, _: state.model_copy(update={"note": str(number), "most": number}),
    "no note": lambda state, *_: state.model_copy(update={"note": None, "most": None}),
    "infinite": lambda state, *_: state.model_copy(update={"share": float("inf")}),
    "less than all": lambda state, *_: state.model_copy(update={"share": float("-inf")}),
    "no number": lambda state, *_: state.model_copy(update={"share": float("nan")}),
    "minus zero": lambda state, *_: state.model_copy(update={"share": -0.0}),
    "large integer": lambda state, number, _: state.model_copy(update={"count": number * 10**200}),
    "make anew": lambda _, number, __: Thing(count=number),
    "make anew with all": lambda _, number, __: without_many(Thing(count=number)),
    "long text": lambda state, number, _: state.model_copy(
        update={"name": "n" * (3000 + 20 * (number % 99))}
    ),
    "very long text": lambda state, *_: state.model_copy(update={"name": "n" * 20_000}),
    "draw": _draw,
    "capture": _capture,
    "publish": _publish,
    "store a document": _store,
}
ODD: dict[str, Deed] = {
    "return nothing": lambda *_: None,
    "return a number": lambda _, number, __: number,
    "return the context": lambda _, __, context: context,
    "return another state": lambda *_: Other(),
    "return a special state": lambda *_: Special(count=1),
    "return a special state with all set": lambda state, *_: Special.model_construct(
        set(Thing.model_fields), **state.__dict__
    ),
    "leave a field out": lambda state, *_: without(state, "name"),
    "leave the last field out": lambda state, *_: without(state, "most"),
    "leave all out": lambda *_: Thing.model_construct(set(Thing.model_fields)).model_copy(),
    "add a field": lambda state, *_: with_values(state, other=1),
    "add a field for another": lambda state, *_: with_values(without(state, "most"), other=1),
    "add 70 fields": lambda state, *_: with_values(state, **{f"more_{place}": 1 for place in range(70)}),
    "another order": lambda state, *_: with_dict(state, dict(reversed(state.__dict__.items()))),
    "an ordered dict": lambda state, *_: _ordered(state),
    "a disordered dict": lambda state, *_: _disordered(state),
    "fields set that time out once": lambda state, *_: _timing_out_once(state),
    "a type whose hash empties the dict": lambda state, *_: _clearing_hash(state),
    "an equal dict": lambda state, *_: with_dict(state, dict(state.__dict__)),
    "a name of another type": lambda state, *_: with_dict(
        state, {Text(k): v for k, v in state.__dict__.items()}
    ),
    "a name that empties the dict": lambda state, *_: _clearing(state),
    "a name that is no text": lambda state, *_: with_dict(
        state, {**without(state, "most").__dict__, _SEVEN: None}
    ),
    "some fields set": lambda state, *_: with_fields_set(state, {"count"}),
    "more fields set": lambda state, *_: with_fields_set(state, {*Thing.model_fields, "other"}),
    "fields set for ever": lambda state, *_: with_fields_set(state, frozenset(Thing.model_fields)),
    "fields set to None": lambda state, *_: with_fields_set(state, None),
    "fields set that cannot be compared": lambda state, *_: with_fields_set(
        state, Incomparable(Thing.model_fields)
    ),
    "fields set that time out": lambda state, *_: with_fields_set(state, Interrupting(Thing.model_fields)),
    "no fields set": lambda state, *_: without_fields_set(state.model_copy()),
    "no fields set and a lone surrogate": lambda state, *_: without_fields_set(
        with_values(state, name="\ud800")
    ),
    "bool for int": lambda state, *_: with_values(state, count=True),
    "int for float": lambda state, number, _: with_values(state, share=number),
    "int for bool": lambda state, *_: with_values(state, is_open=1),
    "integer of another type": lambda state, number, _: with_values(state, count=Loud(number)),
    "text of another type": lambda state, *_: with_values(state, name=Text("text")),
    "text for int": lambda state, *_: with_values(state, count="7"),
    "any text for int": lambda state, *_: with_values(state, count="seven"),
    "None for int": lambda state, *_: with_values(state, count=None),
    "bytes for text": lambda state, *_: with_values(state, name=b"\xff"),
    "a list for text": lambda state, *_: with_values(state, name=["text"]),
    "an object": lambda state, *_: with_values(state, name=object()),
    "an object without a hash of its type": lambda state, *_: with_values(state, name=Unhashed()),
    "an integer too long": lambda state, *_: with_values(state, count=1 << (4 * LONG)),
    "a lone surrogate": lambda state, *_: with_values(state, name="\ud800"),
    "set an attribute": lambda state, number, _: setattr(state, "count", number),
    "set past the guard": lambda state, number, _: _set(state, "count", number + 1000),
    "set past the guard and copy": lambda state, number, _: _set(state, "count", number + 1000).model_copy(),
    "set to an equal value": lambda state, *_: _set(state, "name", "".join([*state.name, "x"])[:-1]),
    "set in the dict": lambda state, *_: state.__dict__.update(note="set") or Thing(),
    "set fields set": lambda state, *_: _set(state, "__pydantic_fields_set__", {"count"}),
    "set fields set to ones that cannot be compared": lambda state, *_: _set(
        state, "__pydantic_fields_set__", Incomparable(Thing.model_fields)
    ),
    "set fields set to ones that time out": lambda state, *_: _set(
        state, "__pydantic_fields_set__", Interrupting(Thing.model_fields)
    ),
    "set fields set for ever": lambda state, *_: _set(
        state, "__pydantic_fields_set__", frozenset(Thing.model_fields)
    ),
    "delete fields set": lambda state, *_: without_fields_set(state),
    "change and fail": _change_and_fail,
    "change and restore": _change_and_restore,
    "grow": _grow,
    "grow and shrink": _grow_and_shrink,
    "swap the dict": _swap,
    "swap for an ordered dict": lambda state, *_: _set(state, "__dict__", OrderedDict(state.__dict__)),
    "empty the dict": _empty,
    "drop the dict": _drop,
    "add and take back": _add_and_take_back,
    "reorder": _reorder,
    "fail": _raise(ValueError("failed")),
    "fail for want of memory": _raise(MemoryError()),
    "fail without a text": _raise(UnprintableError()),
    "fail with a trace": lambda *_: _NOTHING["key"],
    "interrupt": _raise(KeyboardInterrupt()),
    "be interrupted": lambda *_: signal.raise_signal(signal.SIGINT),
    "exit": _raise(SystemExit(3)),
    "exit a generator": _raise(GeneratorExit()),
    "time out": _raise(CallTimedOutError("too long")),
    "capture twice": _capture_twice,
    "publish too much": _publish_too_much,
    "publish anything": _publish_anything,
    "delete what was published": _delete("published"),
    "delete what was captured": _delete("captured"),
    "delete the documents": _delete("documents"),
    "delete what was exceeded": _delete("exceeded"),
    "delete the headers": _delete("_headers"),
    "replace what was published": _replace("published", ()),
    "replace what was captured": _replace("captured", 5),
    "replace what was captured by what is neither": _replace("captured", NeitherTrueNorFalse()),
    "replace the documents": _replace("documents", ["none"]),
    "replace the documents by what is neither": _replace("documents", NeitherTrueNorFalse()),
    "exceed": _replace("exceeded", OutputsTooLargeError("by far")),
    "exceed by what is no error": _replace("exceeded", 5),
}
DEEDS = FINE | ODD

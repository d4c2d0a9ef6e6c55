"""Handlers: classes of pure methods (state, message, context) -> next state."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, wraps
from types import UnionType
from typing import Any, ClassVar, Generic, Protocol, TypeVar, Union, cast, get_args, get_origin
from uuid import UUID

from pydantic import AliasChoices, AliasPath, BaseModel, Strict

from handlers.codec import resolve_alias
from handlers.context import Context
from handlers.errors import AppError
from handlers.message import Message, State, message_aliases, message_name, stable_name

S = TypeVar("S", bound=State)
M = TypeVar("M", bound=Message)
H = TypeVar("H", bound="Handler[Any]")

D = TypeVar("D", bound=Callable[..., Any])

_MARK = "__handles__"


@dataclass(frozen=True, slots=True)
class HandlerMark:
    """The mark of a handler method: the path of the business id in the message, and the revision."""

    by: str
    revision: int


class Mark(Protocol):
    """The type of the decorator `@handles(...)`, for type checkers to check methods."""

    def __call__(self, method: Callable[[H, S, M, Context], S], /) -> Callable[[H, S, M, Context], S]:
        """Mark a method as the handler of the message type in its signature."""


def _with_brackets(decorator: D) -> D:
    """Raise a helpful error for a decorator without brackets or arguments."""

    @wraps(decorator)
    def checked(*method: object, **options: object) -> object:
        if not method and "by" in options:
            return decorator(**options)
        above = f" above {getattr(method[0], '__qualname__', method[0])}" if method else ""
        raise AppError(f'@handles needs the field of the business id{above}: write @handles(by="FIELD").')

    return cast("D", checked)


@_with_brackets
def handles(*, by: str, revision: int = 1) -> Mark:
    """Declare a method as the handler of the message type of its second argument.

    `by` names the field with the business id; a dotted path names a field of a nested model. `revision`, from 1,
    distinguishes methods for one message type: a new message takes the highest, a replay the recorded one. Raises
    `AppError` for other values.
    """
    if not isinstance(by, str) or not all(by.split(".")):  # type: ignore[redundant-expr] # whatever is given
        raise AppError(f'@handles takes the name of the field of the business id, by="FIELD", not by={by!r}.')
    if type(revision) is not int or revision < 1:
        raise AppError(f"@handles(revision=...) takes an int from 1, not {revision!r}.")

    def mark(method: Callable[[H, S, M, Context], S], /) -> Callable[[H, S, M, Context], S]:
        setattr(method, _MARK, HandlerMark(by, revision))
        return method

    return mark


def mark_of(method: object) -> HandlerMark | None:
    """Return the mark of `@handles` on a method, None for any other attribute."""
    mark = getattr(method, _MARK, None)
    return mark if isinstance(mark, HandlerMark) else None


class Handler(Generic[S]):
    """Base class of handlers: the rules of one kind of business object with the state `S`.

    A handler is pure: it reads only its arguments, and keeps nothing between messages. Its name is the prefix of its
    streams' keys; `class Range(Handler[Data], name="ShootingRange")` keeps the name when the class is renamed.
    """

    __handler_name__: ClassVar[str] = "Handler"

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - object's
        super().__init_subclass__(**kwargs)
        cls.__handler_name__ = stable_name(name or cls.__name__, f"The handler {cls.__qualname__}")

    # Instances are shared by all messages of a process.
    def __setattr__(self, name: str, value: object) -> None:
        where = f"{type(self).__name__}.{name}"
        raise AttributeError(
            f"{where} cannot be set: a handler keeps nothing between messages but its state."
        )


def handler_name(handler_type: type[Handler[Any]]) -> str:
    """Return the name of a handler, the prefix of its streams' keys."""
    return handler_type.__handler_name__


Method = Callable[[State, Message, Context], State]


class KeyKind(Enum):
    """The type of a business id, which decides its text form."""

    TEXT = "text"
    UUID = "uuid"
    INTEGER = "integer"


@dataclass(frozen=True)
class Route:
    """How messages of one type reach one handler.

    `path` leads to the business id in the model's attributes, `wire_path` in the JSON of the body. `revisions` has the
    methods by revision.
    """

    handler: str
    message_type: type[Message]
    path: tuple[str, ...]
    wire_path: tuple[str, ...]
    key_kind: KeyKind
    revisions: Mapping[int, Method]

    @cached_property
    def newest(self) -> int:
        """The highest revision, which handles new messages."""
        return max(self.revisions)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the message type on the wire: the current one and the aliases."""
        return (message_name(self.message_type), *message_aliases(self.message_type))

    def business_id(self, message: Message) -> str:
        """Return the business id of a message as text: a UUID in lower case with hyphens."""
        value: Any = message
        for name in self.path:
            value = getattr(value, name)
        return str(value)


def message_type_of(method: Callable[..., Any], state_type: type[State]) -> type[Message]:
    """Return the message type that a method is annotated with. Raises `AppError` for any other signature."""
    where = method.__qualname__
    parameters = inspect.signature(method).parameters
    advice = _advice(method)
    in_order = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    is_plain = not advice and all(each.kind in in_order for each in parameters.values())
    if len(parameters) != len(("self", "state", "message", "context")) or not is_plain:
        raise AppError(f"{where} must be a plain method (self, state, message, context) -> state.{advice}")
    try:
        hints = typing.get_type_hints(method)
    except NameError as error:
        raise AppError(f"{where}: {error}. Import its types at run time, not under TYPE_CHECKING.") from error
    _, state, message, context = parameters
    if hints.get(state, state_type) is not state_type or hints.get("return", state_type) is not state_type:
        raise AppError(f"{where} must take and return a {state_type.__name__}, the state of its handler.")
    if hints.get(context, Context) is not Context:
        raise AppError(f"{where} must take a Context as its last argument: ({context}: Context).")
    hint = hints.get(message)
    if isinstance(hint, type) and issubclass(hint, Message) and hint is not Message:
        return hint
    if isinstance(hint, UnionType) or get_origin(hint) is Union:
        types = ", ".join(getattr(each, "__name__", str(each)) for each in get_args(hint))
        raise AppError(f"{where} takes one of {types}: write a method for each message type.")
    if isinstance(hint, type) and hint.__module__ != "builtins" and not issubclass(hint, Message | State):
        raise AppError(
            f"{where} takes a {hint.__name__}, which is not a Message: write class {hint.__name__}(Message)."
        )
    raise AppError(f"{where} must annotate its message with a subclass of Message: ({message}: SomeMessage).")


def _advice(method: Callable[..., Any]) -> str:
    """Return advice for a method that is async or yields, "" for any other."""
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        return " It is async, but a handler never waits: write def, without async and await."
    if inspect.isgeneratorfunction(method):
        return " It yields: publish with context.publish(...), and return the state."
    return ""


def business_id_of(message_type: type[Message], by: str, where: str) -> tuple[tuple[str, ...], KeyKind]:
    """Return the path of the field that `by` names in the JSON of the body, and the kind of its type.

    Raises `AppError` if there is no such field, or its type is not str, UUID or a strict int.
    """
    model: Any = message_type
    wire: list[str] = []
    is_strict = False
    for name in by.split("."):
        is_model = isinstance(model, type) and issubclass(model, BaseModel)
        field = model.model_fields.get(name) if is_model else None
        if field is None:
            fields = ", ".join(model.model_fields) if is_model else "none"
            raise AppError(
                f"{where}: {message_type.__name__} has no field {by!r}. Possible for {name!r}: {fields}."
            )
        alias = field.validation_alias
        if isinstance(alias, AliasPath | AliasChoices):
            raise AppError(f"{where}: the field {name} of the business id has several aliases: give it one.")
        wire.append(alias or name)
        is_strict = bool(model.model_config.get("strict")) or any(
            isinstance(mark, Strict) and mark.strict for mark in field.metadata
        )
        model = resolve_alias(field.annotation)
    kind = {str: KeyKind.TEXT, UUID: KeyKind.UUID, int: KeyKind.INTEGER if is_strict else None}.get(model)
    if kind is None:
        raise AppError(
            f"{where}: {message_type.__name__}.{by} is a {getattr(model, '__name__', model)}: a business id must be a "
            f"str, a UUID or a strict int: write {name}: {'StrictInt' if model is int else 'str'}."
        )
    return tuple(wire), kind

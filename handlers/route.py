"""Routes: which method handles a message, and which field of the message holds the business id."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from types import UnionType
from typing import Any, Union, get_args, get_origin
from uuid import UUID

from pydantic import AliasChoices, AliasPath, BaseModel, Strict
from pydantic.fields import FieldInfo

from handlers.context import Context
from handlers.errors import AppError
from handlers.fields import resolve_alias
from handlers.message import Message, message_aliases, message_name
from handlers.state import State

Method = Callable[[State, Message, Context], State]


class KeyKind(Enum):
    """The type of a business id, which decides how it is written as text."""

    TEXT = "text"
    UUID = "uuid"
    INTEGER = "integer"


@dataclass(frozen=True)
class Route:
    """The way of messages of one type to one handler.

    `path` is the business id's path in the model's attributes, `wire_path` the one in the JSON of the body.
    `revisions` holds the methods by revision.
    """

    handler: str
    message_type: type[Message]
    path: tuple[str, ...]
    wire_path: tuple[str, ...]
    key_kind: KeyKind
    revisions: Mapping[int, Method]

    @cached_property
    def newest(self) -> int:
        """The revision that new messages take."""
        return max(self.revisions)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of its messages on the wire: the name of the type, and its aliases."""
        return (message_name(self.message_type), *message_aliases(self.message_type))

    def business_id(self, message: Message) -> str:
        """Return the business id of a message as text: a UUID in lower case with hyphens."""
        value: Any = message
        for name in self.path:
            value = getattr(value, name)
        return str(value)


def message_type_of(method: Callable[..., Any], state_type: type[State]) -> type[Message]:
    """Return the message type from the annotations of a handler method.

    Raises `AppError` when its signature is not `(self, state, message, context) -> state`.
    """
    where = method.__qualname__
    parameters = inspect.signature(method).parameters
    if len(parameters) != len(("self", "state", "message", "context")) or not _is_plain(method):
        raise AppError(
            f"{where} must be a plain method (self, state, message, context) that returns the next state."
            f"{_advice(method)}"
        )
    hints = _hints(method, where)
    _, state, message, context = parameters
    if hints.get(state, state_type) is not state_type or hints.get("return", state_type) is not state_type:
        raise AppError(f"{where} must take and return a {state_type.__name__}, the state of its handler.")
    if hints.get(context, Context) is not Context:
        raise AppError(f"{where} must take a Context as its last argument: ({context}: Context).")
    message_type = hints.get(message)
    if not (
        isinstance(message_type, type) and issubclass(message_type, Message) and message_type is not Message
    ):
        raise AppError(_no_message_type(where, message, message_type))
    return message_type


def _no_message_type(where: str, name: str, found: object) -> str:
    if isinstance(found, UnionType) or get_origin(found) is Union:
        types = ", ".join(getattr(each, "__name__", str(each)) for each in get_args(found))
        return f"{where} takes one of {types}: write a method for each message type, which may call a common function."
    if isinstance(found, type) and found.__module__ != "builtins" and not issubclass(found, Message | State):
        return (
            f"{where} takes a {found.__name__}, which is no message: write class {found.__name__}(Message)."
        )
    return f"{where} must annotate its message with a subclass of Message: ({name}: SomeMessage)."


def _advice(method: Callable[..., Any]) -> str:
    """Return what to write instead of a method that waits or yields."""
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        return " It is async, and a handler waits for nothing: write def, without async and await."
    if inspect.isgeneratorfunction(method):
        return " It yields: publish by context.publish(...), and return the state."
    return ""


def _is_plain(method: Callable[..., Any]) -> bool:
    """Return whether a method is synchronous and takes positional arguments."""
    if any(
        kind(method)
        for kind in (inspect.iscoroutinefunction, inspect.isgeneratorfunction, inspect.isasyncgenfunction)
    ):
        return False
    in_order = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return all(parameter.kind in in_order for parameter in inspect.signature(method).parameters.values())


def business_id_of(message_type: type[Message], by: str, where: str) -> tuple[tuple[str, ...], KeyKind]:
    """Return the path of the field that `by` names in the JSON of the body, and the kind of its type.

    Raises `AppError` when there is no such field, or its type is not str, UUID or a strict int.
    """
    model: Any = message_type
    wire: list[str] = []
    for position, name in enumerate(by.split(".")):
        field = model.model_fields.get(name) if _is_model(model) else None
        if field is None:
            raise AppError(
                f"{where}: {message_type.__name__} has no field {'.'.join(by.split('.')[: position + 1])!r}."
            )
        wire.append(_wire_name(field, name, where))
        strict = bool(model.model_config.get("strict")) or any(
            isinstance(mark, Strict) and mark.strict for mark in field.metadata
        )
        model = resolve_alias(field.annotation)
    return tuple(wire), _key_kind(model, f"{where}: {message_type.__name__}.{by}", strict=strict)


def _key_kind(annotation: Any, where: str, *, strict: bool) -> KeyKind:  # noqa: ANN401 - a type expression
    if annotation is str:
        return KeyKind.TEXT
    if annotation is UUID:
        return KeyKind.UUID
    if annotation is int and strict:
        return KeyKind.INTEGER
    shown = getattr(annotation, "__name__", str(annotation))
    hint = (
        '; use pydantic.StrictInt, which does not take 7, 7.0 and "7" for the same id'
        if annotation is int
        else ""
    )
    raise AppError(f"{where} is a {shown}: a business id must be a str, a UUID or a strict int{hint}.")


def _is_model(annotation: Any) -> bool:  # noqa: ANN401 - a type expression
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _wire_name(field: FieldInfo, name: str, where: str) -> str:
    alias = field.validation_alias
    if isinstance(alias, AliasPath | AliasChoices):
        raise AppError(f"{where}: the field {name} of the business id has several aliases: give it one.")
    return alias or name


def _hints(method: Callable[..., Any], where: str) -> dict[str, Any]:
    try:
        return typing.get_type_hints(method)
    except NameError as error:
        raise AppError(
            f"{where}: {error}. Import the types of a handler at run time, not under TYPE_CHECKING."
        ) from error

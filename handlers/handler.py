"""Handlers: classes of pure methods (state, message, context) -> next state."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from typing import Any, ClassVar, Generic, Protocol, TypeVar, cast

from handlers.context import Context
from handlers.errors import AppError
from handlers.message import Message
from handlers.names import stable_name
from handlers.state import State

S = TypeVar("S", bound=State)
M = TypeVar("M", bound=Message)
H = TypeVar("H", bound="Handler[Any]")

D = TypeVar("D", bound=Callable[..., Any])

_MARK = "__handles__"


@dataclass(frozen=True, slots=True)
class Handles:
    """The mark of a handler method: the path of the business id in the message, and the revision."""

    by: str
    revision: int


class Mark(Protocol):
    """The decorator that `@handles(...)` returns. Its type makes a type checker compare the method's types."""

    def __call__(self, method: Callable[[H, S, M, Context], S], /) -> Callable[[H, S, M, Context], S]:
        """Mark a method."""


def _with_brackets(decorator: D) -> D:
    """Return a decorator that says what to write when it stands without its brackets, or with nothing in them."""

    @wraps(decorator)
    def checked(*method: object, **options: object) -> object:
        if not method and "by" in options:
            return decorator(**options)
        above = f" above {getattr(method[0], '__qualname__', method[0])}" if method else ""
        raise AppError(
            f'@handles needs the field that holds the business id{above}: write @handles(by="FIELD").'
        )

    return cast("D", checked)


@_with_brackets
def handles(*, by: str, revision: int = 1) -> Mark:
    """Mark a method as the one that handles the message type of its second argument.

    `by` names the field of the message that holds the business id; a dotted path names a field of a nested model.
    `revision`, from 1, tells two methods for one message type apart: new messages take the highest, a replay takes
    the one that handled the message first. Raises `AppError` for anything else.
    """
    if not isinstance(by, str) or not all(by.split(".")):  # type: ignore[redundant-expr] # whatever is given
        raise AppError(
            f"@handles(by=...) takes the name of the field that holds the business id, not {by!r}."
        )
    if type(revision) is not int or revision < 1:
        raise AppError(f"@handles(revision=...) takes an int from 1, not {revision!r}.")

    def mark(method: Callable[[H, S, M, Context], S], /) -> Callable[[H, S, M, Context], S]:
        setattr(method, _MARK, Handles(by, revision))
        return method

    return mark


def mark_of(method: object) -> Handles | None:
    """Return the mark that `@handles` put on a method, None for any other attribute."""
    mark = getattr(method, _MARK, None)
    return mark if isinstance(mark, Handles) else None


class Handler(Generic[S]):
    """Base of handlers: the rules of one kind of business object, whose state is an `S`.

    A handler is pure: it reads all it needs from its arguments and keeps nothing between messages. Its name is the
    prefix of the key of every stream that it writes; `class Range(Handler[Data], name="ShootingRange")` keeps the
    name when the class is renamed.
    """

    __handler_name__: ClassVar[str] = "Handler"

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - object's
        super().__init_subclass__(**kwargs)
        cls.__handler_name__ = stable_name(name or cls.__name__, f"The handler {cls.__qualname__}")

    def __setattr__(self, name: str, value: object) -> None:
        where = f"{type(self).__name__}.{name}"
        raise AttributeError(
            f"{where} cannot be set, as a handler keeps nothing between messages: return it in the next state."
        )


def handler_name(handler_type: type[Handler[Any]]) -> str:
    """Return the name of a handler, the prefix of its streams' keys."""
    return handler_type.__handler_name__

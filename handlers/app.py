"""Handlers are classes of pure methods (state, message, context) -> next state. An app runs handlers together."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from functools import cached_property, wraps
from types import MappingProxyType, UnionType
from typing import Any, ClassVar, Generic, Protocol, TypeVar, Union, cast, get_args, get_origin
from uuid import UUID

from pydantic import AliasChoices, AliasPath, BaseModel, Strict, ValidationError

from handlers.codec import check_model, resolve_alias
from handlers.context import Context
from handlers.errors import AppError, CodecError, InputStateChangedError
from handlers.message import Message, State, StateCodec, message_aliases, message_name, stable_name

S = TypeVar("S", bound=State)
M = TypeVar("M", bound=Message)
H = TypeVar("H", bound="Handler[Any]")

D = TypeVar("D", bound=Callable[..., Any])

_MARK = "__handles__"


@dataclass(frozen=True, slots=True)
class HandlerMark:
    """The arguments of `@handles`: the path of the business id in the message, and the revision."""

    by: str
    revision: int


class Mark(Protocol):
    """The decorator that `handles(...)` returns. Type checkers use this type to check the signature of a method."""

    def __call__(self, method: Callable[[H, S, M, Context], S], /) -> Callable[[H, S, M, Context], S]:
        """Mark a method as the handler of the message type in its signature."""


def _with_brackets(decorator: D) -> D:
    """Wrap a decorator to raise an `AppError` with advice if it is used without brackets or without `by`."""

    @wraps(decorator)
    def checked(*method: object, **options: object) -> object:
        if not method and "by" in options:
            return decorator(**options)
        above = f" above {getattr(method[0], '__qualname__', method[0])}" if method else ""
        raise AppError(f'@handles needs the field of the business id{above}: write @handles(by="FIELD").')

    return cast("D", checked)


@_with_brackets
def handles(*, by: str, revision: int = 1) -> Mark:
    """Mark a method as the handler of a message type, which is the annotation of its parameter after the state.

    `by` names the field with the business id. A dotted path names a field of a nested model. `revision`, from 1,
    distinguishes methods for one message type. New messages are handled by the highest revision, and replays by the
    recorded revision. Raises `AppError` if `by` or `revision` is invalid.
    """
    if not isinstance(by, str) or not all(by.split(".")):  # type: ignore[redundant-expr] # whatever is given
        raise AppError(f'@handles takes the name of the field of the business id, by="FIELD", not by={by!r}.')
    if type(revision) is not int or revision < 1:
        raise AppError(f"@handles(revision=...) takes an int from 1, not {revision!r}.")

    def mark(method: Callable[[H, S, M, Context], S], /) -> Callable[[H, S, M, Context], S]:
        setattr(method, _MARK, HandlerMark(by, revision))
        return method

    return mark


class Handler(Generic[S]):
    """Base class of handlers, which hold the rules of one kind of business object. `S` is the type of its state.

    A handler is pure: its methods read only their arguments, and it keeps nothing between messages. The keys of its
    streams begin with its name. `class Range(Handler[Data], name="ShootingRange")` keeps the name after a renaming.
    """

    __handler_name__: ClassVar[str] = "Handler"

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - object's
        super().__init_subclass__(**kwargs)
        cls.__handler_name__ = stable_name(name or cls.__name__, f"The handler {cls.__qualname__}")

    # Instances are shared by all messages of a process.
    def __setattr__(self, name: str, value: object) -> None:
        where = f"{type(self).__name__}.{name}"
        raise AttributeError(f"{where} cannot be set: keep data between messages in the state.")


Method = Callable[[State, Message, Context], State]


class KeyKind(Enum):
    """The type of a business id, which decides its text form."""

    TEXT = "text"
    UUID = "uuid"
    INTEGER = "integer"


@dataclass(frozen=True)
class Route:
    """How a handler takes a message type. The business id is at `path` in the model, and at `wire_path` in the JSON."""

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
        """The names of the message type on the wire: the current name, then the aliases."""
        return (message_name(self.message_type), *message_aliases(self.message_type))

    def business_id(self, message: Message) -> str:
        """Return the business id of a message as text. A UUID is written in lower case with hyphens."""
        value: Any = message
        for name in self.path:
            value = getattr(value, name)
        return str(value)


def message_type_of(method: Callable[..., Any], state_type: type[State]) -> type[Message]:
    """Return a method's message type. Raises `AppError` for an invalid signature or a state other than `state_type`."""
    where = method.__qualname__
    parameters = inspect.signature(method).parameters
    advice = ""
    if inspect.iscoroutinefunction(method) or inspect.isasyncgenfunction(method):
        advice = " It is async, but a handler never waits: write def, without async and await."
    elif inspect.isgeneratorfunction(method):
        advice = " It yields: publish with context.publish(...), and return the state."
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
        name = hint.__name__
        raise AppError(f"{where} takes a {name}, which is not a Message: write class {name}(Message).")
    raise AppError(f"{where} must annotate its message with a subclass of Message: ({message}: SomeMessage).")


def business_id_of(message_type: type[Message], by: str, where: str) -> tuple[tuple[str, ...], KeyKind]:
    """Return the JSON path of the field that `by` names, and the kind of business id in the field.

    Raises `AppError` if the field cannot hold a business id. The error text begins with `where`, the method's name.
    """
    model: Any = message_type
    wire: list[str] = []
    is_strict = False
    for name in by.split("."):
        is_model = isinstance(model, type) and issubclass(model, BaseModel)
        field = model.model_fields.get(name) if is_model else None
        if field is None:
            fields = ", ".join(model.model_fields) if is_model else "none"
            owner = message_type.__name__
            raise AppError(f"{where}: {owner} has no field {by!r}. Possible for {name!r}: {fields}.")
        alias = field.validation_alias
        if isinstance(alias, AliasPath | AliasChoices):
            raise AppError(f"{where}: the field {name} of the business id has several aliases: give it one.")
        wire.append(alias or name)
        strict = [mark.strict for mark in field.metadata if isinstance(mark, Strict)]
        is_strict = bool(model.model_config.get("strict")) or any(strict)
        model = resolve_alias(field.annotation)
    kind = {str: KeyKind.TEXT, UUID: KeyKind.UUID, int: KeyKind.INTEGER if is_strict else None}.get(model)
    if kind is None:
        problem = f"{where}: {message_type.__name__}.{by} is a {getattr(model, '__name__', model)}"
        write = f"{name}: {'StrictInt' if model is int else 'str'}"
        raise AppError(f"{problem}: a business id must be a str, a UUID or a strict int: write {write}.")
    return tuple(wire), kind


T = TypeVar("T")


class Problems:
    """Collects errors, to raise them together."""

    def __init__(self) -> None:
        self._errors: list[AppError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Context manager that collects an `AppError` raised in the block instead of passing it on."""
        try:
            yield
        except AppError as error:
            self._errors.append(error)

    def check(self) -> None:
        """Raise one `AppError` with the sentences of all collected errors, if there are any."""
        sentences = dict.fromkeys(each for error in self._errors for each in error.args)
        if self._errors:
            raise AppError(*sentences) from self._errors[0].__cause__


class CallInterceptor:
    """Runs the calls of handlers and of messages' validators. Subclasses in `runtime.supervision` add time limits."""

    def method(self, method: Method) -> Method:
        """Return the function to call instead of a handler's method: here the method itself."""
        return method

    def call(self, run: Callable[[], T], under_way: Callable[[], Context | None]) -> T:  # noqa: ARG002 - for others
        """Return the result of `run`. `under_way` returns the context of the current call, or None between calls."""
        return run()

    def parse(self, run: Callable[[], T], parsed: Sequence[object]) -> T:  # noqa: ARG002 - for others
        """Return the result of `run`, which parses messages. The length of `parsed` shows the progress of `run`."""
        return run()


class HandlerDefinition:
    """A handler of an app: its name, the codec of its state, and its routes by message name and alias."""

    interceptor = CallInterceptor()

    def __init__(self, handler_type: type[Handler[Any]]) -> None:
        self.draw_key: bytes | None = None
        self.name: str = handler_type.__handler_name__
        self.handler_type = handler_type
        self.state_type = _state_type(handler_type)
        problems = Problems()
        with problems.collected():
            check_model(self.state_type)
            self.codec = StateCodec(self.state_type)
            self.initial = self._initial_state()
        self.routes: Mapping[str, Route] = MappingProxyType(self._find_routes(problems))
        problems.check()

    def _initial_state(self) -> bytes:
        name = self.state_type.__name__
        try:
            state = self.state_type()
            return self.codec.canonical(state, self.codec.write(state))[1]
        except ValidationError as error:
            missing = ", ".join(str(problem["loc"][0]) for problem in error.errors() if problem["loc"])
            told = f"{name} needs a default for {missing}: the defaults are the initial state."
            raise AppError(told) from error
        except CodecError as error:
            raise AppError(f"The defaults of {name} cannot be the initial state: {error}") from error

    def _find_routes(self, problems: Problems) -> dict[str, Route]:
        routes: dict[str, Route] = {}
        try:
            instance = self.handler_type()
        except Exception as error:
            advice = "Remove its __init__: a handler keeps nothing between messages."
            raise AppError(f"{self.handler_type.__name__}() failed: {error}. {advice}") from error
        methods = {name: getattr(self.handler_type, name) for name in dir(self.handler_type)}
        marked = {name: method for name, method in methods.items() if hasattr(method, _MARK)}
        with problems.collected():
            if not marked:
                raise AppError(f"{self.name} handles no message: mark its methods with @handles(by=...).")
        for attribute, function in marked.items():
            mark: HandlerMark = getattr(function, _MARK)
            with problems.collected():
                message_type = message_type_of(function, self.state_type)
                with problems.collected():
                    check_model(message_type)
                if message_type.__pydantic_complete__:
                    self._add_route(routes, message_type, mark, getattr(instance, attribute))
        for route in list(routes.values()):
            for alias in message_aliases(route.message_type):
                other = routes.setdefault(alias, route)
                with problems.collected():
                    _check_one_type(alias, other.message_type, route.message_type)
        return routes

    def _add_route(
        self, routes: dict[str, Route], message_type: type[Message], mark: HandlerMark, method: Method
    ) -> None:
        wire_path, kind = business_id_of(message_type, mark.by, method.__qualname__)
        name, path = message_name(message_type), tuple(mark.by.split("."))
        other = routes.get(name)
        revisions = dict(other.revisions) if other else {}
        if mark.revision in revisions:
            both = f"{revisions[mark.revision].__name__} and {method.__name__}"
            write = f'@handles(by="{mark.by}", revision={max(revisions) + 1}) above the newer of {both}'
            problem = f"{self.name} has two methods for {name}, revision {mark.revision}"
            raise AppError(f"{problem}: write {write}.")
        if other and (other.path != path or other.message_type is not message_type):
            raise AppError(f"{self.name}: all revisions for {name} must take the same type and `by`.")
        revisions[mark.revision] = method
        routes[name] = Route(self.name, message_type, path, wire_path, kind, revisions)


def settle(  # noqa: PLR0917 - called for each message: by position, which is faster
    handler: HandlerDefinition,
    method: Method,
    state: State,
    values: list[Any],
    before: bytes,
    returned: Any,  # noqa: ANN401 - what the user's code returned
    context: Context,
) -> tuple[State, bytes]:
    """Check the return value of a method. Return the next state as storage will return it, and its JSON.

    `values` are the fields of `state` before the call, and `before` is its JSON. Raises `InputStateChangedError` if the
    method mutated `state`, `CodecError` for an invalid next state, and the error in `context.exceeded` if there is one.
    """
    codec, plain = handler.codec, handler.codec.plain
    if context.exceeded is not None:  # the handler may have caught the error
        raise context.exceeded
    if type(returned) is not handler.state_type:
        name, kind = getattr(method, "__qualname__", "The handler"), type(returned).__name__
        if returned is None:
            raise CodecError(f"{name} returned None: return the next state, or the input state unchanged.")
        raise CodecError(f"{name} returned a {kind}: return the next state, a {handler.state_type.__name__}.")
    if plain is not None:
        if not plain.is_unchanged(state, values):
            raise _changed(handler)
        if returned is state:
            return state, before
        after = codec.write(returned)
        if plain.survives(returned, after):
            return returned, after
    else:
        after = codec.write(returned)
        if (after if returned is state else codec.write(state)) != before:
            raise _changed(handler)
    return (codec.reread(before), before) if returned is state else codec.canonical(returned, after)


def _changed(handler: HandlerDefinition) -> InputStateChangedError:
    advice = "return a changed copy, state.model_copy(update=...)"
    return InputStateChangedError(f"{handler.name} mutated its input state: {advice}.")


class App:
    """Handlers that run together: `app = App(ShootingRange, LeaderBoard)`.

    `name` identifies the app as the owner of a table, even after handlers are renamed. By default, the names of the
    handlers identify the app. Raises `AppError` with a sentence for each problem: duplicate names, invalid method
    signatures, business ids of unsupported types, mutable fields, and gaps between schema versions.
    """

    def __init__(self, *handlers: type[Handler[Any]], name: str | None = None) -> None:
        self.name = name
        self.draw_key: bytes | None = None
        self.handlers: dict[str, HandlerDefinition] = {}
        self.message_types: dict[str, type[Message]] = {}
        problems = Problems()
        for handler_type in handlers:
            with problems.collected():
                self._add(handler_type)
        problems.check()
        if not self.handlers:
            raise AppError("An App needs at least one handler: App(ShootingRange).")

    def routes(self, message_type: str) -> tuple[Route, ...]:
        """Return the routes for a message type's name or alias; empty if no handler takes such messages."""
        routes = (definition.routes.get(message_type) for definition in self.handlers.values())
        return tuple(route for route in routes if route)

    @property
    def handler_types(self) -> tuple[type[Handler[Any]], ...]:
        """The handler classes of the app."""
        return tuple(definition.handler_type for definition in self.handlers.values())

    def keyed(self, draw_key: bytes | None) -> App:
        """Return the app or a copy with draws keyed by a secret, so that senders cannot predict them. None: no key."""
        if draw_key == self.draw_key:
            return self
        return _made(type(self), self.handler_types, self.name, draw_key)

    # Workers construct the app again from its handlers.
    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self.handler_types, self.name, self.draw_key)

    def _add(self, handler_type: type[Handler[Any]]) -> None:
        given: object = handler_type
        if not (isinstance(given, type) and issubclass(given, Handler)):
            raise AppError(f"App takes classes, as App(Bell) for class Bell(Handler[...]), not {given!r}.")
        definition = HandlerDefinition(handler_type)
        if definition.name in self.handlers:
            problem = f"Two handlers are named {definition.name} and would share their streams"
            raise AppError(f"{problem}: give one another name, as in class {definition.name}(..., name=...).")
        self.handlers[definition.name] = definition
        for name, route in definition.routes.items():
            _check_one_type(name, self.message_types.setdefault(name, route.message_type), route.message_type)


def _made(
    kind: type[App], handlers: tuple[type[Handler[Any]], ...], name: str | None, draw_key: bytes | None
) -> App:
    app = kind(*handlers, name=name)
    app.draw_key = draw_key
    for definition in app.handlers.values():
        definition.draw_key = draw_key
    return app


def _check_one_type(name: str, one: type[Message], other: type[Message]) -> None:
    if one is other:
        return
    if message_name(one) == message_name(other):
        raise AppError(f"Two message types are named {name}: give one of them another name.")
    both = f"{message_name(one)} and {message_name(other)}"
    raise AppError(f"The message types {both} both take messages named {name}: remove an alias.")


def _state_type(handler_type: type[Handler[Any]]) -> type[State]:
    name = handler_type.__name__
    for base_type in handler_type.__mro__:
        for base in vars(base_type).get("__orig_bases__", ()):
            (argument, *_) = (*get_args(base), None)
            if not isinstance(argument, type):
                continue
            if issubclass(argument, State):
                return argument
            state = argument.__name__
            raise AppError(
                f"{name} has a {state} as its state, which is not a State: write class {state}(State)."
            )
    raise AppError(f"{name} must name its state: class {name}(Handler[SomeState]).")

"""The app: handlers that run together, validated by the constructor."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import MappingProxyType
from typing import Any, TypeVar, get_args

from pydantic import ValidationError

from handlers import handler
from handlers.codec import check_model
from handlers.context import Context
from handlers.errors import AppError, CodecError
from handlers.handler import Handler, HandlerMark, Method, Route, business_id_of, handler_name, mark_of
from handlers.message import Message, State, StateCodec, message_aliases, message_name

T = TypeVar("T")


class Problems:
    """Collects errors, to report all of them at once."""

    def __init__(self) -> None:
        self._errors: list[AppError] = []

    @contextmanager
    def collected(self) -> Iterator[None]:
        """Collect an `AppError` raised in the block."""
        try:
            yield
        except AppError as error:
            self._errors.append(error)

    def check(self) -> None:
        """Raise one `AppError` for all collected errors, if any."""
        sentences = dict.fromkeys(each for error in self._errors for each in error.args)
        if self._errors:
            raise AppError(*sentences) from self._errors[0].__cause__


class CallInterceptor:
    """Wraps the calls of a handler and of its messages' validators. `runtime.supervision` adds time limits."""

    def method(self, method: Method) -> Method:
        """Return the method to call instead of a handler's."""
        return method

    def call(self, run: Callable[[], T], under_way: Callable[[], Context | None]) -> T:  # noqa: ARG002 - for others
        """Return the result of `run`, which calls the handler. `under_way` returns the context of the current call."""
        return run()

    def parse(self, run: Callable[[], T], parsed: Sequence[object]) -> T:  # noqa: ARG002 - for others
        """Return the result of `run`, which appends each message that it parses to `parsed`."""
        return run()


class HandlerDefinition:
    """One handler of an app: its name, the codec of its state, and its routes by message name and alias.

    `draw_key` is the secret of the handler's table if its draws are keyed.
    """

    interceptor = CallInterceptor()

    def __init__(self, handler_type: type[Handler[Any]]) -> None:
        self.draw_key: bytes | None = None
        self.name = handler_name(handler_type)
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
            raise AppError(
                f"{name} needs a default for {missing}: the defaults are the initial state."
            ) from error
        except CodecError as error:
            raise AppError(f"The defaults of {name} cannot be the initial state: {error}") from error

    def _find_routes(self, problems: Problems) -> dict[str, Route]:
        """Return the routes of the valid methods, by message name and alias."""
        routes: dict[str, Route] = {}
        try:
            instance = self.handler_type()
        except Exception as error:
            raise AppError(
                f"{self.handler_type.__name__}() failed: {error}. Remove its __init__: a handler keeps nothing between "
                f"messages, and reads only its state and messages."
            ) from error
        methods = {name: getattr(self.handler_type, name) for name in dir(self.handler_type)}
        marked = {name: (method, mark) for name, method in methods.items() if (mark := mark_of(method))}
        with problems.collected():
            if not marked:
                raise AppError(f"{self.name} handles no message: mark its methods with @handles(by=...).")
        for attribute, (function, mark) in marked.items():
            with problems.collected():
                message_type = handler.message_type_of(function, self.state_type)
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
            raise AppError(
                f"{self.name} has two methods for {name}, revision {mark.revision}: write "
                f'@handles(by="{mark.by}", revision={max(revisions) + 1}) above the newer one of {both}.'
            )
        if other and (other.path != path or other.message_type is not message_type):
            raise AppError(f"{self.name}: all revisions for {name} must take the same type and `by`.")
        revisions[mark.revision] = method
        routes[name] = Route(self.name, message_type, path, wire_path, kind, revisions)


class App:
    """Handlers that run together: `app = App(ShootingRange, LeaderBoard)`.

    `name` identifies the app as owner of a table, so handlers can be renamed. By default, the handler names do so.

    Raises `AppError` with a sentence for each problem: duplicate names, invalid method signatures, business ids of
    unsupported types, mutable fields, and gaps between schema versions.
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
        """Return the routes of a message type, by its name or an alias; empty if no handler takes it."""
        routes = (definition.routes.get(message_type) for definition in self.handlers.values())
        return tuple(route for route in routes if route)

    @property
    def handler_types(self) -> tuple[type[Handler[Any]], ...]:
        """The handler classes of the app."""
        return tuple(definition.handler_type for definition in self.handlers.values())

    def keyed(self, draw_key: bytes | None) -> App:
        """Return the app for a table whose draws are keyed with this secret. If it is None, they are not keyed."""
        if draw_key == self.draw_key:
            return self
        return _made(type(self), self.handler_types, self.name, draw_key)

    # Workers construct the app again from its handlers.
    def __reduce__(self) -> tuple[Any, ...]:
        return _made, (type(self), self.handler_types, self.name, self.draw_key)

    def _add(self, handler_type: type[Handler[Any]]) -> None:
        given: object = handler_type
        if not (isinstance(given, type) and issubclass(given, Handler)):
            raise AppError(
                f"App takes classes, as App(Bell) for class Bell(Handler[SomeState]), not {given!r}."
            )
        definition = HandlerDefinition(handler_type)
        if definition.name in self.handlers:
            raise AppError(
                f"Two handlers are named {definition.name} and would share their streams: give one of them another "
                f"name, as in class {definition.name}(Handler[...], name=...)."
            )
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
    """Raise `AppError` if two message types have the same name or alias."""
    if one is other:
        return
    if message_name(one) == message_name(other):
        raise AppError(f"Two message types are named {name}: give one of them another name.")
    raise AppError(
        f"The message types {message_name(one)} and {message_name(other)} both take messages named {name}: remove "
        f"the alias from one of them."
    )


def _state_type(handler_type: type[Handler[Any]]) -> type[State]:
    name = handler_type.__name__
    for base_type in handler_type.__mro__:
        for base in vars(base_type).get("__orig_bases__", ()):
            (argument, *_) = (*get_args(base), None)
            if not isinstance(argument, type):
                continue
            if issubclass(argument, State):
                return argument
            raise AppError(
                f"{name} has a {argument.__name__} as its state, which is not a State: write class "
                f"{argument.__name__}(State), with the same fields and no @dataclass."
            )
    raise AppError(f"{name} must name its state: class {name}(Handler[SomeState]).")

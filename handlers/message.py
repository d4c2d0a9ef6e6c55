"""Messages and states: frozen models that are stored and sent as JSON."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from handlers.codec import JSON, Codec
from handlers.errors import AppError, CodecError

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
"""A valid name in keys and on the wire. A stream's key is the name of the handler, "-" and the business id."""


def stable_name(name: str, owner: str) -> str:
    """Return `name`. Raises `AppError`, which mentions `owner`, if the name cannot be used in keys and on the wire."""
    if not NAME.fullmatch(name):
        raise AppError(f"{owner} is named {name!r}: use ASCII letters, digits and _, and no digit first.")
    return name


class Message(BaseModel):
    """Base class of messages.

    The name on the wire is the class name by default; `class FireAt(Message, name="FireAt")` fixes it. After a
    renaming, `class FireAt(Message, aliases=("Shoot",))` still reads messages with the old name. Messages are always
    published with the current name. Unknown fields are ignored.
    """

    model_config = ConfigDict(frozen=True, **JSON)

    __message_name__: ClassVar[str] = "Message"
    __message_aliases__: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(
        cls,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        **kwargs: Any,  # noqa: ANN401 - pydantic's
    ) -> None:
        super().__init_subclass__(**kwargs)
        owner = f"The message {cls.__qualname__}"
        cls.__message_name__ = stable_name(name or cls.__name__, owner)
        given: object = aliases
        if not isinstance(given, tuple) or not all(isinstance(alias, str) for alias in given):
            raise AppError(f'{owner} has aliases {given!r}: use a tuple of names, as in aliases=("Shoot",).')
        for alias in aliases:
            stable_name(alias, f"An alias of the message {cls.__qualname__}")
        if len({cls.__message_name__, *aliases}) <= len(aliases):
            names = f"is named {cls.__message_name__} and has the aliases {', '.join(aliases)}"
            raise AppError(f"{owner} {names}: use each name once.")
        cls.__message_aliases__ = aliases


def message_name(message_type: type[Message]) -> str:
    """Return the name of a message type on the wire."""
    return message_type.__message_name__


def message_aliases(message_type: type[Message]) -> tuple[str, ...]:
    """Return the other names under which messages of this type are read."""
    return message_type.__message_aliases__


Upcaster = Callable[[dict[str, Any]], dict[str, Any]]


class State(BaseModel):
    """Base class of states. All fields have defaults, which are the initial state of a business object.

    If the fields change, increase the schema version, and add an upcaster for each older version:
    `class Account(State, version=2, upcasters={1: add_currency})`. An upcaster takes and returns the fields as a dict,
    and converts them to the next version.
    """

    model_config = ConfigDict(frozen=True, **JSON)

    __schema_version__: ClassVar[int] = 1
    __upcasters__: ClassVar[Mapping[int, Upcaster]] = {}

    def __init_subclass__(
        cls,
        version: int = 1,
        upcasters: Mapping[int, Upcaster] | None = None,
        **kwargs: Any,  # noqa: ANN401 - pydantic's
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls.__schema_version__ = version
        cls.__upcasters__ = dict(upcasters or {})


class StateCodec(Codec[State]):
    """Encodes states in the current schema version, and upcasts states that were stored in earlier versions."""

    __slots__ = ("_upcasters", "version")

    def __init__(self, state_type: type[State]) -> None:
        super().__init__(state_type)
        self.version = state_type.__schema_version__
        self._upcasters = state_type.__upcasters__
        name = state_type.__name__
        if self.version < 1:
            raise AppError(f"{name} has schema version {self.version}: use an int from 1.")
        oldest = min(self._upcasters, default=self.version)
        missing = sorted(set(range(oldest, self.version)) ^ set(self._upcasters))
        if missing or (self.version > 1 and not self._upcasters):
            steps = ", ".join(map(str, missing)) or str(self.version - 1)
            advice = f"add missing upcasters, or remove surplus ones ({steps})"
            raise AppError(f"{name} has schema version {self.version}: {advice}.")

    def upcast(self, data: bytes, version: int) -> bytes:
        """Convert stored JSON to the current schema version.

        Raises `CodecError` if `version` is newer, or an upcaster is missing, fails or gives an invalid state.
        """
        if version == self.version:
            return data
        name = self.model_type.__name__
        stored = f"{name} was stored in schema version {version}"
        if version > self.version:
            raise CodecError(f"{stored}; this code knows versions up to {self.version}: deploy newer code.")
        fields: Any = json.loads(data)
        for step in range(version, self.version):
            if step not in self._upcasters:
                raise CodecError(f"{stored}, and there is no upcaster from version {step}: restore it.")
            try:
                fields = self._upcasters[step](fields)
            except Exception as error:
                told = f"{type(error).__name__}: {error}"
                raise CodecError(f"The upcaster of {name} from version {step} failed: {told}") from error
        return self.write(self.reread(json.dumps(fields).encode()))

"""Messages: frozen models that come in on a log and go out through the context."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from handlers.codec import JSON
from handlers.errors import AppError
from handlers.names import stable_name


class Message(BaseModel):
    """What is sent from one business object to another.

    The name on the wire is the class's, or the one given: `class FireAt(Message, name="FireAt")` keeps the
    name when the class is renamed. `class FireAt(Message, aliases=("Shoot",))` also takes messages that stand on the
    wire under another name, as they do in logs from before a type was renamed; what is published has the name, never
    an alias. Fields unknown to the class are ignored when a message is read.
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
        """Let `type` accept name and aliases; they are taken up below, once pydantic has made the class."""
        super().__init_subclass__(**kwargs)

    @classmethod
    def __pydantic_init_subclass__(
        cls,
        name: str | None = None,
        aliases: tuple[str, ...] = (),
        **kwargs: Any,  # noqa: ANN401 - pydantic's
    ) -> None:
        super().__pydantic_init_subclass__(**kwargs)
        owner = f"The message {cls.__qualname__}"
        cls.__message_name__ = stable_name(name or cls.__name__, owner)
        cls.__message_aliases__ = _aliases(aliases, cls.__message_name__, owner)


def message_name(message_type: type[Message]) -> str:
    """Return the name that stands on the wire for messages of this type."""
    return message_type.__message_name__


def message_aliases(message_type: type[Message]) -> tuple[str, ...]:
    """Return the other names under which messages of this type may stand on the wire."""
    return message_type.__message_aliases__


def _aliases(given: object, name: str, owner: str) -> tuple[str, ...]:
    if not isinstance(given, tuple) or not all(isinstance(alias, str) for alias in given):
        problem = f'{owner} has aliases {given!r}: give a tuple of names, like aliases=("Shoot",).'
        raise AppError(problem)
    aliases = tuple(stable_name(alias, f"An alias of {owner[0].lower()}{owner[1:]}") for alias in given)
    if name in aliases or len(set(aliases)) < len(aliases):
        problem = f"{owner} is named {name} and has the aliases {', '.join(aliases)}: give each name once."
        raise AppError(problem)
    return aliases

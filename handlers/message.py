"""Messages: frozen models, read from a log and published through the context."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel, ConfigDict

from handlers.codec import JSON
from handlers.errors import AppError
from handlers.names import stable_name


class Message(BaseModel):
    """Base of messages, which are sent from one business object to another.

    The name on the wire is the class's, or the given one: `class FireAt(Message, name="FireAt")` keeps the name when
    the class is renamed. `class FireAt(Message, aliases=("Shoot",))` also takes messages under another name, such as
    those in logs from before a renaming; a message is published under its name, never under an alias. Unknown fields
    are ignored when a message is read.
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
        """Accept name and aliases, which are used below, once pydantic has built the class."""
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
    """Return the name of a message type on the wire."""
    return message_type.__message_name__


def message_aliases(message_type: type[Message]) -> tuple[str, ...]:
    """Return the other names under which messages of this type are read."""
    return message_type.__message_aliases__


def _aliases(given: object, name: str, owner: str) -> tuple[str, ...]:
    if not isinstance(given, tuple) or not all(isinstance(alias, str) for alias in given):
        raise AppError(f'{owner} has aliases {given!r}: use a tuple of names, such as aliases=("Shoot",).')
    aliases = tuple(stable_name(alias, f"An alias of {owner[0].lower()}{owner[1:]}") for alias in given)
    if name in aliases or len(set(aliases)) < len(aliases):
        raise AppError(
            f"{owner} is named {name} and has the aliases {', '.join(aliases)}: use each name once."
        )
    return aliases

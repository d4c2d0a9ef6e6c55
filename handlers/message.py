"""Messages: frozen models that come in on a log and go out through the context."""

from __future__ import annotations

from typing import Any, ClassVar

from pydantic import BaseModel

from handlers.codec import FROZEN
from handlers.names import stable_name


class Message(BaseModel, frozen=True):  # type: ignore[misc] # said here once more for mypy, which reads no FROZEN
    """What is sent from one business object to another.

    The name on the wire is the class's, or the one given: `class FireAt(Message, name="FireAt")` keeps the
    name when the class is renamed. Fields unknown to the class are ignored when a message is read.
    """

    model_config = FROZEN

    __message_name__: ClassVar[str] = "Message"

    def __init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - pydantic's
        """Let `type` accept the name; it is taken up below, once pydantic has made the class."""
        super().__init_subclass__(**kwargs)

    @classmethod
    def __pydantic_init_subclass__(cls, name: str | None = None, **kwargs: Any) -> None:  # noqa: ANN401 - pydantic's
        super().__pydantic_init_subclass__(**kwargs)
        cls.__message_name__ = stable_name(name or cls.__name__, f"The message {cls.__qualname__}")


def message_name(message_type: type[Message]) -> str:
    """Return the name that stands on the wire for messages of this type."""
    return message_type.__message_name__

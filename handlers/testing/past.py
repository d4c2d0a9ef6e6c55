"""The past of a business object in a specification: its state, and the messages handled so far."""

from __future__ import annotations

from dataclasses import dataclass, replace

from handlers.app import HandlerDefinition
from handlers.errors import CodecError, SpecError
from handlers.message import Message
from handlers.state import State


@dataclass(frozen=True, slots=True)
class Past:
    """The encoded state of a business object, and the messages handled so far."""

    definition: HandlerDefinition
    state: bytes
    messages: tuple[Message, ...] = ()

    def in_state(self, state: State) -> Past:
        """Return this past with another state. Raises `SpecError` when it is no state of the handler."""
        return replace(self, state=self.encoded(state))

    def followed_by(self, message: Message, state: bytes) -> Past:
        """Return the past after a message."""
        return replace(self, state=state, messages=(*self.messages, message))

    def encoded(self, state: State) -> bytes:
        """Return the stored bytes of a state."""
        try:
            return self.definition.codec.canonical(self.definition.codec.encode(state))[1]
        except CodecError as error:
            raise SpecError(f"This is not a valid state of {self.definition.name}: {error}") from error

    def business_id_of(self, message: Message) -> str:
        """Return the business id of a message. Raises `SpecError` when it is not that of the messages so far."""
        business_id = self._named_by(message)
        if self.messages and business_id != self._named_by(self.messages[0]):
            raise SpecError(
                f"{message!r} is for {business_id!r}, and the messages before for "
                f"{self._named_by(self.messages[0])!r}: use one business object in a specification."
            )
        return business_id

    def _named_by(self, message: Message) -> str:
        route = self.definition.routes.get(getattr(message, "__message_name__", ""))
        if route is None or route.message_type is not type(message):
            raise SpecError(f"{self.definition.name} does not handle {message!r}.")
        return route.business_id(message)

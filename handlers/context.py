"""The context: all that a handler may know beside its state and message, and the way to publish.

Whatever a handler takes from its context is either drawn from the message (guids, random numbers) or recorded
with the version that the message makes (clock, captured values), so that a duplicate is handled with the same.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import msgpack

from handlers.codec import Codec
from handlers.draws import Seed, SeededRandom
from handlers.errors import CaptureError, PublishError
from handlers.fields import check_defaults
from handlers.message import Message, message_name
from handlers.text import is_text

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_NO_HEADERS: Mapping[str, str] = MappingProxyType({})


class Published(NamedTuple):
    """An output as the handler gave it: its id, the name of its type, its JSON body and its headers."""

    message_id: str
    type: str
    body: bytes
    headers: Mapping[str, str]


class Context:
    """What a handler method gets as its third argument.

    `recorded` holds the captured values of an earlier run when the message is a duplicate, None otherwise.
    `now` is in microseconds since 1970 UTC, the precision at which it is stored.
    """

    __slots__ = ("_business_id", "_guids", "_headers", "_message_id", "_now", "_random", "_recorded", "_seed",
                 "captured", "published")  # fmt: skip

    def __init__(
        self,
        handler: str,
        business_id: str,
        message_id: str,
        now: int,
        headers: Mapping[str, str] | None = None,
        *,
        recorded: Mapping[str, bytes] | None = None,
    ) -> None:
        self._seed = Seed(message_id, handler, business_id)
        self._business_id = business_id
        self._message_id = message_id
        self._now = now
        self._headers = headers
        self._recorded = recorded
        self._guids = 0
        self._random: SeededRandom | None = None
        self.captured: dict[str, bytes] = {}
        self.published: list[Published] = []

    @property
    def message_id(self) -> str:
        """The id of the message that is being handled."""
        return self._message_id

    @property
    def business_id(self) -> str:
        """The id of the business object, as text."""
        return self._business_id

    @property
    def headers(self) -> Mapping[str, str]:
        """The headers of the message, read-only."""
        return MappingProxyType(dict(self._headers)) if self._headers else _NO_HEADERS

    @property
    def now(self) -> datetime:
        """The time in UTC at which the message was first handled; never before that of an earlier version."""
        return _EPOCH + timedelta(microseconds=self._now)

    @property
    def random(self) -> random.Random:
        """A random generator seeded by the message."""
        if self._random is None:
            self._random = SeededRandom(self._seed)
        return self._random

    def new_guid(self) -> UUID:
        """Return a new guid, the same one each time that the message is handled."""
        self._guids += 1
        return self._seed.guid("guid", self._guids - 1)

    def capture(self, name: str, function: Callable[[], Any]) -> Any:  # noqa: ANN401 - plain data of any kind
        """Return what `function` gave when the message was first handled.

        It is called once for a version and its value recorded: None, bool, int (64 bits), float, str, bytes, or
        lists and dicts of these. Tuples come back as lists. Raises `CaptureError` for a name used twice, for
        other values, and when a replay asks for a name that was not recorded.
        """
        if not is_text(name):
            message = f"A value is captured under a name, which is text, not {name!r}."
            raise CaptureError(message)
        if name in self.captured:
            message = f"The name {name!r} is captured already in this handling of the message."
            raise CaptureError(message)
        self.captured[name] = (
            self._recorded_value(name) if self._recorded is not None else _pack(name, function())
        )
        return msgpack.unpackb(self.captured[name], strict_map_key=False)

    def publish(self, message: Message, *, headers: Mapping[str, str] | None = None) -> None:
        """Send a message when this one is handled. It gets its id from the context."""
        if not isinstance(message, Message):
            problem = f"Only a Message can be published, not a {type(message).__name__}."
            raise PublishError(problem)
        sent = dict(headers) if headers else {}
        if sent and not all(map(is_text, (*sent, *sent.values()))):
            problem = (
                f"The headers of a {message_name(type(message))} hold something other than text: {sent!r}."
            )
            raise PublishError(problem)
        message_id = self._seed.guid_text("message", len(self.published))
        body = message_codec(type(message)).encode(message)
        self.published.append(Published(message_id, message_name(type(message)), body, sent))

    def _recorded_value(self, name: str) -> bytes:
        try:
            return self._recorded[name]  # type: ignore[index] # only called when there are recorded values
        except KeyError:
            message = f"The name {name!r} was not captured when the message was first handled."
            raise CaptureError(message) from None


@cache
def message_codec(message_type: type[Message]) -> Codec[Message]:
    """Return the codec of a message type, made once. Raises `AppError` for defaults that differ each time."""
    check_defaults(message_type)
    return Codec(message_type)


def _pack(name: str, value: Any) -> bytes:  # noqa: ANN401 - plain data of any kind
    try:
        packed: bytes = msgpack.packb(value)
        msgpack.unpackb(packed, strict_map_key=False)
    except (TypeError, ValueError, OverflowError) as error:
        message = f"The value captured as {name!r} is no plain data: {error}."
        raise CaptureError(message) from error
    return packed

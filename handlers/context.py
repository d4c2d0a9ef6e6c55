"""The context: a handler's clock, guids, random numbers, captured values and outputs.

Guids and random numbers are derived from the message. The clock and captured values are recorded with the version. A
replay therefore reads the same values.
"""

import random
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from hashlib import sha256
from types import MappingProxyType
from typing import Any, NamedTuple
from uuid import UUID

import msgpack
from pydantic import BaseModel, ConfigDict

from handlers.codec import JSON, Codec, check_defaults, is_text, unpack
from handlers.draws import Seed, SeededRandom
from handlers.errors import CaptureError, DocumentError, OutputsTooLargeError, PublishError
from handlers.message import Message, message_name

MAX_BYTES = 64 * 2**20
MAX_DOCUMENTS = 100
"""The limits of the documents of one message. `MAX_BYTES` applies to all of them together."""

_MAX_NAME_BYTES = 100


class DocumentReference(BaseModel):
    """Refers to a document. Messages and states may have fields of this type.

    `name` is the path in the store of documents; each attempt at a message stores its documents under new names.
    `sha256` is hexadecimal, and `size` is in bytes.
    """

    model_config = ConfigDict(frozen=True, **JSON)

    name: str
    sha256: str
    size: int
    media_type: str


class NewDocument(NamedTuple):
    """A document that must be stored before the version that refers to it."""

    reference: DocumentReference
    content: bytes


def new_document(content: object, media_type: str, name: str) -> NewDocument:
    """Return a document with its reference. `name` is its path. Raises `DocumentError` unless `content` is bytes."""
    if not isinstance(content, bytes):
        raise DocumentError(f"store_document() takes bytes for {name}, not a {type(content).__name__}.")
    digest = sha256(content).hexdigest()
    reference = DocumentReference(name=name, sha256=digest, size=len(content), media_type=media_type)
    return NewDocument(reference, content)


def _check_name(text: object, what: str) -> None:
    if not is_text(text) or not text.isprintable() or not 0 < len(text.encode()) <= _MAX_NAME_BYTES:
        raise DocumentError(f"store_document() takes {what} of up to {_MAX_NAME_BYTES} bytes, not {text!r}.")


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DOCUMENT = "document "
"""The prefix of the names under which references to documents are captured."""


class Published(NamedTuple):
    """A published message: its id, type name, JSON body and headers."""

    message_id: str
    type: str
    body: bytes
    headers: Mapping[str, str]


class OutputRoom(NamedTuple):
    """The limits of the outputs of one message: their number, and the bytes of their bodies and headers together."""

    messages: int
    bytes: int


class Context:
    """The third argument of a handler method.

    - `now`: the time as it is stored, in microseconds since 1970 UTC.
    - `recorded`: the captured values of the version to replay, packed with msgpack; None for a new message.
    - `place`: the prefix of document names, new for each attempt; if None, it is derived from the message.
    - `draw_key`: the secret of a table whose draws are keyed; None if draws are not keyed.
    - `room`: the maximum number and size of the outputs; None for no limits.

    `exceeded` is the error if the outputs exceeded `room` or the handler ran too long, otherwise None.
    """

    __slots__ = ("_business_id", "_guids", "_headers", "_message_id", "_now", "_place", "_random", "_recorded", "_room",
                 "_seed", "_sent", "captured", "documents", "exceeded", "published")  # fmt: skip

    def __init__(
        self,
        handler: str,
        business_id: str,
        message_id: str,
        now: int,
        headers: Mapping[str, str] | None = None,
        *,
        recorded: Mapping[str, bytes] | None = None,
        room: OutputRoom | None = None,
        place: str | None = None,
        draw_key: bytes | None = None,
    ) -> None:
        self._seed = Seed(message_id, handler, business_id, draw_key)
        self._business_id = business_id
        self._message_id = message_id
        self._now = now
        self._headers = headers
        self._recorded = recorded
        self._place = place
        self._guids = 0
        self._random: SeededRandom | None = None
        self.captured: dict[str, bytes] = {}
        self.documents: list[NewDocument] = []
        self.published: list[Published] = []
        self._room = room
        self._sent = 0
        self.exceeded: BaseException | None = None

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
        """The headers of the message, read-only, without the trace context (`traceparent`, `tracestate`)."""
        return MappingProxyType(dict(self._headers or {}))

    @property
    def now(self) -> datetime:
        """The time when the message was first handled, in UTC. Never earlier than the time of the previous version."""
        return _EPOCH + timedelta(microseconds=self._now)

    @property
    def random(self) -> random.Random:
        """A random generator seeded by the message. `SeededRandom` lists its methods."""
        if self._random is None:
            self._random = SeededRandom(self._seed)
        return self._random

    def new_guid(self) -> UUID:
        """Return a new guid, the same in every replay of the message."""
        self._guids += 1
        return self._seed.guid("guid", self._guids - 1)

    def capture(self, name: str, function: Callable[[], Any]) -> Any:  # noqa: ANN401 - plain data of any kind
        """Call `function`, record its result under `name`, and return it. A replay returns the recorded result.

        The result is None, a bool, int (64 bits), float, str or bytes, or a list or dict of these. A tuple is returned
        as a list. Raises `CaptureError` for a repeated name or another type, and in a replay for an unrecorded name.
        """
        if not is_text(name):
            raise CaptureError(f"capture() takes a name that is a str, valid as UTF-8, not {name!r}.")
        if name in self.captured:
            raise CaptureError(f"The handler captures {name!r} twice: use another name for each value.")
        if self._recorded is None:
            packed = _pack(name, function())
        elif name in self._recorded:
            packed = self._recorded[name]
        else:
            problem = "was not captured when the message was first handled: add a revision"
            raise CaptureError(f"A replay captures {name!r}, which {problem}.")
        self.captured[name] = packed
        return unpack(packed, strict_map_key=False)

    def store_document(
        self, content: bytes | Callable[[], bytes], *, media_type: str, name: str
    ) -> DocumentReference:
        """Store a document before the outputs are published. Return a reference for the state and outputs.

        `content` is bytes or, better, a function that returns bytes. The function is called once, never in a replay,
        and may be nondeterministic. `name` is a file name, unique among the documents of a message. The reference's
        name ends in it. The reference is recorded with the version.

        Raises `DocumentError` for an invalid name or media type, content that is not bytes, and more than 100 documents
        or 64 MiB for the message. Raises `CaptureError` for a repeated name.
        """
        _check_name(name, "a plain file name such as 'invoice.pdf'")
        if "/" in name or "\\" in name or name in {".", ".."}:
            raise DocumentError(f"store_document() takes a plain file name without a folder, not {name!r}.")
        _check_name(media_type, "a media type such as 'application/pdf'")

        def ask() -> dict[str, Any]:
            place = self._place or self._seed.guid_text("document", 0)
            data = content() if callable(content) else content
            self.documents.append(new_document(data, media_type, f"{place}-{name}"))
            size = sum(document.reference.size for document in self.documents)
            if len(self.documents) > MAX_DOCUMENTS or size > MAX_BYTES:
                stored = f"{len(self.documents)} documents with {size:,} bytes"
                most = f"{MAX_DOCUMENTS} with {MAX_BYTES:,}"
                raise DocumentError(f"The handler stores {stored}; for one message it can store {most}.")
            return self.documents[-1].reference.model_dump()

        return DocumentReference.model_validate(self.capture(f"{DOCUMENT}{name}", ask))

    def publish(self, message: Message, *, headers: Mapping[str, str] | None = None) -> None:
        """Publish a message after the next state is stored. The id of the output is derived from the handled message.

        Raises `PublishError` if `message` is not a `Message`, headers are not str, or the outputs exceed their limits.
        Raises `CodecError` for a message that cannot be encoded.
        """
        if not isinstance(message, Message):
            raise PublishError(f"publish() takes a Message, not a {type(message).__name__}.")
        sent = dict(headers) if headers else {}
        name = message_name(type(message))
        if sent and not all(map(is_text, (*sent, *sent.values()))):
            raise PublishError(f"The headers of a {name} must be str, valid as UTF-8, not {sent!r}.")
        message_id = self._seed.guid_text("message", len(self.published))
        codec = message_codec(type(message))
        body = codec.write(message)
        # Bodies of plain models are canonical already.
        if codec.plain is None or not codec.plain.survives(message, body):
            body = codec.canonical(message, body)[1]  # model_copy and model_construct do not validate
        if self._room is not None:
            self._sent += len(body)
            if sent:
                self._sent += sum(len(text.encode()) for text in (*sent, *sent.values()))
            if len(self.published) >= self._room.messages or self._sent > self._room.bytes:
                most = f"{self._room.messages:,} messages and {self._room.bytes:,} bytes"
                self.exceeded = OutputsTooLargeError(f"The handler exceeds the limit of outputs: {most}.")
                raise self.exceeded
        self.published.append(Published(message_id, name, body, sent))


@cache
def message_codec(message_type: type[Message]) -> Codec[Message]:
    """Return the cached codec of a message type. Raises `AppError` for a nondeterministic default_factory."""
    check_defaults(message_type)
    return Codec(message_type)


def _pack(name: str, value: Any) -> bytes:  # noqa: ANN401 - plain data of any kind
    try:
        packed: bytes = msgpack.packb(value)
        # Values that a replay could not read must fail the first time.
        unpack(packed, strict_map_key=False)
    except (TypeError, ValueError, OverflowError) as error:
        told = f"{error}. Return None, bool, int, float, str or bytes, or a list or dict of these."
        raise CaptureError(f"The value captured as {name!r} cannot be recorded: {told}") from error
    return packed

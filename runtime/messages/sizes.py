"""Limits of messages, and the notes that replace content over a limit."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from itertools import chain
from typing import Any, ClassVar, NamedTuple

import msgpack

from handlers.codec import MAX_DEPTH, is_deeper, unpack
from handlers.context import OutputRoom
from runtime.errors import UsageError
from runtime.messages.envelope import Envelope, Envelopes, without_trace
from runtime.messages.outcome import MAX_ERROR_LENGTH, Outcome, Reason, dead_letter
from runtime.options import option

KIB = 2**10
MIB = 2**20
GIB = 2**30


def _limit(name: str, default: int, text: str) -> Any:  # noqa: ANN401 - a field, as `option` returns
    return option(text, default=default, name=f"--max-{name}", metavar="N")


def _size(name: str, default: int, text: str) -> Any:  # noqa: ANN401 - as above
    return option(text, default=default, name=f"--max-{name}", parse="size")


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """Limits of messages, and of the error text of a dead letter. The size of headers includes names and values."""

    GROUP: ClassVar = "log"

    # Also applies to invalid rows of a table, as JSON.
    line: int = _size(
        "line",
        MIB,
        "Reject longer lines of a log as too_large. Only size, digest and first kilobyte are kept.",
    )
    body: int = _size("body", MIB, "Reject messages with larger bodies as too_large.")
    headers: int = _size(
        "headers", 64 * KIB, "Reject messages whose headers, id or type have more bytes as too_large."
    )
    outputs: int = _limit("published", 1000, "Reject a message for which a handler publishes more messages.")
    output_bytes: int = _size(
        "published-bytes",
        4 * MIB,
        "Reject a message for which a handler publishes more bytes of bodies and headers.",
    )
    error: int = _limit("error", MAX_ERROR_LENGTH, "Shorten the error of a dead letter to N characters.")
    depth: int = _limit("depth", MAX_DEPTH, "Reject JSON that is nested deeper as too_large; at most 200.")

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise UsageError(f"The message limit {field.name} must be at least 1.")
        if self.depth > MAX_DEPTH:
            raise UsageError(
                f"The message limit depth must be at most {MAX_DEPTH}, the limit of the parsers."
            )

    @property
    def room(self) -> OutputRoom:
        """The number and bytes of outputs that one message may publish."""
        return OutputRoom(self.outputs, self.output_bytes)

    def described(self) -> str:
        """Return the limits that differ from their defaults, in the form recorded in the ledger."""
        changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return "".join(f", max_{name}={getattr(self, name)}" for name in changed)


USUAL = MessageLimits()


# A note in JSON replaces a body over the limit. `runtime.spark.logs.normalise` replaces lines and rows of a log before
# they reach a worker.

KEPT = 1024  # bytes kept of content over a limit

NOTE = "too_large"
NOT_KEPT = (
    "The body was over the limit and was not stored: redrive the message with an edit that supplies one."
)

Bytes = bytes  # `Excess` has a field named `bytes`
_BEGINS = f'{{"{NOTE}":{{'
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_BYTES_OF_A_CHARACTER = 4
# The msgpack bytes that start neither an array nor a map.
_NO_CONTAINERS = bytes(range(256)).translate(None, bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)]))

_NAMES = ("message_id", "type", "business_id")


class Excess(NamedTuple):
    """The size, digest and first kilobyte of content over a limit."""

    part: str  # of the message, such as "body"
    bytes: int
    sha256: str
    begins: str  # the first kilobyte of the content; in hexadecimal if the content is bytes

    @classmethod
    def of(cls, part: str, content: str | Bytes) -> Excess:
        """Describe the `content` of a message's `part` that is over a limit."""
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        first = data[:KEPT]
        begins = first.hex() if isinstance(content, bytes) else first.decode("utf-8", "replace")
        return cls(part, len(data), sha256(data).hexdigest(), begins)

    @property
    def note(self) -> str:
        """The JSON text stored instead of the body."""
        return json.dumps({NOTE: self._asdict()}, ensure_ascii=False, separators=(",", ":"))


def is_note(body: str | bytes | None) -> bool:
    """Return whether a body is a note that replaced a body over a limit."""
    if not isinstance(body, str) or not body.startswith(_BEGINS):
        return False
    try:
        note = json.loads(body)[NOTE]
    except ValueError:
        return False
    return isinstance(note, dict) and tuple(note) == Excess._fields


def kept_as_json(envelope: Envelope, handler: str | None) -> str:
    """Return a line of JSON for a delivery whose body is a note. The note's only field `too_large` replaces `body`."""
    fields = json.loads(envelope.to_json(handler))
    del fields["body"]
    return json.dumps(fields | json.loads(envelope.body), ensure_ascii=False)


class TooLarge(NamedTuple):
    """A delivery over a limit: the error of its dead letter, and the envelope with a note as its body."""

    problem: str
    kept: Envelope

    def of(self, handler: str | None, business_id: str | None = None) -> Outcome:
        """Return the dead letter of the delivery to `handler`. A business id of 1 KiB or more is omitted."""
        return dead_letter(self.kept, Reason.TOO_LARGE, self.problem, handler, _short(business_id))


def find_excesses(envelopes: Envelopes, limits: MessageLimits) -> Mapping[int, TooLarge]:
    """Return the deliveries over a limit, by position. Checks whole columns first, so that the usual case is fast."""
    too_large = {}
    for position in _to_measure(envelopes, limits):
        envelope = envelopes[position]
        excess = _excess(envelope, limits)
        if excess is not None:
            most = limits.body if excess.part == "body" else limits.headers
            problem = sentence(excess.part, f"{excess.bytes:,}", f"{most:,}")
        elif is_too_deep(envelope.body, limits.depth):
            excess = Excess.of("body", envelope.body)
            problem = f"Its body is nested more than {limits.depth} levels deep."
        else:
            continue
        names: dict[str, Any] = {name: _short(getattr(envelope, name)) for name in _NAMES}
        too_large[position] = TooLarge(problem, envelope._replace(body=excess.note, headers=None, **names))
    return too_large


def _to_measure(envelopes: Envelopes, limits: MessageLimits) -> list[int]:
    bodies = envelopes.bodies
    may_be: set[int] = set()
    for texts, most in (
        (bodies, limits.body),
        (envelopes.message_ids, limits.headers),
        (envelopes.types, limits.headers),
        (envelopes.business_ids, limits.headers),
    ):
        characters = most // _BYTES_OF_A_CHARACTER
        if max(map(len, filter(None, texts)), default=0) > characters:
            may_be.update(at for at, text in enumerate(texts) if text and len(text) > characters)
    if max(map(len, bodies), default=0) > limits.depth:
        may_be.update(position for position, body in enumerate(bodies) if _brackets(body) > limits.depth)
    if any(envelopes.headers):
        may_be.update(position for position, headers in enumerate(envelopes.headers) if headers)
    return sorted(may_be)


def _brackets(body: str | bytes) -> int:
    if isinstance(body, str):
        return body.count("[") + body.count("{")
    return len(body.translate(None, _NO_CONTAINERS))


def is_too_deep(body: str | bytes, depth: int) -> bool:
    """Return whether JSON text or msgpack is nested deeper than `depth`. Returns False for invalid msgpack."""
    if _brackets(body) <= depth:
        return False
    if isinstance(body, bytes):
        try:
            return is_deeper(unpack(body), depth)
        except msgpack.StackError:
            return True
        except (ValueError, TypeError, msgpack.UnpackException):
            return False  # an invalid body is rejected when it is parsed
    level = 0
    for token in _TOKENS.finditer(body):
        level += (token[0] in "[{") - (token[0] in "]}")
        if level > depth:
            return True
    return False


def size_of(text: str | bytes | None) -> int:
    if isinstance(text, str) and not text.isascii():
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text or "")


def size_of_headers(headers: Mapping[str, str] | None) -> int:
    """Return the size of headers in bytes. Counts the `repr` of values that are not text."""
    parts: Iterator[Any] = chain.from_iterable((headers or {}).items())
    return sum(size_of(each if isinstance(each, str | bytes) else repr(each)) for each in parts)


def _excess(envelope: Envelope, limits: MessageLimits) -> Excess | None:
    if size_of(envelope.body) > limits.body:
        return Excess.of("body", envelope.body)
    headers = envelope.headers or {}
    # Copies differ in their trace, so a trace of up to 1 KiB does not count.
    own = size_of_headers(without_trace(headers))
    if own + max(size_of_headers(headers) - own - KIB, 0) > limits.headers:
        return Excess.of("headers", "".join(f"{name}{value}" for name, value in headers.items()))
    for name in _NAMES:
        text = getattr(envelope, name)
        if size_of(text) > limits.headers:
            return Excess.of(name, text)
    return None


def sentence(part: str, size: str, most: str) -> str:
    """Return the error for a part whose `size` exceeds the limit `most`. Both are formatted numbers of bytes."""
    return f"Its {part} has {size} bytes; the limit is {most}."


def _short(text: str | None) -> str | None:
    return text if text is None or size_of(text) < KEPT else None

"""How large a message may be: its size is part of its envelope."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from hashlib import sha256
from typing import Any, ClassVar, NamedTuple

import msgpack

from handlers.codec import MAX_DEPTH, is_deeper, unpack
from handlers.context import OutputRoom
from runtime.errors import UsageError
from runtime.messages.envelope import Envelope, Envelopes
from runtime.messages.outcome import MAX_ERROR_LENGTH, Outcome, Reason, dead_letter
from runtime.options import option

KIB = 2**10
MIB = 2**20
GIB = 2**30


def _limit(name: str, default: int, text: str, **details: Any) -> Any:  # noqa: ANN401 - a field, as `option` returns
    return option(text, default=default, name=f"--max-{name}", **(details or {"metavar": "N"}))


_SIZE = {"parse": "size"}


@dataclass(frozen=True, slots=True)
class MessageLimits:
    """The limits of messages, and of the error of a dead letter. Headers count by the bytes of names and values."""

    GROUP: ClassVar = "log"

    line: int = _limit(
        "line",
        MIB,
        "Refuse longer lines of a log as too_large; a note with size, digest and the first kilobyte is kept.",
        **_SIZE,
    )
    """Also for rows of a table that are no messages, as JSON."""
    body: int = _limit("body", MIB, "Refuse messages with larger bodies as too_large.", **_SIZE)
    headers: int = _limit(
        "headers",
        64 * KIB,
        "Refuse messages with more bytes of headers, or in an id or a type, as too_large.",
        **_SIZE,
    )
    outputs: int = _limit("published", 1000, "Refuse a message for which a handler publishes more messages.")
    output_bytes: int = _limit(
        "published-bytes",
        4 * MIB,
        "Refuse a message for which a handler publishes more bytes of bodies and headers.",
        **_SIZE,
    )
    error: int = _limit("error", MAX_ERROR_LENGTH, "Cut the error of a dead letter to so many characters.")
    depth: int = _limit("depth", MAX_DEPTH, "Refuse JSON that is nested deeper as too_large; 200 at most.")

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) < 1:
                raise UsageError(f"The limit {field.name} of messages is 1 at least.")
        if self.depth > MAX_DEPTH:
            raise UsageError(
                f"The depth of messages is limited to {MAX_DEPTH}: what reads JSON goes no deeper."
            )

    @property
    def room(self) -> OutputRoom:
        """What one message may publish."""
        return OutputRoom(self.outputs, self.output_bytes)

    def described(self) -> str:
        """Return the limits that are not the usual ones, as the ledger has them."""
        changed = [field.name for field in fields(self) if getattr(self, field.name) != field.default]
        return "".join(f", max_{name}={getattr(self, name)}" for name in changed)


USUAL = MessageLimits()


# The body of a message that is too large is replaced by a note, as JSON text. `runtime.spark.logs.normalise` does so
# for lines and rows of a log, so that none that is too large reaches a worker.

KEPT = 1024  # how many bytes are kept of what is too large

NOTE = "too_large"
NOT_KEPT = (
    "What was delivered was not kept, as it is too large: it can be redriven with a body in an edit only."
)

Bytes = bytes  # for the class that has a field `bytes`
_BEGINS = f'{{"{NOTE}":{{'
_TOKENS = re.compile(r'"(?:[^"\\]|\\.)*+"?|[\[{]|[\]}]', re.DOTALL)
_BYTES_OF_A_CHARACTER = 4
_NO_CONTAINERS = bytes(range(256)).translate(None, bytes([*range(0x80, 0xA0), *range(0xDC, 0xE0)]))
"""The bytes of msgpack that begin no array and no map."""

_NAMES = ("message_id", "type", "business_id")


class Excess(NamedTuple):
    """The note on a part of a message that is too large: `begins` is its first kilobyte."""

    part: str
    bytes: int
    sha256: str
    begins: str

    @classmethod
    def of(cls, part: str, content: str | Bytes) -> Excess:
        """Measure a part of a message."""
        data = content if isinstance(content, bytes) else content.encode("utf-8", "surrogatepass")
        first = data[:KEPT]
        begins = first.hex() if isinstance(content, bytes) else first.decode("utf-8", "replace")
        return cls(part, len(data), sha256(data).hexdigest(), begins)

    @property
    def note(self) -> str:
        """The JSON text that is kept."""
        return json.dumps({NOTE: self._asdict()}, ensure_ascii=False, separators=(",", ":"))


def is_note(body: str | bytes | None) -> bool:
    """Return whether a body is the note on one that was not kept."""
    if not isinstance(body, str) or not body.startswith(_BEGINS):
        return False
    try:
        note = json.loads(body)[NOTE]
    except ValueError:
        return False
    return isinstance(note, dict) and tuple(note) == Excess._fields


def kept_as_json(envelope: Envelope, handler: str | None) -> str:
    """Return a delivery that is too large as one line of JSON, with the note as its body."""
    fields = json.loads(envelope.to_json(handler))
    del fields["body"]
    return json.dumps(fields | json.loads(envelope.body), ensure_ascii=False)


class TooLarge(NamedTuple):
    """The problem of a delivery that is too large, and the envelope with its note."""

    problem: str
    kept: Envelope

    def of(self, handler: str | None, business_id: str | None = None) -> Outcome:
        """Return the dead letter that it is: of a stream, if that has a name of usual length."""
        return dead_letter(self.kept, Reason.TOO_LARGE, self.problem, handler, _short(business_id))


def find_excesses(envelopes: Envelopes, limits: MessageLimits) -> Mapping[int, TooLarge]:
    """Return the deliveries that are too large by position. Whole columns are checked first, which most groups pass."""
    found = {}
    for position in _to_measure(envelopes, limits):
        envelope = envelopes[position]
        excess, problem = _excess(envelope, limits), f"Its body is nested deeper than {limits.depth} levels."
        if excess is not None:
            most = limits.body if excess.part == "body" else limits.headers
            problem = sentence(excess.part, f"{excess.bytes:,}", f"{most:,}")
        elif is_too_deep(envelope.body, limits.depth):
            excess = Excess.of("body", envelope.body)
        else:
            continue
        names: dict[str, Any] = {name: _short(getattr(envelope, name)) for name in _NAMES}
        found[position] = TooLarge(problem, envelope._replace(body=excess.note, headers=None, **names))
    return found


def _to_measure(envelopes: Envelopes, limits: MessageLimits) -> list[int]:
    """Return the positions of deliveries that may be too large."""
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
    """Return how many arrays and objects a body can have at most."""
    if isinstance(body, str):
        return body.count("[") + body.count("{")
    return len(body.translate(None, _NO_CONTAINERS))


def is_too_deep(body: str | bytes, depth: int) -> bool:
    """Return whether JSON text, or msgpack, has arrays and objects in each other to a greater depth."""
    if _brackets(body) <= depth:
        return False
    if isinstance(body, bytes):
        try:
            return is_deeper(unpack(body), depth)
        except msgpack.StackError:
            return True
        except (ValueError, TypeError, msgpack.UnpackException):
            return False  # whoever parses it tells what is wrong
    level = 0
    for found in _TOKENS.finditer(body):
        level += (found[0] in "[{") - (found[0] in "]}")
        if level > depth:
            return True
    return False


def size_of(text: str | bytes | None) -> int:
    """Return the bytes of a text as it is sent."""
    if isinstance(text, str) and not text.isascii():
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text or "")


def size_of_headers(headers: Mapping[str, str] | None) -> int:
    """Return the bytes of headers, whose values may be anything."""
    parts: Iterator[Any] = (each for header in (headers or {}).items() for each in header)
    return sum(size_of(each if isinstance(each, str | bytes) else repr(each)) for each in parts)


def _excess(envelope: Envelope, limits: MessageLimits) -> Excess | None:
    if size_of(envelope.body) > limits.body:
        return Excess.of("body", envelope.body)
    headers = envelope.headers or {}
    if size_of_headers(headers) > limits.headers:
        return Excess.of("headers", "".join(f"{name}{value}" for name, value in headers.items()))
    for name in _NAMES:
        text = getattr(envelope, name)
        if size_of(text) > limits.headers:
            return Excess.of(name, text)
    return None


def sentence(part: str, size: str, most: str) -> str:
    """Return why a message is too large."""
    return f"Its {part} has {size} bytes, and may have {most}."


def _short(text: str | None) -> str | None:
    return text if text is None or size_of(text) < KEPT else None

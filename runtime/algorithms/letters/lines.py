"""Letters as JSON lines: what is exported, mended by hand, and given to a redrive."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from runtime.algorithms.letters.selection import FoundLetter, Selection
from runtime.clock import shown_time, to_microseconds
from runtime.errors import UsageError
from runtime.messages.envelope import Envelope
from runtime.messages.message_ids import canonical

Line = Mapping[str, Any]


def describe_letter(found: FoundLetter) -> dict[str, Any]:
    """Return a letter with the columns of a log, and what an operator needs to know of it.

    A body of msgpack bytes is in hexadecimal digits, and `packed` says so.
    """
    letter = found.letter
    envelope = letter.envelope or Envelope(letter.message_id, "", "")
    return {
        **_delivery(envelope),
        "handler": found.handler,
        "stream": found.business_id,
        "letter": found.name,
        "packed": isinstance(envelope.body, bytes),
        "reason": letter.reason.value,
        "error": letter.error,
        "version": letter.version,
        "batch": letter.batch,
        "refused_at": shown_time(letter.refused_at),
        "tries": letter.tries,
        "parks": letter.parks,
        "behind": None if found.behind is None else f"{found.behind.number} ({found.behind.message_id})",
    }


def to_line(found: FoundLetter) -> str:
    """Return a letter as a line of JSON. Halves of characters are escaped, as no file could hold them."""
    described = describe_letter(found)
    line = json.dumps(described, ensure_ascii=False)
    try:
        line.encode()
    except UnicodeEncodeError:
        return json.dumps(described)
    return line


class Edits:
    """Messages that were mended: lines of an export, each of them for one letter.

    A line names its letter by `handler`, `stream` and `letter`. Raises `UsageError` for a line that is no JSON object
    or names no letter, and for two lines for one letter.
    """

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines: dict[tuple[str, ...], Line] = {}
        self._used: set[tuple[str, ...]] = set()
        for number, line in enumerate(lines, 1):
            if line.strip():
                self._add(number, line)

    @classmethod
    def of(cls, content: bytes) -> Edits:
        """Return what a file holds. Lines end with a line feed only; a byte order mark may stand before the first."""
        try:
            return cls(content.decode("utf-8-sig").split("\n"))
        except UnicodeDecodeError as error:
            raise UsageError(f"The edited letters are not UTF-8: {error}.") from error

    def __len__(self) -> int:
        return len(self._lines)

    def has(self, found: FoundLetter) -> bool:
        """Return whether there is a line for a letter."""
        return _key_of(found) in self._lines

    def mended(self, found: FoundLetter) -> Envelope | None:
        """Return the delivery of a letter with what its line changes, None when it changes nothing."""
        key, envelope = _key_of(found), found.letter.envelope
        if key not in self._lines or envelope is None:
            return None
        self._used.add(key)
        mended = _mended(envelope, describe_letter(found), self._lines[key])
        return None if mended == envelope else mended

    def check_used(self) -> None:
        """Raise `UsageError` when there are lines whose letter was not found."""
        unused = [line for key, line in self._lines.items() if key not in self._used]
        if unused:
            raise UsageError(
                f"{len(unused)} of {len(self)} edited lines belong to no letter that is selected, the first to the "
                f"message {unused[0].get('message_id')!r} of {unused[0].get('handler')}."
            )

    def _add(self, number: int, line: str) -> None:
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise UsageError(f"Line {number} of the edited letters is no JSON: {error}") from error
        key = _key(fields) if isinstance(fields, dict) else None
        if key is None:
            raise UsageError(f"Line {number} of the edited letters names no letter.")
        if key in self._lines:
            raise UsageError(f"Line {number} of the edited letters is the second one for its letter.")
        self._lines[key] = fields


class Wanted(NamedTuple):
    """Which dead letters are redriven, and messages that were mended for some of them.

    With `only_edited`, only those of the selection for which there is an edit.
    """

    selection: Selection
    edits: Edits
    only_edited: bool = False

    def takes(self, found: FoundLetter) -> bool:
        """Return whether a letter that is selected is redriven."""
        return not self.only_edited or self.edits.has(found)


def _key(line: Line) -> tuple[str, ...] | None:
    if not line.get("letter"):
        return None
    return line.get("handler") or "", line.get("stream") or "", str(line["letter"])


def _key_of(found: FoundLetter) -> tuple[str, ...]:
    return found.handler or "", found.business_id or "", found.name


def _delivery(envelope: Envelope) -> dict[str, Any]:
    body, enqueued_at = envelope.body, envelope.enqueued_at
    return {
        "message_id": envelope.message_id,
        "type": envelope.type,
        "body": body.hex() if isinstance(body, bytes) else body,
        "business_id": envelope.business_id,
        "sequence": envelope.sequence,
        "enqueued_at": None if enqueued_at is None else shown_time(enqueued_at),
        "headers": None if envelope.headers is None else dict(envelope.headers),
    }


def _mended(envelope: Envelope, shown: Line, line: Line) -> Envelope:
    """Return a delivery with those fields of a line that are not as they were shown."""
    changed = {name: line[name] for name in Envelope._fields if name in line and line[name] != shown[name]}
    try:
        return envelope._replace(
            **{name: _read(name, value, packed=bool(line.get("packed"))) for name, value in changed.items()}
        )
    except (TypeError, ValueError) as error:
        raise UsageError(f"The edited letter of {shown['message_id']!r} cannot be read: {error}") from error


def _read(name: str, value: Any, *, packed: bool) -> Any:  # noqa: ANN401 - a value of JSON
    if name == "body":
        if not isinstance(value, str):
            return json.dumps(value, ensure_ascii=False)
        return bytes.fromhex(value) if packed else value
    if value is None:
        return None
    match name:
        case "message_id":
            return canonical(_checked(name, value, str))
        case "enqueued_at":
            moment = datetime.fromisoformat(_checked(name, value, str))
            if moment.tzinfo is None:
                raise ValueError(f"enqueued_at names no time zone: {value}")
            return to_microseconds(moment)
        case "sequence":
            return _checked(name, value, int)
        case "headers":
            return _checked(name, value, dict)
        case _:
            return _checked(name, value, str)


def _checked(name: str, value: Any, expected: type) -> Any:  # noqa: ANN401 - a value of JSON
    if not isinstance(value, expected):
        raise TypeError(f"{name} is {value!r}")
    return value

"""The corpus of hostile input: files with what each line or message must end as, and the forms in which it is given.

`lines.jsonl` holds lines of a log as they are, as text or in hexadecimal digits, each with the ends of its deliveries:
the message id, null where none can be read, and the status, for dead letters the reason. `messages.jsonl` holds
messages with the columns of a log and one end each; `packed` is the end where the body is msgpack, if that is another
one, and null where there is no such message. Text that is long is a list of pieces, of which some are repeated.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgpack

from runtime.messages.envelope import Envelope, canonical
from runtime.messages.parsing import business_id_of
from runtime.messages.sizes import USUAL
from tests.faults.hostile.app import app

FOLDER = Path(__file__).parent
End = tuple[str | None, str]


@dataclass(frozen=True, slots=True)
class HostileLine:
    why: str
    content: bytes
    ends: Sequence[End]


@dataclass(frozen=True, slots=True)
class HostileMessage:
    why: str
    columns: dict[str, Any]
    end: str

    @property
    def ends(self) -> Sequence[End]:
        return [(canonical(self.columns["message_id"]), self.end)]

    def envelope(self) -> Envelope:
        columns = self.columns
        return Envelope.of(
            columns["message_id"],
            columns["type"],
            columns["body"],
            business_id=columns.get("business_id"),
            headers=columns.get("headers"),
        )

    def line(self) -> HostileLine:
        """Return it as a line of a log, its body as text. Of a line that is too large not even the id is read."""
        content = json.dumps(self.columns).encode()
        return HostileLine(self.why, content, self.ends if len(content) <= USUAL.line else [(None, self.end)])


def lines() -> list[HostileLine]:
    return [
        HostileLine(
            each["why"],
            bytes.fromhex(each["hex"]) if "hex" in each else _whole(each["line"]).encode(),
            [(message_id, end) for message_id, end in each["ends"]],
        )
        for each in _read("lines.jsonl")
    ]


def messages() -> list[HostileMessage]:
    return [
        HostileMessage(each["why"], _all_whole(each["message"]), each["end"])
        for each in _read("messages.jsonl")
    ]


def packed_messages() -> list[HostileMessage]:
    """Return those of which there is a form with a body of msgpack, in that form, with the business id beside it."""
    found = []
    for message, each in zip(messages(), _read("messages.jsonl"), strict=True):
        end = each.get("packed", message.end)
        if end is not None:
            body = msgpack.packb(json.loads(message.columns["body"]))
            columns = {**message.columns, "body": body, "business_id": _business_id(message)}
            found.append(replace(message, columns=columns, end=end))
    return found


def _business_id(message: HostileMessage) -> str | None:
    for route in app.routes(message.columns["type"]):
        return business_id_of(route, message.envelope())
    return None


def _all_whole(columns: dict[str, Any]) -> dict[str, Any]:
    return {
        name: _all_whole(value) if isinstance(value, dict) else _whole(value)
        for name, value in columns.items()
    }


def _whole(text: Any) -> Any:
    """Return a text whose pieces are written apart; anything else as it is."""
    if not isinstance(text, list):
        return text
    return "".join(piece if isinstance(piece, str) else piece["repeat"] * piece["times"] for piece in text)


def _read(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FOLDER / name).read_text().splitlines()]

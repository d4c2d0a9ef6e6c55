"""A handler whose state is as large as its messages say: a page of text, of which each message changes a little."""

from __future__ import annotations

import json
from base64 import b64encode
from hashlib import blake2b, shake_128
from uuid import UUID

from benchmarks.shooting import Delivery
from handlers import App, Context, Handler, Message, State, handles


class Write(Message):
    """Some characters of a page are written anew; a page of another length than `size` is filled first."""

    page: str
    size: int
    at: int


class Page(State):
    """Text that does not compress, as far as text can."""

    text: str = ""


class Pages(Handler[Page]):
    """A page of a notebook."""

    @handles(by="page")
    def write(self, state: Page, message: Write, context: Context) -> Page:
        """Replace a few characters."""
        text = state.text if len(state.text) == message.size else _noise(message.page, message.size)
        written = _noise(context.message_id, min(20, message.size))
        at = message.at % (message.size - len(written) + 1)
        return state.model_copy(update={"text": text[:at] + written + text[at + len(written) :]})


app = App(Pages)
AROUND_TEXT = len('{"text":""}')
"""How many bytes of a state are not its text."""


def write(page: str, number: int, state_bytes: int) -> Delivery:
    """Return the message of that number for a page, after which its state takes so many bytes."""
    drawn = blake2b(f"{page} {number}".encode(), digest_size=16).digest()
    body = {"page": page, "size": state_bytes - AROUND_TEXT, "at": int.from_bytes(drawn[:4])}
    return Delivery(str(UUID(bytes=drawn, version=4)), "Write", json.dumps(body))


def _noise(seed: str, size: int) -> str:
    return b64encode(shake_128(seed.encode()).digest(size)).decode()[:size]

"""The handlers under check. They tell all that they were given, and no two messages may change places unnoticed."""

from __future__ import annotations

import json
from typing import Any

from handlers import App, Context, Handler, Message, State, handles
from runtime.messages.envelope import Envelope
from tests.model.processes import NOW, sky

BOOK = "b"


class Write(Message):
    """A line is to be written into a book."""

    book: str
    line: str


class Reply(Message):
    """A line is to be written below another one."""

    book: str
    line: str
    to: str


class Count(Message):
    """Somebody asks how many lines there are: nothing changes."""

    book: str


class Wrote(Message):
    """A line was written: all that the handler was told."""

    lines: tuple[str, ...]
    guid: str
    chance: float
    now: str
    sky: str


class Turned(Message):
    """A second message for each line, so that a crash may come between two."""

    page: int


class Replied(Message):
    """A line was written below another one."""

    lines: tuple[str, ...]


class Counted(Message):
    """The answer to a `Count`."""

    lines: tuple[str, ...]


class Copied(Message):
    """A line was copied."""

    lines: tuple[str, ...]


class NoSuchLineError(Exception):
    """Raised for a reply to a line that is not there."""


class Lines(State):
    """The lines in the order in which they were written."""

    lines: tuple[str, ...] = ()


class Scribe(Handler[Lines]):
    """Writes lines into a book. Their order matters."""

    @handles(by="book")
    def write(self, state: Lines, message: Write, context: Context) -> Lines:
        lines = (*state.lines, message.line)
        context.publish(
            Wrote(
                lines=lines,
                guid=str(context.new_guid()),
                chance=context.random.random(),
                now=context.now.isoformat(),
                sky=context.capture("sky", sky),
            )
        )
        context.publish(Turned(page=len(lines)))
        return state.model_copy(update={"lines": lines})

    @handles(by="book")
    def reply(self, state: Lines, message: Reply, context: Context) -> Lines:
        if message.to not in state.lines:
            raise NoSuchLineError(message.to)
        lines = (*state.lines, message.line)
        context.publish(Replied(lines=lines))
        return state.model_copy(update={"lines": lines})

    @handles(by="book")
    def count(self, state: Lines, message: Count, context: Context) -> Lines:
        context.publish(Counted(lines=state.lines))
        return state


class Copyist(Handler[Lines]):
    """Writes the same lines into a book of its own."""

    @handles(by="book")
    def write(self, state: Lines, message: Write, context: Context) -> Lines:
        lines = (*state.lines, message.line)
        context.publish(Copied(lines=lines))
        return state.model_copy(update={"lines": lines})


app = App(Scribe)
two_handlers = App(Scribe, Copyist)

OUTPUTS = {
    ("Scribe", "Write"): ("Wrote", "Turned"),
    ("Scribe", "Reply"): ("Replied",),
    ("Scribe", "Count"): ("Counted",),
    ("Copyist", "Write"): ("Copied",),
}
"""What each handler publishes for each type of message."""


def write(line: str, enqueued_at: int = NOW) -> Envelope:
    """Return a message that writes a line, with the line for its id."""
    return _message(line, "Write", enqueued_at, line=line)


def reply(line: str, to: str, enqueued_at: int = NOW) -> Envelope:
    """Return a message that writes a line below another one, and is refused before that one is there."""
    return _message(line, "Reply", enqueued_at, line=line, to=to)


def count(message_id: str, enqueued_at: int = NOW) -> Envelope:
    """Return a message that changes nothing."""
    return _message(message_id, "Count", enqueued_at)


def _message(message_id: str, kind: str, enqueued_at: int, **fields: Any) -> Envelope:
    return Envelope(message_id, kind, json.dumps({"book": BOOK, **fields}), enqueued_at=enqueued_at)

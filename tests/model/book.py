"""The book under check: its handlers, and what a table holds of it, read by the shipped readers.

The handlers tell all that they were given, and no two messages may change places unnoticed.
"""

import json
from collections.abc import Hashable, Iterable, Mapping
from typing import Any, NamedTuple

from eventstore import drive
from handlers import App, Context, Handler, Message, State, handles
from runtime.messages.envelope import Envelope, fingerprint
from runtime.messages.outcome import OUTPUT_INDEX_BITS, Outcome, Output, Reason
from runtime.versions.dead_letter_rows import PREFIX, LetterState, read_letters
from runtime.versions.stream import versions
from tests.model.contents import Snapshot
from tests.model.processes import NOW, sky

BOOK = "b"


class Write(Message):
    book: str
    line: str


class Reply(Message):
    book: str
    line: str
    to: str


class Count(Message):
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
    lines: tuple[str, ...]


class Counted(Message):
    lines: tuple[str, ...]


class Copied(Message):
    lines: tuple[str, ...]


class NoSuchLineError(Exception):
    """Raised for a reply to a line that is not there."""


class Lines(State):
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
    return _message(message_id, "Count", enqueued_at)


def _message(message_id: str, kind: str, enqueued_at: int, **fields: Any) -> Envelope:
    return Envelope(message_id, kind, json.dumps({"book": BOOK, **fields}), enqueued_at=enqueued_at)


_BY_STATE = (Reason.HANDLER_ERROR, Reason.HELD_BACK)

NOT_TOLD = b""
"""The content of a version that does not tell it."""

HANDLERS = ("Scribe", "Copyist")


class Place(NamedTuple):
    handler: str
    number: int


class Version(NamedTuple):
    """What a version says: the message and the batch that made it, its recorded time, the lines before and after."""

    message: str
    type: str
    now: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    batch: str | None = None
    content: bytes = NOT_TOLD

    def __str__(self) -> str:
        return f"by {self.message}: {' '.join(self.after) or 'nothing'}"


class Delivered(NamedTuple):
    """A delivery: the message, and what tells its body from others under its id."""

    message: str
    content: bytes


class Handled(NamedTuple):
    """What a run returns: the messages whose versions it answers for, in a batch the statuses, and what it refused."""

    messages: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    refused: tuple[Delivered, ...] = ()
    too_late: tuple[str, ...] = ()


def committed_versions(snapshot: Snapshot) -> Mapping[Hashable, Version]:
    table = snapshot.table("states")
    return {
        Place(handler, stored.number): Version(
            stored.message_id,
            stored.record.type,
            stored.record.now,
            _lines(stored.before),
            _lines(stored.after),
            stored.batch,
            stored.record.fingerprint,
        )
        for handler in HANDLERS
        for stored in drive(versions(table, handler, BOOK)) or ()
    }  # fmt: skip


def refused_of(outcomes: Iterable[Outcome]) -> tuple[Delivered, ...]:
    """Return which deliveries were refused by the state, or held back behind such a one."""
    envelopes = [outcome.envelope for outcome in outcomes if outcome.reason in _BY_STATE]
    return tuple(
        Delivered(each.message_id, fingerprint(each.type, each.body, packed=False)) for each in envelopes
    )


def place_of(output: Output) -> tuple[int, int]:
    """Return the number of the version that an output speaks of, and its position among its outputs."""
    return output.sequence >> OUTPUT_INDEX_BITS, output.sequence & ((1 << OUTPUT_INDEX_BITS) - 1)


def _lines(encoded: bytes) -> tuple[str, ...]:
    return tuple(json.loads(encoded)["lines"])


class LetterPlace(NamedTuple):
    number: int


class Refused(NamedTuple):
    """What a letter says: the message that was refused, its body, why, by which batch, and how often it was tried."""

    message: str
    content: bytes
    state: LetterState
    reason: Reason
    batch: str | None
    tries: int
    parks: bool

    def __str__(self) -> str:
        return f"{self.message} refused: {self.reason}"


def committed_letters(snapshot: Snapshot) -> Mapping[Hashable, Refused]:
    rows = snapshot.tables.get("states", {}).get(f"Scribe-{BOOK}", {})
    letters = read_letters([rows[key] for key in sorted(rows) if key.startswith(PREFIX)])
    return {
        LetterPlace(letter.number): Refused(
            letter.message_id, letter.content, letter.state, letter.reason, letter.batch, letter.tries, letter.parks
        )
        for letter in letters.all
    }  # fmt: skip

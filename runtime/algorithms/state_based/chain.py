"""Chains: a handler invoked on the messages of a stream one after another, each on the state that the one before left.

A batch spends most of its time in this loop.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from handlers import Context, Message, Published, State
from handlers.app import HandlerDefinition
from handlers.context import OutputRoom
from handlers.documents import NewDocument
from handlers.route import Method
from runtime.algorithms.invocation import settle
from runtime.clock import Clock, system_clock
from runtime.messages.outcome import Outcome
from runtime.storage import limits
from runtime.storage.columns import size_beside_state
from runtime.storage.new_versions import MadeColumns


class Rows(NamedTuple):
    """The columns of deliveries that a chain needs, and which rows of them it is to handle."""

    message_ids: Sequence[str]
    types: Sequence[str]
    headers: Sequence[Mapping[str, str] | None]
    messages: Sequence[Message | Outcome]
    first: int
    end: int


class Way(NamedTuple):
    """How messages of a type are handled: by which method, its revision, and what a version takes beside its state."""

    method: Method
    revision: int
    size: int


class Known(NamedTuple):
    """A message that made a version before, and what a replay of it needs.

    `now`, `headers` and `captured` are those that were recorded, `before` is the encoded state that it was handled on.
    """

    message_id: str
    method: Method
    message: Message
    now: int
    headers: Mapping[str, str] | None
    captured: Mapping[str, bytes] | None
    before: bytes


class Progress:
    """How far a chain is: the newest `state`, its encoded bytes `before`, when it was made, its version's `number`.

    `made` and `afters` are the versions made since, and the encoded states after them; they take `size` bytes raw.
    `documents` are those of the last message, and `excess` is the size of a version that is too large to be stored.
    `is_calling` says that a handler is running, or that what it did is being looked at: an error is the user's then.
    """

    __slots__ = ("afters", "before", "documents", "excess", "is_calling", "last_now", "made", "number",
                 "size", "state")  # fmt: skip

    def __init__(self, state: State, before: bytes, last_now: int, number: int) -> None:
        self.state = state
        self.before = before
        self.last_now = last_now
        self.number = number
        self.made = MadeColumns()
        self.afters: list[bytes] = []
        self.size = 0
        self.documents: Sequence[NewDocument] = ()
        self.excess = 0
        self.is_calling = False


class Replays:
    """What replays gave: the encoded states after them, what was published; the last `state`, and its bytes `before`.

    `error` says why the next one failed, None when none did; `is_calling` is that of `Progress`.
    """

    __slots__ = ("afters", "before", "error", "is_calling", "published", "state")

    def __init__(self) -> None:
        self.state: State | None = None
        self.before = b""
        self.afters: list[bytes] = []
        self.published: list[Sequence[Published]] = []
        self.error: Exception | None = None
        self.is_calling = False


class Chain:
    """Invokes a handler on the messages of one stream."""

    def __init__(
        self,
        handler: HandlerDefinition,
        business_id: str,
        clock: Clock = system_clock,
        room: OutputRoom | None = None,
    ) -> None:
        self._handler = handler
        self._business_id = business_id
        self._clock = clock
        self._room = room
        self._ways = _ways(handler)

    def handle(self, progress: Progress, rows: Rows, size: int, place: str | None = None) -> None:
        """Handle messages until there are no more, their versions take `size` bytes, or one has made documents.

        `place` begins the names of their documents, None when there is no store for them. Ends too before a version
        that is too large. Raises what a handler raises, and what is wrong with what it returns.
        """
        handler, clock, ways = self._handler, self._clock, self._ways
        made, afters = progress.made, progress.afters
        part = slice(rows.first, rows.end)
        columns = zip(range(rows.first, rows.end), *[column[part] for column in rows[:4]], strict=True)
        for position, message_id, type_, headers, message in columns:
            state, before = progress.state, progress.before
            method, revision, beside = ways[type_]
            now = max(clock(), progress.last_now)
            context = Context(
                handler.name,
                self._business_id,
                message_id,
                now,
                headers,
                place=place and f"{place}-{progress.number + len(made) + 1}",
                draw_key=handler.draw_key,
                room=self._room,
            )
            values = list(state.__dict__.values())
            progress.is_calling = True
            returned = method(state, message, context)
            returned, after = settle(handler, method, state, values, before, returned, context)
            published, captured, documents = context.published, context.captured, context.documents
            progress.is_calling = False
            if headers or captured:
                beside = size_beside_state(type_, headers, captured)
            if max(len(after), beside) > limits.MAX_STATE_BYTES:
                progress.excess = max(len(after), beside)
                return
            made.positions.append(position)
            made.nows.append(now)
            made.revisions.append(revision)
            made.captured.append(captured or None)
            made.published.append(published)
            afters.append(after)
            progress.size += beside if after == before else beside + len(after)
            progress.state, progress.before, progress.last_now = returned, after, now
            if documents or progress.size >= size:
                progress.documents = documents
                return

    def replay(self, replays: Replays, known: Sequence[Known]) -> None:
        """Handle messages as they were handled first, each on the state before its own version.

        Raises what a handler raises, what is wrong with what it returns, and `CodecError` for a state that cannot be
        read.
        """
        handler = self._handler
        for message_id, method, message, now, headers, captured, before in known:
            state = replays.state
            if state is None or replays.before != before:
                state = handler.codec.reread(before)
            context = Context(
                handler.name,
                self._business_id,
                message_id,
                now,
                headers,
                recorded=captured or {},
                draw_key=handler.draw_key,
            )
            values = list(state.__dict__.values())
            replays.is_calling = True
            returned = method(state, message, context)
            returned, after = settle(handler, method, state, values, before, returned, context)
            published = context.published
            replays.is_calling = False
            replays.state, replays.before = returned, after
            replays.afters.append(after)
            replays.published.append(published)


@lru_cache(maxsize=64)
def _ways(handler: HandlerDefinition) -> Mapping[str, Way]:
    return {
        type_: Way(route.revisions[route.newest], route.newest, size_beside_state(type_, None, None))
        for type_, route in handler.routes.items()
    }

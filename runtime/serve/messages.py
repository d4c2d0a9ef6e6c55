"""Deliveries of brokers, and the ports to sources and targets."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import datetime
from enum import IntEnum
from importlib import import_module
from typing import Any, Protocol, TypeVar, runtime_checkable
from urllib.parse import SplitResult, parse_qsl, urlsplit

import msgspec

from handlers.draws import Seed
from runtime.clock import is_in_calendar, to_datetime
from runtime.errors import MissingExtraError, RuntimeFailure, TargetError, TargetUnavailableError, UsageError
from runtime.messages.envelope import MAX_LENGTH, Envelope, with_trace
from runtime.messages.outcome import Outcome
from runtime.messages.records import AS_JSON, Decode, Decoding, read_record
from runtime.options import resolved, without_secrets
from runtime.publishing.publisher import CommittedOutput, TargetOptions
from runtime.publishing.targets.choice import open_target

T = TypeVar("T")


class SourceUnavailableError(RuntimeFailure):
    """Raised when a source does not answer. A retry may succeed."""


class Stage(IntEnum):
    """The progress of a delivery."""

    WAITING = 0  # in the inboxes of its streams
    STARTED = 1
    DONE = 2  # all its versions are stored; its outputs may be published
    DROPPED = 3  # its lane was lost: it is redelivered, to this consumer or another one


@dataclass(slots=True, eq=False)
class Received:
    """A message that a source delivered, from a lane (a partition of a topic) or from a queue."""

    envelope: Envelope
    size: int
    problem: str | None = None  # why the message is invalid
    lane: Lane | None = None
    offset: int = 0  # in the lane
    receipt: Any = None  # of a queue
    stage: Stage = Stage.WAITING
    unfinished: int = 0  # the number of handlers that have not finished the message
    outputs: list[CommittedOutput] = field(default_factory=list)
    letters: list[CommittedOutput] = field(default_factory=list)  # one for each handler that rejected it

    @property
    def is_lost(self) -> bool:
        """Whether the lane of the delivery now belongs to another consumer."""
        return self.lane is not None and self.lane.is_lost


@dataclass(slots=True, eq=False)
class Lane:
    """The deliveries of one partition of a topic, which must be acknowledged in order."""

    name: str
    base: int = 0  # deliveries before this offset are acknowledged
    waiting: dict[int, Received] = field(default_factory=dict)  # not acknowledged, by offset in order
    newest: int = -1  # the largest offset that was read
    is_lost: bool = False
    end: Callable[[], int | None] = lambda: None
    """Returns the offset after the partition's last message, if known."""

    def finished(self, most: int) -> list[Received]:
        """Return up to `most` deliveries that may be acknowledged, that is, those before the first unfinished one."""
        found: list[Received] = []
        for received in self.waiting.values():
            if received.stage is not Stage.DONE or len(found) == most:
                break
            found.append(received)
        return found


class Rebalances(Protocol):
    """The methods that a source calls, from any thread, when its consumer gains or loses lanes."""

    def assigned(self, lanes: Collection[Lane]) -> None:
        """Start to handle the deliveries of these lanes."""

    def revoked(self, lanes: Collection[Lane]) -> None:
        """Finish and acknowledge the started deliveries of these lanes within a time limit, and drop the rest."""

    def lost(self, lanes: Collection[Lane]) -> None:
        """Drop the deliveries of these lanes, which now belong to another consumer."""


class Source(Protocol):
    """A source of messages. Its calls do not block the event loop.

    They raise `SourceUnavailableError` if the source does not answer.
    """

    name: str  # the URL without secrets
    origin: str | None  # the owner of the offsets, once the source is open; None for a queue

    async def open(self, rebalances: Rebalances) -> None:
        """Connect. Raises `UsageError` if a topic or queue does not exist."""

    async def read(self, most: int, linger: float) -> Sequence[Received] | None:
        """Return up to `most` deliveries, or None if the source has ended.

        Waits up to a second for the first delivery, then `linger` seconds for more. If `most` is 0, pauses the source
        and keeps its connection alive.
        """

    async def acknowledge(self, received: Sequence[Received]) -> None:
        """Acknowledge deliveries whose outputs were published."""

    async def close(self) -> None:
        """Close the connection."""


@runtime_checkable
class Countable(Protocol):
    """A source that counts the messages of its queue."""

    async def waiting(self) -> int:
        """Return the number of messages in the queue. Raises `SourceUnavailableError` if the source does not answer."""


async def taken(buffer: asyncio.Queue[T], most: int, linger: float) -> list[T]:
    """Take up to `most` messages from a buffer. Waits up to a second for the first, then `linger` seconds for more."""
    if most == 0:
        await asyncio.sleep(0.02)
        return []
    try:
        found = [await asyncio.wait_for(buffer.get(), 1.0)]
    except TimeoutError:
        return []
    if buffer.empty():
        await asyncio.sleep(linger)
    while len(found) < most and not buffer.empty():
        found.append(buffer.get_nowait())
    return found


async def nothing(*_: object) -> None:
    """Do nothing: the default for the functions of a `Settlement`."""


@dataclass
class Settlement:
    """Publishes outputs, then acknowledges the messages that caused them.

    `send` returns when the target has confirmed all outputs. `send` and `settle` may be repeated. They raise
    `TargetUnavailableError` or `SourceUnavailableError` if a retry may succeed.
    """

    name: str
    source: Source | None
    send: Callable[[Sequence[CommittedOutput]], Awaitable[object]] = nothing
    close: Callable[[], Awaitable[None]] = nothing
    open: Callable[[], Awaitable[None]] = nothing

    async def settle(self, outputs: Sequence[CommittedOutput], received: Sequence[Received]) -> None:
        """Publish outputs, then acknowledge the deliveries that caused the outputs."""
        if outputs:
            await self.send(outputs)
        if self.source is not None:
            await self.source.acknowledge(received)


# Envelopes: in JSON, or with id and type as properties of a broker's message.


def read_message(  # noqa: PLR0917 - the fields of a message
    content: bytes,
    place: str,
    message_id: str | None = None,
    type_: str | None = None,
    headers: Mapping[str, str] | None = None,
    stamped: datetime | int | None = None,
    decode: Decode | None = None,
    **received: Any,  # noqa: ANN401 - fields of `Received`
) -> Received:
    """Parse a message from a source, and return its delivery. `received` are the other fields of the delivery.

    `message_id` and `type_` override the headers. For the other arguments and errors, see `read_record`. The delivery
    of an invalid message has a `problem`.
    """
    properties = {"message_id": message_id, "type": type_}
    named = {name: value for name, value in properties.items() if value is not None}
    envelope, problem = read_record(content, place, {**(headers or {}), **named}, stamped, decode)
    return Received(envelope, len(content), problem, **received)


def letter_of(outcome: Outcome) -> CommittedOutput:
    """Convert a rejected delivery to a message for a dead letter queue. All copies of a message give the same id.

    Others give other ids, although their message ids may be the same, such as those of invalid lines.
    """
    envelope, handler, business_id = outcome.envelope, outcome.handler or "", outcome.business_id or ""
    why = {"reason": str(outcome.reason or outcome.status), "error": outcome.error or ""}
    message, time = json.loads(envelope.to_json(outcome.handler)), envelope.enqueued_at or 0
    content = f"{envelope.message_id}\0{envelope.type}\0{message['body']}"
    headers: Mapping[str, str] = {**(envelope.headers or {}), **why}
    if (size := len(json.dumps(message))) > _LARGEST_LETTER:
        type_ = envelope.type[:MAX_LENGTH]
        message = {"message_id": envelope.message_id, "type": type_, "omitted_bytes": size}
        headers = with_trace(why, envelope.headers)
    body = json.dumps({**why, "message": message})
    id_ = Seed(content, handler, business_id).guid_text("dead letter", 0)
    sent_at = to_datetime(time if is_in_calendar(time) else 0)
    return CommittedOutput(
        id_, "DeadLetter", body, business_id, handler, envelope.sequence or 0, sent_at, headers
    )


def written(output: CommittedOutput) -> bytes:
    """Serialize an output as an envelope in JSON."""
    fields = {
        "message_id": output.message_id,
        "type": output.type,
        "body": msgspec.Raw(output.body.encode()),
        "sequence": output.sequence,
        "enqueued_at": output.enqueued_at,
        **({"headers": dict(output.headers)} if output.headers else {}),
    }
    return msgspec.json.encode(fields)


# Sources and targets by their URLs.

_LARGEST_LETTER = 16 * 1024  # a queue of Azure takes 64 KiB, in which a body is escaped and encoded
_BROKERS = ("stdin", "stdout", "kafka", "azurequeue", "amqp", "servicebus")


def open_source(url: str, decoding: Decoding = AS_JSON) -> Source:
    """Return the source at a URL. `decoding` applies only to Kafka.

    Raises `UsageError` if the URL is invalid or `decoding` does not apply, and `MissingExtraError` if a package is
    missing.
    """
    url = resolved(url)
    if url.partition(":")[0] not in _BROKERS or url.startswith("stdout:"):
        raise UsageError(
            "The source is invalid. Use stdin:, kafka://HOST:PORT/TOPIC,TOPIC?group=NAME, "
            "amqp://USER:PASSWORD@HOST/VHOST?queue=NAME, azurequeue://HOST:PORT/QUEUE, servicebus://HOST/QUEUE, "
            "env:NAME."
        )
    source: Source = _broker(url).source(url)
    if decoding != AS_JSON and not url.startswith("kafka:"):
        raise UsageError("The option decode applies only to Kafka: omit it.")
    if decoding != AS_JSON:
        source.decode = decoding.decoder()  # type: ignore[attr-defined] # of Kafka
    return source


def open_settlement(url: str | None, source: Source | None, names: Mapping[str, str]) -> Settlement:
    """Return the settlement for a source and the target at a URL. If `url` is None, outputs are dropped.

    `names` maps message types to topics, queues, paths or tables. Raises the errors of `open_source`.
    """
    if url is None:
        return Settlement("" if source is None else source.name, source)
    url = resolved(url)
    if url.partition(":")[0] in _BROKERS and not url.startswith(("stdin:", "servicebus:")):
        settlement: Settlement = _broker(url).settlement(url, source, names)
        return settlement
    if not url.startswith(("http:", "https:", "Endpoint=sb", "sqlite:", "postgresql:", "postgres:")):
        raise UsageError(
            "The target is invalid. Use stdout:, kafka://HOST:PORT, amqp://..., azurequeue://..., http://..., "
            "https://..., sqlite:///FILE, postgresql://..., or the connection string of a Service Bus namespace."
        )
    target = open_target(url, TargetOptions(names=names, attempts=1))  # the consumer tries again
    publisher, prepared = target.publisher(), set[str]()

    async def send(outputs: Sequence[CommittedOutput]) -> None:
        types = {each.type for each in outputs} - prepared
        if types:
            await target.prepare(types)
            prepared.update(types)
        try:
            await publisher.begin()
            for refused in await publisher.send(outputs):
                why = f"{target.name} refuses the output {refused.message_id}: {refused.why}"
                raise TargetError(why)  # noqa: TRY301 - rolled back like others
            await publisher.commit()
        except BaseException as error:
            await publisher.roll_back()
            if isinstance(error.__cause__, TargetUnavailableError):
                raise error.__cause__ from None
            raise

    return Settlement(target.name, source, send, publisher.close)


def parts_of(url: str, form: str) -> tuple[SplitResult, dict[str, str]]:
    """Return the parts and the parameters of a URL. Raises `UsageError` with the text `form` if it is invalid."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError:  # the error's text may contain the password
        raise UsageError(form) from None
    return parts, dict(parse_qsl(parts.query))


def number_of(given: Mapping[str, str], name: str, default: int) -> int:
    """Return a parameter of a source. Raises `UsageError` if it is not a number."""
    text = given.get(name, str(default))
    if not text.isdecimal():
        raise UsageError(f"The parameter {name} of --from must be a number, not {text}.")
    return int(text)


@contextmanager
def usable_connection() -> Iterator[None]:
    """Context manager that raises `UsageError` if a client refuses the connection string with which it is created."""
    try:
        yield
    except ValueError as error:
        raise UsageError(f"The connection string is invalid: {without_secrets(str(error))}") from None


def _broker(url: str) -> Any:  # noqa: ANN401 - a module
    name = "stdin" if url.startswith("stdout:") else url.partition(":")[0]
    try:
        return import_module(f"runtime.serve.brokers.{name}")
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"This broker needs {error.name}: pip install 'consistent-messaging[serve]'."
        ) from error

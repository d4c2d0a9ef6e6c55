"""The interface of targets, and the base class of targets that take one output per request."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum
from functools import partial, wraps
from typing import Any, ClassVar, Concatenate, Generic, NamedTuple, ParamSpec, TypeVar

from pydantic import PositiveInt, TypeAdapter, ValidationError

from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.messages.outcome import Maker
from runtime.options import check_fields, option
from runtime.retries import Pace, first_error, until_available


class Promise(StrEnum):
    """How often an output takes effect at a target, despite crashes and restarts of the runner."""

    EXACTLY_ONCE = "exactly once"
    ONCE_BY_KEY = "once at receivers that honour the key"
    ONCE_WITHIN_WINDOW = "once within the duplicate window"
    AT_LEAST_ONCE = "at least once"
    AT_MOST_ONCE = "at most once"
    BY_CUSTOMER = "at most once, or at least once to some customers"


@dataclass(frozen=True, slots=True)
class CommittedOutput:
    """An output in the outcomes of a batch, with the handler and business object that made it. `body` is JSON."""

    message_id: str
    type: str
    body: str
    business_id: str
    handler: str
    sequence: int
    enqueued_at: datetime
    headers: Mapping[str, str] = field(default_factory=dict)
    made_by: Maker | None = None  # the batch that made the version, for an output of a duplicate


class SliceName(NamedTuple):
    """The name of a slice. All attempts at a publication use the same name."""

    publication: str
    number: int
    is_redrive: bool = False  # whether the slice is a single output that was refused before

    def __str__(self) -> str:
        return f"{self.publication}-{self.number:06}"


class Result(StrEnum):
    """How an attempt to send a message ended. Keys and records of outputs store this."""

    SENT = "sent"
    NOT_SENT = "not_sent"
    UNKNOWN = "unknown"  # in doubt: it timed out, or the process died
    FILTERED = "filtered"  # sent before, by another delivery or publication
    LOCKED = "locked"  # another delivery is sending it

    @property
    def is_letter(self) -> bool:
        """Whether the output becomes a dead letter."""
        return self in {Result.NOT_SENT, Result.UNKNOWN}


class Record(NamedTuple):
    """The recorded result of sending an output. Function targets record all outputs, and others only dead letters."""

    message_id: str
    type: str
    business_id: str
    handler: str
    result: Result
    why: str = ""
    customer: str = ""

    @classmethod
    def of(
        cls, output: CommittedOutput, why: str, result: Result = Result.NOT_SENT, customer: str = ""
    ) -> Record:
        """Return the record of an output, by default as a dead letter. Only function targets have a `customer`."""
        return cls(output.message_id, output.type, output.business_id, output.handler, result, why, customer)


class Publisher(ABC):
    """Sends slices one after another. The default methods suit targets without transactions."""

    async def open(self, name: SliceName) -> bool:
        """Begin a slice. Return False if the target has the slice's marker: the slice is already committed."""
        del name
        return True

    async def begin(self) -> None:  # noqa: B027 - optional
        """Begin a transaction without a marker. Consumers of live queues call this instead of `open`."""

    @abstractmethod
    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        """Send outputs, in order for each business id. Return the records of dead letters.

        Function targets return records of all outputs. Raises `TargetUnavailableError` if a retry may succeed.
        """

    async def commit(self) -> None:  # noqa: B027 - optional
        """Commit the slice and its marker, if the target has transactions."""

    async def roll_back(self) -> None:  # noqa: B027 - optional
        """Roll back the uncommitted part of the slice, if the target has transactions."""

    async def close(self) -> None:  # noqa: B027 - optional
        """Close connections, and roll back an uncommitted transaction: the next attempt sends its outputs again."""


class Target(ABC):
    """A receiver of outputs."""

    promise: Promise
    chunk: int = 1_000  # the number of outputs that are sent, and recorded as sent, at once
    publishers: int | None = None  # the maximum number of concurrent publishers
    window: timedelta | None = None  # how long the target recognises duplicates: a slice is not resumed later

    def __init__(self, name: str, options: TargetOptions, identity: str | None = None) -> None:
        self.name = name  # the URL without secrets
        self.identity = identity or f"{name} {sorted(options.names.items())}"
        """The part of a publication's key that says where outputs are sent."""
        self.options = options
        self.seconds = options.timeout.total_seconds()

    async def prepare(self, types: Collection[str]) -> None:  # noqa: B027 - optional
        """Create tables for outputs of these types, or check topics. Raises `UsageError` if a type cannot be sent."""

    @abstractmethod
    def publisher(self) -> Publisher:
        """Return a new publisher. The caller closes the publisher."""


P = ParamSpec("P")
S = TypeVar("S", bound="ThreadedPublisher")
T = TypeVar("T")


class ThreadedPublisher(Publisher):
    """Calls a blocking library in one thread per publisher, one call after another."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1)

    async def close(self) -> None:
        """Stop the thread of the publisher."""
        self.thread.shutdown()


def in_thread(work: Callable[Concatenate[S, P], T]) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Decorate a method to run in the publisher's thread after all earlier calls have ended, even cancelled ones."""

    @wraps(work)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        bound = partial(work, self, *args, **kwargs)
        return await asyncio.get_running_loop().run_in_executor(self.thread, bound)

    return call


@dataclass(frozen=True, kw_only=True)
class PublishOptions:
    """Options for publishing outputs."""

    GROUP: ClassVar = "publish"

    types: Sequence[str] = option(
        "Publish only these message types; may be repeated.", default=(), metavar="TYPE,..."
    )
    """Empty for all types. Part of the publication's key."""
    any_types: bool = False  # do not check that the types exist: an epoch may lack some
    corrections: bool = option(
        "Publish only the corrections of `consistent reprocess`: for each output that differs a message of type "
        "TYPECorrected, with the old body, the new body and the message that caused it.",
        default=False,
        group=None,
        is_rare=True,
    )
    slices: int | None = option(
        "Cut the batch into N slices by business id; by default one for each 1,000 deliveries, at most 256.",
        default=None,
        metavar="N",
        min=1,
        max=10_000,
    )
    concurrency: int = option(
        "Send up to N slices or requests concurrently; on Spark in each task.",
        default=4,
        metavar="N",
        min=1,
        max=256,
    )
    attempts: int = option("Try up to N times after temporary errors.", default=8, metavar="N", min=1)
    lease: timedelta = option(
        "Take over slices of a runner that has not renewed its claim for this long.",
        default=timedelta(minutes=1),
        metavar="TIME",
    )
    take_over: bool = option(
        "Do not wait until claims of other runners expire. Use it only if these have stopped.",
        default=False,
        group=None,
        is_rare=True,
    )
    force: bool = option(
        "Resume even after the --duplicate-window, when outputs may arrive twice.",
        default=False,
        group=None,
        is_rare=True,
    )

    def __post_init__(self) -> None:
        check_fields(self)


AT_LEAST_ONCE = "AT_LEAST_ONCE_SENDING_CUSTOMERS"
LOCK_LIMIT = ("TTL_LOCK_TIME_LIMIT_MS", "TTL_LOCK_TIME_LIMIT_MILLIS")
TTL = "TTL_IDEMPOTENCY_PER_CUSTOMER_SEC"

DEFAULT_CUSTOMER = "default"  # if no field names the customer
_TTL = TypeAdapter(dict[str, PositiveInt])


@dataclass(frozen=True, slots=True)
class DeliverySettings:
    """How often each customer receives a message, at least or at most once, and the lifetime of delivery keys."""

    at_least_once: frozenset[str] = frozenset()
    """Customers whose messages are sent at least once, or "*" for all. The default is at most once."""
    lock_limit: timedelta = timedelta(minutes=2)
    """The lifetime of a lock."""
    ttl: Mapping[str, timedelta] = field(default_factory=dict)
    """The lifetime of sealed keys by customer."""
    default_ttl: timedelta = timedelta(hours=6)

    @classmethod
    def read(cls, variables: Mapping[str, str]) -> DeliverySettings:
        """Parse the settings from environment variables. Raises `UsageError` for an invalid value."""
        named = variables.get(AT_LEAST_ONCE, "").split(",")
        limits = {name: variables[name] for name in LOCK_LIMIT if variables.get(name)}
        if len(set(limits.values())) > 1:
            raise UsageError(f"{' and '.join(limits)} contradict each other. Set only one of them.")
        lock_limit = cls().lock_limit
        for name, value in limits.items():
            if not value.strip().isdecimal() or not int(value):
                raise UsageError(
                    f"{name} is {value!r}. Set it to a whole number of milliseconds, such as 120000 for two minutes."
                )
            lock_limit = timedelta(milliseconds=int(value))
        try:
            seconds = _TTL.validate_json(variables.get(TTL) or "{}", strict=True)
        except ValidationError as error:
            raise UsageError(
                f"{TTL} is {variables[TTL]!r}. Set it to a JSON object of customer ids and seconds, such as "
                f'{{"17": 3600, "default": 21600}}.'
            ) from error
        ttl = {customer: timedelta(seconds=each) for customer, each in seconds.items()}
        default_ttl = ttl.pop(DEFAULT_CUSTOMER, cls().default_ttl)
        at_least_once = frozenset(customer.strip() for customer in named if customer.strip())
        return cls(at_least_once, lock_limit, ttl, default_ttl)

    def is_at_least_once(self, customer: str) -> bool:
        """Return whether messages to a customer are sent at least once."""
        return "*" in self.at_least_once or customer in self.at_least_once

    def ttl_of(self, customer: str) -> timedelta:
        """Return the lifetime of sealed keys of a customer."""
        return self.ttl.get(customer, self.default_ttl)


@dataclass(frozen=True, kw_only=True)
class TargetOptions:
    """Options of all targets. Each target uses the options that apply to it."""

    GROUP: ClassVar = "publish"

    names: Mapping[str, str] = option(
        "The table, topic or path for a message type; may be repeated. By default tables and topics have the name of "
        "the type.",
        default=dict,
        name="--map",
        metavar="TYPE=NAME",
    )
    batch_id: str = ""
    concurrency: int = 4  # the maximum number of concurrent requests of all publishers
    rate: float | None = option(
        "Make at most N requests or calls a second.", default=None, metavar="N", min=0.001
    )
    timeout: timedelta = option(
        "Wait up to this long for a response.", default=timedelta(seconds=30), metavar="TIME"
    )
    attempts: int = 8
    headers: Mapping[str, str] = option(
        "Send a header with each HTTP request, such as Authorization=env:TOKEN; may be repeated.",
        default=dict,
        name="--header",
        metavar="NAME=VALUE",
    )
    """May hold secrets."""
    window: timedelta = option(
        "The duplicate detection window of a Service Bus queue or topic. Older slices are resumed only with --force.",
        default=timedelta(minutes=10),
        name="--duplicate-window",
        metavar="TIME",
    )
    send: Callable[..., object] | None = None
    """The function of a target `module:function`. Takes an `OutgoingMessage`."""
    settings: DeliverySettings = field(default_factory=DeliverySettings)
    customer: str | None = option(
        "For a MODULE:FUNCTION: the field of a body that names the customer.", default=None, metavar="FIELD"
    )
    keys: str = option(
        "For a MODULE:FUNCTION: keep the keys of sent messages in redis://HOST:PORT/0, another store or env:NAME, "
        "instead of the table of the batch.",
        default="",
        is_secret=True,
        metavar="URL",
    )
    keys_table: str = "deliveries"  # the table of the keys, or the prefix of their names in Redis

    def __post_init__(self) -> None:
        check_fields(self)


class OneByOneTarget(Target):
    """A target without transactions that takes one output per request."""

    def __init__(self, name: str, options: TargetOptions, identity: str | None = None) -> None:
        super().__init__(name, options, identity)
        self.pace = Pace(options.rate)
        self._places = asyncio.Semaphore(options.concurrency)

    async def in_turn(self, work: Callable[[], Awaitable[T]]) -> T:
        """Call `work` as soon as the limits of concurrency and rate for all publishers allow it. Return its result."""
        async with self._places:
            await asyncio.sleep(self.pace.take())
            return await work()


To = TypeVar("To", bound=OneByOneTarget)


class OneByOnePublisher(Publisher, Generic[To]):
    """Sends the outputs of each business object in order, and those of different objects concurrently."""

    def __init__(self, target: To) -> None:
        self.target = target

    @abstractmethod
    async def attempt(self, output: CommittedOutput) -> Record | None:
        """Try once to send an output. Return the record to store, or None if the output was sent and needs no record.

        Raises `TargetUnavailableError` if another attempt may succeed.
        """

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        """Implement `Publisher.send`. Raises `TargetError` if an output fails in `options.attempts` attempts."""
        attempts = self.target.options.attempts

        async def in_order(outputs: Sequence[CommittedOutput]) -> list[Record | None]:
            records = []
            for output in outputs:
                try:
                    records.append(await until_available(attempts, partial(self.attempt, output)))
                except TargetUnavailableError as error:
                    raise TargetError(
                        f"{self.target.name} did not accept {output.message_id} in {attempts} attempts: {error}"
                    ) from error
            return records

        by_object: dict[str, list[CommittedOutput]] = {}
        for output in outputs:
            by_object.setdefault(output.business_id, []).append(output)
        with first_error():
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(in_order(some)) for some in by_object.values()]
        return [record for task in tasks for record in task.result() if record is not None]

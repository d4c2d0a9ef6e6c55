"""A function of the user as a target, called at most once or at least once for each output (see `last_hop`)."""

from __future__ import annotations

import asyncio
import inspect
import json
from contextlib import AsyncExitStack
from functools import partial
from hashlib import sha256

from eventstore import InvalidKeyError
from runtime import errors
from runtime.algorithms.algorithm import fresh_id
from runtime.clock import system_clock
from runtime.publishing import last_hop, publisher
from runtime.publishing.last_hop import Delivered, OutgoingMessage
from runtime.publishing.publisher import CommittedOutput, Promise, Record, Result, SliceName, TargetOptions

_FAILURES = 5  # stop after this many failures in a row, before many outputs are lost


class FunctionTarget(publisher.OneByOneTarget):
    """A function, `async` or not, that returns when the receiver has accepted an `OutgoingMessage`."""

    chunk = 20

    def __init__(self, name: str, options: TargetOptions) -> None:
        if options.send is None or not options.keys:
            raise errors.UsageError(
                f"The target {name} needs the options `send`, its function, and `keys`, the store of its keys."
            )
        settings = options.settings
        if options.timeout >= settings.lock_limit:
            raise errors.UsageError(
                f"A send may take {options.timeout.total_seconds():g} s, but its lock expires after "
                f"{settings.lock_limit.total_seconds():g} s, so a message could be sent twice. Lower --timeout, or "
                f"raise TTL_LOCK_TIME_LIMIT_MS."
            )
        self.promise = Promise.BY_CUSTOMER if settings.at_least_once else Promise.AT_MOST_ONCE
        if settings.is_at_least_once("*"):
            self.promise = Promise.AT_LEAST_ONCE
        else:
            self.window = min([settings.default_ttl, *settings.ttl.values()])
        super().__init__(name, options, f"{name} {options.customer or ''}")
        self.send = options.send
        self.failures = 0  # in a row, without a permanent error

    def publisher(self) -> FunctionPublisher:
        return FunctionPublisher(self)

    async def call(self, message: OutgoingMessage) -> None:
        """Call the function. Raises errors of the function, and `TimeoutError` after `options.timeout`."""
        is_async = inspect.iscoroutinefunction(self.send) or inspect.iscoroutinefunction(
            type(self.send).__call__
        )
        try:
            async with asyncio.timeout(self.seconds):
                # A thread continues after the time-out. A message that it then sends is not recorded.
                answer = self.send(message) if is_async else await asyncio.to_thread(self.send, message)
                if inspect.isawaitable(answer):
                    await answer
        except TimeoutError as error:
            raise TimeoutError(str(error) or f"no answer within {self.seconds:g} s") from error

    def message_of(self, output: CommittedOutput) -> OutgoingMessage:
        """Return the argument of the function. Raises `ValueError` if the body has no valid customer."""
        try:
            body, customer = json.loads(output.body), publisher.DEFAULT_CUSTOMER
        except RecursionError as error:
            raise ValueError("Its body is nested too deeply.") from error
        if self.options.customer is not None:
            value = body.get(self.options.customer) if isinstance(body, dict) else None
            customer = str(value)
            named = f"Its body has no valid customer: {self.options.customer} is "
            if not isinstance(value, str | int) or isinstance(value, bool) or not customer:
                raise ValueError(f"{named}{json.dumps(value)}.")
            try:
                last_hop.DeliveryKey.of(customer, output.message_id)
            except InvalidKeyError as error:
                raise ValueError(f"{named}not a valid key: {error}") from error
        return OutgoingMessage(
            output.message_id, output.type, body, customer, output.headers, self.options.batch_id
        )


class FunctionPublisher(publisher.OneByOnePublisher[FunctionTarget]):
    """Calls the function for each output, unless the output's key says that the output was sent."""

    def __init__(self, target: FunctionTarget) -> None:
        super().__init__(target)
        self._stack = AsyncExitStack()
        self._delivery: last_hop.IdempotentDelivery | None = None
        self._prefix = ""
        self._is_redrive = False

    async def open(self, name: SliceName) -> bool:
        """Open the store of delivery keys. Return True: slices have no markers, so each must be sent.

        A key stores its holder, the id of the delivery that sealed or locked it. The id begins with a digest of the
        publication's name, so that later attempts recognise the keys of their own publication.
        """
        self._prefix = sha256(name.publication.partition("-again-")[0].encode()).hexdigest()[:12]
        self._is_redrive = name.is_redrive
        if self._delivery is None:
            options = self.target.options
            opening = last_hop.open_keys(options.keys, options.keys_table)
            keys = await self._stack.enter_async_context(opening)
            self._delivery = last_hop.IdempotentDelivery(
                keys, options.settings, new_id=lambda: f"{self._prefix}{fresh_id()}"
            )
        return True

    async def close(self) -> None:
        await self._stack.aclose()

    async def attempt(self, output: CommittedOutput) -> Record | None:
        """Send an output unless its key says that the output was sent. Waits while another delivery holds the lock."""
        try:
            message = self.target.message_of(output)
        except ValueError as error:
            return Record.of(output, str(error))
        while True:
            delivered = await self.target.in_turn(partial(self._deliver, message))
            if delivered.end is not Result.LOCKED:
                break
            await asyncio.sleep(max((delivered.try_again_at or 0) - system_clock(), 0) / 10**6 + 0.001)
        self._count(delivered)
        if not delivered.is_done:
            last = delivered.error
            asked = last.retry_after if isinstance(last, errors.TransientError) else None
            raise errors.TargetUnavailableError(delivered.why or "", asked)
        result: Result = delivered.end
        why, found = delivered.why, delivered.found
        if found is not None and found.holder.startswith(self._prefix):
            died = "The process died while sending it: it is unknown whether it was sent."
            result, why = (Result(found.end), found.why) if found.end else (Result.UNKNOWN, died)
        return Record.of(output, why or "", result, message.customer)

    async def _deliver(self, message: OutgoingMessage) -> Delivered:
        if self._delivery is None:
            raise AssertionError("A slice is opened before it is sent.")
        send, key = partial(self.target.call, message), (message.customer, message.message_id)
        delivering = asyncio.ensure_future(self._delivery.deliver(*key, send, is_redrive=self._is_redrive))
        try:
            return await asyncio.shield(delivering)
        except asyncio.CancelledError:
            await asyncio.wait([delivering])  # until the key has the result
            raise
        except errors.RetriesExhaustedError as error:
            raise errors.TargetError(f"The keys of {self.target.name} cannot be stored: {error}") from error

    def _count(self, delivered: Delivered) -> None:
        """Update the number of consecutive failures, which a success or a `PermanentError` resets.

        Raises `TargetError` if there are too many.
        """
        error = delivered.error
        if delivered.end is Result.SENT or isinstance(error, errors.PermanentError):
            self.target.failures = 0
        elif error is not None and delivered.is_done:
            self.target.failures += 1
            if self.target.failures >= _FAILURES:
                raise errors.TargetError(
                    f"{self.target.name} failed for {_FAILURES} outputs in a row, most recently with {delivered.why}. "
                    f"Publish again once it works."
                ) from error

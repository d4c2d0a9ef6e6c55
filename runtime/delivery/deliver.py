"""Delivery: each message once through the keys of `IdempotentDelivery`, with patience for its receiver, and a record.

| after | at most once | at least once |
|---|---|---|
| the receiver took it | `sent` | `sent` |
| `PermanentError`, or any other error | `not_sent` | `not_sent` |
| `TransientError`, `ConnectionError` | `not_sent` | sent again; `not_sent` after the last attempt, not final |
| no answer in time | `unknown` | sent again; `unknown` after the last attempt, not final |
| SIGKILL in mid-send | `unknown` | sent again |
| SIGKILL later | what its key says | what its key says, or sent again |
| an earlier delivery of the same message | `filtered` | `filtered` |
"""

from __future__ import annotations

import asyncio
import hashlib
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import suppress
from datetime import timedelta
from functools import partial
from itertools import chain, repeat

from eventstore.backoff import pause_seconds
from runtime.algorithms.fresh_ids import fresh_id
from runtime.algorithms.last_hop.delivery import Delivered, End, IdempotentDelivery
from runtime.algorithms.last_hop.keys import DeliveryKey, Key, Keys
from runtime.algorithms.last_hop.settings import DeliverySettings
from runtime.clock import system_clock
from runtime.delivery.gate import CircuitBreaker, Pace
from runtime.delivery.outgoing import OutgoingMessage
from runtime.delivery.policy import DeliveryPolicy
from runtime.delivery.records import DeliveryRecord, RecordFiles, Result
from runtime.delivery.sending import Attempt, Sender, is_transient
from runtime.errors import DeliveryStoppedError

_MICROSECOND = timedelta(microseconds=1)
_MICROSECONDS_OF_A_SECOND = 1_000_000
_DIGITS_OF_A_NAME = 12
_IN_HAND = 8
"""How many messages are in hand for each that is being sent: others wait for a lock, or for their next attempt."""
_PAUSES = (0.05, 0.1, 0.2, 0.5, 1, 2, 5)
"""After how many seconds each it is looked again how a process that works beside this one has ended."""

Seconds = float
One = Callable[[OutgoingMessage], Coroutine[None, None, None]]


class Delivery:
    """Delivers messages with a sender, and records what became of each.

    `name` is that of the delivery as a whole: whoever goes on with it after a crash uses the same, and finds by it what
    the crash left. `on_record` is called with each record. Once `stopped` is set nothing more is sent, and what
    is being sent is waited for.
    """

    def __init__(
        self,
        sender: Sender,
        keys: Keys,
        records: RecordFiles,
        *,
        name: str,
        settings: DeliverySettings | None = None,
        policy: DeliveryPolicy | None = None,
        on_record: Callable[[DeliveryRecord], object] | None = None,
        stopped: asyncio.Event | None = None,
    ) -> None:
        self._sender = sender
        self._records = records
        self._settings = settings or DeliverySettings()
        self._policy = policy or DeliveryPolicy()
        self._policy.check(self._settings)
        self._on_record = on_record
        self._prefix = hashlib.sha256(name.encode()).hexdigest()[:_DIGITS_OF_A_NAME]
        self._keys = keys
        self._delivery = IdempotentDelivery(
            keys,
            self._settings,
            is_transient=is_transient,
            new_id=lambda: f"{self._prefix}{fresh_id()}",
        )
        self._pace = Pace(self._policy.per_second)
        self._breaker = CircuitBreaker(self._policy.breaker)
        self._sending = asyncio.Semaphore(self._policy.concurrency)
        self._stopped = stopped or asyncio.Event()
        self._error: Exception | None = None

    async def run(self, messages: Iterable[OutgoingMessage]) -> Counter[Result]:
        """Deliver the messages that have no final record yet, and count the results.

        Raises `DeliveryStoppedError` when the receiver takes no message for too long, and what the store of the keys
        raises. Whatever ends it, all records are written.
        """
        counts: Counter[Result] = Counter()
        with ThreadPoolExecutor(self._policy.concurrency, thread_name_prefix="sender") as threads:
            try:
                async with asyncio.TaskGroup() as group:
                    await self._begin_each(messages, partial(self._one, counts, threads), group)
            finally:
                self._records.flush()
        if self._error is not None:
            raise self._error
        return counts

    async def _begin_each(
        self, messages: Iterable[OutgoingMessage], one: One, group: asyncio.TaskGroup
    ) -> None:
        """Begin to deliver each message that has no final record, when there is room for it."""
        room = asyncio.Semaphore(self._policy.concurrency * _IN_HAND)
        try:
            done = self._records.finals()
            for message in messages:
                if message.message_id in done:
                    continue
                done.add(message.message_id)
                await room.acquire()
                if self._stopped.is_set():
                    return
                group.create_task(one(message)).add_done_callback(lambda _: room.release())
        except Exception as error:  # noqa: BLE001 - raised by `run`, when what is being sent has ended
            self._fail(error)

    async def _one(self, counts: Counter[Result], threads: Executor, message: OutgoingMessage) -> None:
        """Deliver a message and record it. An error ends the whole delivery, once what is being sent has ended."""
        try:
            record = await self._deliver(message, threads)
            if record is None:
                return
            counts[record.result] += 1
            self._records.add(record)
            if self._on_record is not None:
                self._on_record(record)
        except Exception as error:  # noqa: BLE001 - raised by `run`
            self._fail(error)

    async def _deliver(self, message: OutgoingMessage, threads: Executor) -> DeliveryRecord | None:
        """Deliver a message in as many attempts as it takes. None says that the delivery was stopped before its end."""
        if message.problem is not None:
            return DeliveryRecord.of(message, Result.NOT_SENT, message.problem, 0, is_final=True)
        sends = 0
        while not self._stopped.is_set():
            attempt = Attempt(self._sender, message, seconds=self._policy.timeout, threads=threads)
            async with self._sending:
                delivered = await self._attempt(message, attempt)
            if delivered is None:
                return None
            sends += attempt.was_made
            record = await self._record(message, delivered, sends)
            if isinstance(record, DeliveryRecord):
                return record
            await self._wait(max(record, attempt.retry_after or 0))
        return None

    async def _attempt(self, message: OutgoingMessage, attempt: Attempt) -> Delivered | None:
        """Send a message when its receiver is ready for it, unless its key forbids that. None says: stopped before."""
        while seconds := self._breaker.seconds_to_wait():
            await self._wait(seconds)
            if self._stopped.is_set():
                return None
        await self._wait(self._pace.take_turn())
        if self._stopped.is_set():
            return None
        delivered = await self._delivery.deliver(message.customer, message.message_id, attempt)
        if not attempt.was_made:
            self._pace.give_back()
            self._breaker.note_nothing()
        elif attempt.receiver_answered:
            self._breaker.note_answer()
        else:
            self._note_failure(attempt.error)
        return delivered

    def _note_failure(self, error: Exception | None) -> None:
        try:
            self._breaker.note_failure(error)
        except DeliveryStoppedError as stopped:
            self._fail(stopped)

    def _fail(self, error: Exception) -> None:
        self._error = self._error or error
        self._stopped.set()

    async def _record(
        self, message: OutgoingMessage, delivered: Delivered, sends: int
    ) -> DeliveryRecord | Seconds:
        """Return what becomes of a message after an attempt: a record, or a pause before the next one."""
        found = delivered.found
        if delivered.end is End.LOCKED:
            return self._seconds_until(delivered.try_again_at or 0)
        if found is not None and found.holder.startswith(self._prefix):
            return await self._left_behind(message, found, sends)
        if not delivered.is_done and sends < self._policy.attempts:
            return pause_seconds(sends, self._policy.first_pause, self._policy.longest_pause)
        result, is_final = Result(delivered.end), delivered.is_done
        return DeliveryRecord.of(message, result, delivered.why, sends, is_final=is_final)

    async def _left_behind(
        self, message: OutgoingMessage, sealed: Key, sends: int
    ) -> DeliveryRecord | Seconds:
        """Return the record of a message that this delivery sealed before. Its process died, or works beside this one.

        One that works beside gets the time that a lock lasts to record how it ended.
        """
        key = DeliveryKey.of(message.customer, message.message_id)
        sealed_at = sealed.expires_at - self._settings.ttl_of(message.customer) // _MICROSECOND
        over_at = sealed_at + self._settings.lock_limit // _MICROSECOND
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            end = await self._keys.end_of(key, sealed.holder)
            if end is not None:
                return DeliveryRecord.of(message, Result(end.end), end.why, sends, is_final=True)
            seconds = self._seconds_until(over_at)
            if not seconds:
                break
            await self._wait(min(seconds, pause))
            if self._stopped.is_set():
                return 0
        reason = "The process that was to send it died, before or after it did."
        return DeliveryRecord.of(message, Result.UNKNOWN, reason, sends, is_final=True)

    def _seconds_until(self, moment: int) -> Seconds:
        return max(moment - system_clock(), 0) / _MICROSECONDS_OF_A_SECOND

    async def _wait(self, seconds: Seconds) -> None:
        """Wait, but not longer than until the delivery is stopped."""
        if seconds <= 0:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._stopped.wait()

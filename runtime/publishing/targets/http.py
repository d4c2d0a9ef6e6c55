"""HTTP as a target: each output is a request with its id as `Idempotency-Key`, sent again until it is answered.

A receiver that honours the key does what it is asked once. Outputs of one business object go one after another, others
beside them. What a receiver refuses with another 4xx than those that ask for patience is a dead letter.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from itertools import groupby
from operator import attrgetter
from urllib.parse import quote, urlsplit, urlunsplit

import aiohttp

from eventstore.backoff import pause_seconds
from runtime.errors import TargetError, UsageError
from runtime.publishing.publisher import Promise, Refused, SliceName
from runtime.publishing.slices import CommittedOutput
from runtime.publishing.targets.options import TargetOptions

_PATIENCE = {408, 409, 425, 429}
"""Answers of 4xx after which the same request may succeed; 409 is that of a key whose first request still runs."""

_LONGEST_PAUSE = 120.0
_ERRORS = (
    aiohttp.ClientConnectionError,
    aiohttp.ClientPayloadError,
    aiohttp.ServerTimeoutError,
    TimeoutError,
)


class Pace:
    """Lets through at most so many a second, one after another at even distances."""

    def __init__(self, rate: float | None) -> None:
        self._distance = 1 / rate if rate else 0.0
        self._next = 0.0

    async def wait(self) -> None:
        """Wait for one's turn."""
        now = time.monotonic()
        turn = max(now, self._next)
        self._next = turn + self._distance
        if turn > now:
            await asyncio.sleep(turn - now)


class HttpTarget:
    """A receiver of HTTP requests, a `POST` for each output."""

    promise: Promise = Promise.ONCE_BY_KEY
    chunk = 50
    publishers: int | None = None
    window: timedelta | None = None

    def __init__(self, url: str, options: TargetOptions) -> None:
        parts = urlsplit(url)
        if not parts.hostname:
            raise UsageError("A receiver is written http://HOST/PATH or https://HOST/PATH.")
        host = parts.netloc.rpartition("@")[2]
        self.name = urlunsplit((parts.scheme, host, parts.path, "", ""))
        self.identity = f"{urlunsplit((parts.scheme, host, parts.path, parts.query, ''))} {options.names}"
        self.options = options
        self.pace = Pace(options.rate)
        self.places = asyncio.Semaphore(options.concurrency)
        self._parts = parts

    async def prepare(self, types: Collection[str]) -> None:
        """Nothing: a receiver is there or not."""

    def url_of(self, type_: str) -> str:
        """Return where outputs of a type go: the target's url, or the path below it that the type has been given."""
        name = self.options.names.get(type_)
        if name is None:
            return urlunsplit(self._parts)
        return urlunsplit(self._parts._replace(path=f"{self._parts.path.rstrip('/')}/{quote(name)}"))

    def publisher(self) -> HttpPublisher:
        """Return a publisher, with connections of its own."""
        return HttpPublisher(self)


class HttpPublisher:
    """Sends outputs as requests."""

    def __init__(self, target: HttpTarget) -> None:
        self._target = target
        self._session: aiohttp.ClientSession | None = None

    async def open(self, name: SliceName) -> bool:
        """Say that a slice is to be sent: receivers keep no markers."""
        del name
        return True

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Refused]:
        """Send outputs, those of one business object one after another; return those that are refused for good."""
        by_object = [list(some) for _, some in groupby(outputs, attrgetter("business_id"))]
        tasks = [asyncio.ensure_future(self._send_in_order(some)) for some in by_object]
        try:
            found = await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        return [each for some in found for each in some]

    async def commit(self) -> None:
        """Nothing: what was answered cannot be taken back."""

    async def roll_back(self) -> None:
        """Nothing: what was sent cannot be taken back."""

    async def close(self) -> None:
        """Close the connections."""
        if self._session is not None:
            await self._session.close()

    async def _send_in_order(self, outputs: Sequence[CommittedOutput]) -> list[Refused]:
        found = [await self._send_one(each) for each in outputs]
        return [each for each in found if each is not None]

    async def _send_one(self, output: CommittedOutput) -> Refused | None:
        """Send an output until it is answered. Raises `TargetError` after too many attempts."""
        options = self._target.options
        why = ""
        for attempt in range(1, options.attempts + 1):
            async with self._target.places:
                await self._target.pace.wait()
                status, why, asked = await self._request(output)
            if status is not None and status < 300:  # noqa: PLR2004 - that is what success is
                return None
            if status is not None and status < 500 and status not in _PATIENCE:  # noqa: PLR2004 - the receiver's fault
                return Refused.of(output, why)
            if attempt < options.attempts:
                await asyncio.sleep(pause_seconds(attempt, 0.1, 10.0) if asked is None else asked)
        output_id, times = output.message_id, options.attempts
        raise TargetError(
            f"{self._target.name} did not take the output {output_id} in {times} attempts: {why}"
        )

    async def _request(self, output: CommittedOutput) -> tuple[int | None, str, float | None]:
        """Return the status that a request was answered with, the answer in words, and the pause it asked for."""
        if self._session is None:
            timeout = aiohttp.ClientTimeout(total=self._target.options.timeout.total_seconds())
            self._session = aiohttp.ClientSession(timeout=timeout)
        url, headers = self._target.url_of(output.type), self._headers(output)
        try:
            async with self._session.post(
                url, data=output.body.encode(), headers=headers, allow_redirects=False
            ) as response:
                text = (await response.content.read(500)).decode(errors="replace")
                return response.status, f"{response.status} {text}".strip(), retry_after(response.headers)
        except _ERRORS as error:
            return None, f"{type(error).__name__} {error}".strip(), None

    def _headers(self, output: CommittedOutput) -> Mapping[str, str]:
        return {
            **self._target.options.headers,
            "Content-Type": "application/json",
            "Idempotency-Key": output.message_id,
            "Message-Type": output.type,
            "Business-Id": quote(output.business_id),
            "Message-Sequence": str(output.sequence),
        }


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return for how many seconds an answer asks to wait, at most two minutes; None when it does not ask."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        seconds = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError):
            return None
        seconds = (
            (moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - datetime.now(UTC)
        ).total_seconds()
    return min(max(seconds, 0.0), _LONGEST_PAUSE)

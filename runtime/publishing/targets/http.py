"""HTTP as a target: each output is a request with the output's id as `Idempotency-Key`, retried until answered."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from urllib.parse import quote, urlsplit, urlunsplit

import aiohttp

from runtime.errors import TargetError, TargetUnavailableError, UsageError
from runtime.messages.envelope import with_trace
from runtime.publishing import publisher
from runtime.publishing.publisher import CommittedOutput, Promise, Record, TargetOptions

# Retried, unlike other 4xx. 409 means that an earlier request with the same key is still under way.
_TEMPORARY = {408, 409, 425, 429}


class HttpTarget(publisher.OneByOneTarget):
    """An HTTP receiver. Each output is sent as a `POST` request."""

    promise = Promise.ONCE_BY_KEY
    chunk = 50

    def __init__(self, url: str, options: TargetOptions) -> None:
        try:
            parts = urlsplit(url)
            is_url = bool(parts.hostname) and parts.port != 0 and not re.search(r"\s", url)
        except ValueError:  # the error's text may contain the password
            is_url = False
        if not is_url:
            raise UsageError(
                "The URL of the receiver is invalid. Use http://HOST/PATH or https://USER:PASSWORD@HOST:PORT/PATH, "
                "with %25 for %, %40 for @, %2F for / and %20 for a blank in the user or password."
            )
        host = parts.netloc.rpartition("@")[2]
        identity = f"{urlunsplit((parts.scheme, host, parts.path, parts.query, ''))} {options.names}"
        name = urlunsplit((parts.scheme, host, parts.path, "", ""))
        super().__init__(name, options, identity)
        self.parts = parts

    def publisher(self) -> HttpPublisher:
        return HttpPublisher(self)


class HttpPublisher(publisher.OneByOnePublisher[HttpTarget]):
    """Sends each output as an HTTP request."""

    def __init__(self, target: HttpTarget) -> None:
        super().__init__(target)
        self._session: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()

    async def attempt(self, output: CommittedOutput) -> Record | None:
        """Send a request. Return None if it is accepted, or a dead letter if it is rejected permanently."""
        status, why, asked = await self.target.in_turn(lambda: self._request(output))
        if status is not None and status < 300:  # noqa: PLR2004 - 2xx
            return None
        if status is not None and status < 500 and status not in _TEMPORARY:  # noqa: PLR2004 - 5xx are retried
            return Record.of(output, why)
        raise TargetUnavailableError(why, asked)

    async def _request(self, output: CommittedOutput) -> tuple[int | None, str, float | None]:
        """Return the status (None without a response), its description, and the seconds of `Retry-After` or None."""
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(self.target.seconds))
        trace = with_trace({}, output.headers).items()
        headers = {
            **{name: value for name, value in trace if value.isascii() and value.isprintable()},
            **self.target.options.headers,
            "Content-Type": "application/json",
            "Idempotency-Key": output.message_id,
            "Message-Type": output.type,
            "Business-Id": quote(output.business_id),
            "Message-Sequence": str(output.sequence),
        }
        try:
            parts, name = self.target.parts, self.target.options.names.get(output.type)
            path = parts.path if name is None else f"{parts.path.rstrip('/')}/{quote(name)}"
            url, body = urlunsplit(parts._replace(path=path)), output.body.encode()
            posting = self._session.post(url, data=body, headers=headers, allow_redirects=False)
            async with posting as response:
                text = (await response.content.read(500)).decode(errors="replace")
                return response.status, f"{response.status} {text}".strip(), retry_after(response.headers)
        except (
            aiohttp.ClientConnectionError, aiohttp.ClientPayloadError, aiohttp.ClientResponseError, TimeoutError
        ) as error:  # fmt: skip
            return None, f"{type(error).__name__} {error}".strip(), None
        except (aiohttp.ClientError, ValueError) as error:  # the error's text may contain the URL or a header
            raise TargetError(
                f"The request to {self.target.name} is invalid ({type(error).__name__}): correct its URL or --header."
            ) from None


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds that `Retry-After` asks to wait, at most 120, or None if the header is missing or invalid."""
    text = headers.get("Retry-After", "").strip()
    if text.isdecimal():
        seconds = float(text)
    else:
        try:
            moment = parsedate_to_datetime(text)
        except (ValueError, TypeError):
            return None
        moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
        seconds = (moment - datetime.now(UTC)).total_seconds()
    return min(max(seconds, 0.0), 120.0)

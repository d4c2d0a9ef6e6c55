"""A receiver of HTTP requests that counts and misbehaves, in a process of its own.

Usage: python -m tests.publishing.receiver

It prints its port. The path of a request says how it answers: each letter is for one more attempt with the same key,
and the last one for all that follow. `/ok` takes everything.

  k  takes it        e  500            r  429 with Retry-After   b  400
  h  hangs           x  resets the connection
  l  takes it, and resets the connection: the answer is lost

`GET /counts` gives what was asked of it, `DELETE /counts` begins anew.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

from aiohttp import web

HANG_SECONDS = 30.0
RETRY_AFTER = "0"


class Receiver:
    """Honours the `Idempotency-Key`: what it took once has no second effect."""

    def __init__(self) -> None:
        self.attempts: dict[str, int] = {}
        self.effects: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []

    async def take(self, request: web.Request) -> web.StreamResponse:
        """Answer a request as its path says."""
        key = request.headers["Idempotency-Key"]
        body = await request.text()
        behaviour = request.path.strip("/").split("/")[0]
        letters = "k" if behaviour == "ok" else behaviour
        number = self.attempts.get(key, 0)
        self.attempts[key] = number + 1
        self.requests.append(key)
        letter = letters[min(number, len(letters) - 1)]
        if letter in "kl":
            self.effects.setdefault(key, {"path": request.path, "body": body, **_told(request)})
        return await self._answer(letter, request)

    async def _answer(self, letter: str, request: web.Request) -> web.StreamResponse:
        if letter == "k":
            return web.Response(text="taken")
        if letter == "h":
            await asyncio.sleep(HANG_SECONDS)
        if letter in "xl" and request.transport is not None:
            request.transport.abort()
        if letter == "r":
            return web.Response(status=429, text="patience", headers={"Retry-After": RETRY_AFTER})
        return web.Response(status=400 if letter == "b" else 500, text="no")

    async def counts(self, _: web.Request) -> web.Response:
        """Tell what was asked."""
        return web.json_response({"requests": self.requests, "effects": self.effects})

    async def forget(self, _: web.Request) -> web.Response:
        """Begin anew."""
        self.attempts.clear()
        self.effects.clear()
        self.requests.clear()
        return web.Response()


def _told(request: web.Request) -> dict[str, str]:
    names = ("Business-Id", "Message-Type", "Message-Sequence", "Authorization")
    trace = {"traceparent": request.headers["traceparent"]} if "traceparent" in request.headers else {}
    return {name: request.headers.get(name, "") for name in names} | trace


async def main() -> None:
    """Serve until standard input ends."""
    receiver, app = Receiver(), web.Application()
    app.router.add_get("/counts", receiver.counts)
    app.router.add_delete("/counts", receiver.forget)
    app.router.add_post("/{path:.*}", receiver.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


if __name__ == "__main__":
    asyncio.run(main())

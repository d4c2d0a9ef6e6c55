"""Servers that outputs are published to: an HTTP receiver that misbehaves, and brokers that speak Kafka's protocol.

`python -m tests.publishing.servers` runs the receiver until its input ends, and prints its port. Each letter in the
path of a request answers one more attempt with the same key; the last letter answers all later ones. `/ok` accepts
everything.

  k  accepts it      e  500            r  429 with Retry-After   b  400
  h  hangs           x  resets the connection
  l  accepts it, and resets the connection: the answer is lost

`GET /counts` returns the requests and their effects; `DELETE /counts` resets them.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from confluent_kafka import Producer

HANG_SECONDS = 30.0
_TOLD = ("Business-Id", "Message-Type", "Message-Sequence", "Authorization")


class Receiver:
    """Honours the `Idempotency-Key`: a repeated request has no second effect."""

    def __init__(self) -> None:
        self.attempts: dict[str, int] = {}
        self.effects: dict[str, dict[str, Any]] = {}
        self.requests: list[str] = []

    async def take(self, request: web.Request) -> web.StreamResponse:
        key, body, headers = request.headers["Idempotency-Key"], await request.text(), request.headers
        behaviour = request.path.strip("/").split("/")[0]
        letters = "k" if behaviour == "ok" else behaviour
        number = self.attempts.get(key, 0)
        self.attempts[key] = number + 1
        self.requests.append(key)
        letter = letters[min(number, len(letters) - 1)]
        if letter in "kl":
            told = {name: headers.get(name, "") for name in _TOLD}
            trace = {"traceparent": headers["traceparent"]} if "traceparent" in headers else {}
            self.effects.setdefault(key, {"path": request.path, "body": body, **told, **trace})
        if letter == "k":
            return web.Response(text="taken")
        if letter == "h":
            await asyncio.sleep(HANG_SECONDS)
        if letter in "xl" and request.transport is not None:
            request.transport.abort()
        if letter == "r":
            return web.Response(status=429, text="patience", headers={"Retry-After": "0"})
        return web.Response(status=400 if letter == "b" else 500, text="no")

    async def counts(self, _: web.Request) -> web.Response:
        return web.json_response({"requests": self.requests, "effects": self.effects})

    async def forget(self, _: web.Request) -> web.Response:
        for each in (self.attempts, self.effects, self.requests):
            each.clear()
        return web.Response()


async def main() -> None:
    receiver, app = Receiver(), web.Application()
    app.router.add_get("/counts", receiver.counts)
    app.router.add_delete("/counts", receiver.forget)
    app.router.add_post("/{path:.*}", receiver.take)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(runner.addresses[0][1], flush=True)
    await asyncio.get_running_loop().run_in_executor(None, sys.stdin.read)
    await runner.cleanup()


@dataclass(frozen=True)
class HttpReceiver:
    url: str

    def counts(self) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.url}/counts") as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def forget(self) -> None:
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/counts", method="DELETE")).close()


@contextmanager
def http_receiver() -> Iterator[HttpReceiver]:
    """Context manager that runs the receiver in its own process, because runners fork."""
    with subprocess.Popen(
        [sys.executable, "-m", "tests.publishing.servers"],
        cwd=Path(__file__).parents[2],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            yield HttpReceiver(f"http://127.0.0.1:{process.stdout.readline().strip()}")
        finally:
            process.stdin.close()
            process.wait(timeout=30)


@contextmanager
def postgres_server() -> Iterator[str]:
    """Context manager that yields the URL of a PostgreSQL database. Fails a test if PostgreSQL is not installed."""
    from tests.support.servers import MissingServersError, postgresql  # the receiver starts without them

    try:
        with postgresql() as url:
            yield url
    except MissingServersError as missing:
        pytest.fail(str(missing))


@contextmanager
def kafka_brokers() -> Iterator[str]:
    """Context manager that yields the addresses of librdkafka's mock cluster.

    The mock has no transactions: `read_committed` shows aborted records, too, and old producers are not fenced.
    """
    host = Producer({"bootstrap.servers": "mock", "test.mock.num.brokers": 3, "log_level": 0})
    yield ",".join(f"{each.host}:{each.port}" for each in host.list_topics(timeout=30).brokers.values())


if __name__ == "__main__":
    asyncio.run(main())

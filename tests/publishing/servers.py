"""The servers that outputs are published to, each in processes of its own on a free port of this machine."""

from __future__ import annotations

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

from tests.support.servers import MissingServersError, postgresql

REPOSITORY = Path(__file__).parents[2]


@dataclass(frozen=True)
class HttpReceiver:
    """A receiver of HTTP requests that runs."""

    url: str

    def counts(self) -> dict[str, Any]:
        """Return what was asked of it."""
        with urllib.request.urlopen(f"{self.url}/counts") as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def forget(self) -> None:
        """Let it begin anew."""
        urllib.request.urlopen(urllib.request.Request(f"{self.url}/counts", method="DELETE")).close()


@contextmanager
def _program(module: str) -> Iterator[str]:
    """Run a program that prints where it is, and ends by itself when its input does."""
    with subprocess.Popen(
        [sys.executable, "-m", module],
        cwd=REPOSITORY,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(timeout=30)


@contextmanager
def http_receiver() -> Iterator[HttpReceiver]:
    """Run the receiver of HTTP requests."""
    with _program("tests.publishing.receiver") as port:
        yield HttpReceiver(f"http://127.0.0.1:{port}")


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a PostgreSQL server; give the url of its database. Fails a test where there is none."""
    try:
        with postgresql() as url:
            yield url
    except MissingServersError as missing:
        pytest.fail(str(missing))


@contextmanager
def kafka_brokers() -> Iterator[str]:
    """Run brokers that speak Kafka's protocol; give their addresses."""
    with _program("tests.publishing.broker") as addresses:
        yield addresses

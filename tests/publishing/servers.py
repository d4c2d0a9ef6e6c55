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

from samples.orders.servers import MissingServersError, postgresql

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
def http_receiver() -> Iterator[HttpReceiver]:
    """Run the receiver of HTTP requests."""
    command = [sys.executable, "-m", "tests.publishing.receiver"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        port = process.stdout.readline().strip()
        try:
            yield HttpReceiver(f"http://127.0.0.1:{port}")
        finally:
            process.stdin.close()  # it ends by itself
            process.wait(timeout=30)


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
    command = [sys.executable, "-m", "tests.publishing.broker"]
    with subprocess.Popen(
        command, cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdin
        assert process.stdout
        try:
            yield process.stdout.readline().strip()
        finally:
            process.stdin.close()
            process.wait(timeout=30)

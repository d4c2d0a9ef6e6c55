"""The servers that outputs are published to, each in processes of its own on a free port of this machine."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.plugins.azurite import free_port

REPOSITORY = Path(__file__).parents[2]
_START_SECONDS = 60


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


def postgres_programs() -> Path:
    """Return the folder of PostgreSQL's programs: those of the package pgserver, or else Debian's."""
    package = find_spec("pgserver")
    places = (package.submodule_search_locations or []) if package else []
    found = [Path(each, "pginstall", "bin") for each in places]
    found += sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    for folder in found:
        if (folder / "initdb").exists():
            return folder
    pytest.fail("PostgreSQL is not installed: run `make setup-servers`, or `apt-get install postgresql`.")


@contextmanager
def postgres_server() -> Iterator[str]:
    """Run a PostgreSQL server, as another user if this one is root; give the url of its database."""
    programs, port = postgres_programs(), free_port()
    demoted: dict[str, Any] = {}
    if os.geteuid() == 0:
        demoted = {"user": "nobody", "group": "nogroup", "extra_groups": []}
    with tempfile.TemporaryDirectory(prefix="postgres-", ignore_cleanup_errors=True) as folder:
        if demoted:
            shutil.chown(folder, "nobody", "nogroup")
        data = f"{folder}/data"
        make: list[Any] = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            "postgres",
            "--auth=trust",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        subprocess.run(make, check=True, capture_output=True, cwd=folder, **demoted)
        serve: list[Any] = [
            programs / "postgres",
            "-D",
            data,
            "-F",
            "-h",
            "127.0.0.1",
            "-p",
            str(port),
            "-k",
            folder,
        ]
        with (
            Path(folder, "log").open("wb") as log,
            subprocess.Popen(serve, stdout=log, stderr=log, cwd=folder, **demoted) as process,
        ):
            try:
                url = f"postgresql://postgres@127.0.0.1:{port}/postgres"
                _wait_for_postgres(url, process)
                yield url
            finally:
                process.send_signal(signal.SIGINT)  # its fast shutdown
                process.wait(timeout=30)


def _wait_for_postgres(url: str, process: subprocess.Popen[Any]) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            psycopg.connect(url).close()
            return
        except psycopg.OperationalError:
            if process.poll() is not None or time.monotonic() > deadline:
                pytest.fail("The PostgreSQL server did not start.")
            time.sleep(0.05)


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

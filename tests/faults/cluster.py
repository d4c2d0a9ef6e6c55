"""A standalone cluster of Spark on loopback addresses: a master, workers, and a driver that stays for many batches.

One executor is slow, so that Spark runs its tasks on another one too. Nothing here is forked: a JVM would not survive
it.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, cast

import pyspark

from runtime.spark.java import find_java
from tests.plugins.azurite import REPOSITORY, free_port
from tests.support.campaigns import children, wait_until

ADDRESSES = ("127.0.0.2", "127.0.0.3", "127.0.0.4")
SLOW = "FAULTS_SLOW_SECONDS"
"""The environment variable by which the tasks of an executor know that they are to be slow."""

_HOME = Path(pyspark.__file__).parent
_EXECUTOR = b"CoarseGrainedExecutorBackend"
_PATIENCE_SECONDS = 120


@dataclass
class Cluster:
    """A cluster that runs: its workers, and its driver, which takes orders."""

    folder: Path
    master: str
    workers: list[subprocess.Popen[bytes]]
    driver: subprocess.Popen[str] = field(init=False)

    def __post_init__(self) -> None:
        self.driver = self._driver()

    def order(self, order: Mapping[str, object]) -> None:
        assert self.driver.stdin is not None
        self.driver.stdin.write(json.dumps(order) + "\n")
        self.driver.stdin.flush()

    def answer(self) -> dict[str, Any]:
        """Wait for the end of the batch: the last line of the error with which it ended, or None."""
        assert self.driver.stdout is not None
        line = self.driver.stdout.readline()
        if not line:
            log = (self.folder / "driver.log").read_text(errors="replace")[-2000:]
            raise RuntimeError(f"The driver has ended:\n{log}")
        return cast("dict[str, Any]", json.loads(line))

    def executors(self) -> list[int]:
        return [
            child
            for worker in self.workers
            for child in children(worker.pid)
            if _EXECUTOR in _read(child, "cmdline")
        ]

    def kill(self, executor: int) -> Path | None:
        """Send SIGKILL to an executor, and return the folder in which its Python workers go on; None if it is gone."""
        with suppress(OSError):
            folder = Path(f"/proc/{executor}/cwd").readlink()
            os.kill(executor, signal.SIGKILL)
            return folder
        return None

    def wait_for_orphans(self, folders: set[Path]) -> None:
        """Wait until no process of an executor that was killed is left."""
        if not wait_until(lambda: not folders & _working_folders(), _PATIENCE_SECONDS):
            raise TimeoutError(f"Processes of a killed executor still run in {folders & _working_folders()}.")

    def _driver(self) -> subprocess.Popen[str]:
        with (self.folder / "driver.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "tests.faults.cluster_driver", self.master, str(self.folder)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                cwd=REPOSITORY,
                env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
            )


@contextmanager
def running_cluster(folder: Path) -> Iterator[Cluster]:
    """Run a master and a worker on each address, the first of which is slow."""
    port, processes = free_port(), []
    try:
        processes.append(_daemon(folder, "master.Master", "--host", "127.0.0.1", "--port", str(port)))
        master = f"spark://127.0.0.1:{port}"
        for number, address in enumerate(ADDRESSES):
            place = ("--host", address, "--work-dir", str(folder / f"worker-{number}"))
            limits = ("--cores", "1", "--memory", "800m")
            slow = {SLOW: "0.3"} if number == 0 else {}
            processes.append(_daemon(folder, "worker.Worker", *place, *limits, master, **slow))
        cluster = Cluster(folder, master, processes[1:])
        processes.insert(0, cast("subprocess.Popen[bytes]", cluster.driver))
        yield cluster
    finally:
        for process in processes:
            process.terminate()
        for process in processes:
            try:
                process.wait(timeout=30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _daemon(folder: Path, name: str, *arguments: str, **environment: str) -> subprocess.Popen[bytes]:
    java = find_java()
    given = {
        **os.environ,
        "SPARK_HOME": str(_HOME),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "SPARK_MASTER_OPTS": "-Dspark.deploy.maxExecutorRetries=-1",
        "SPARK_NO_DAEMONIZE": "1",
        **({"JAVA_HOME": str(java)} if java else {}),
        **environment,
    }
    command = [str(_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{name}", "--webui-port", "0"]
    with (folder / f"{name}.log").open("ab") as log:
        return subprocess.Popen(
            [*command, *arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=given, cwd=folder
        )


def _read(pid: int, name: str) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/{name}").read_bytes()
    return b""


def _working_folders() -> set[Path]:
    found = set()
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            found.add((process / "cwd").readlink())
    return found

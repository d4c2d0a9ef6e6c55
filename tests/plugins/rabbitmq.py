"""RabbitMQ for the tests of consumers: one node on free ports of the loopback interface, without epmd.

A server that is not installed fails the test: what cannot be run is not tested.
"""

import asyncio
import os
import signal
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from tests.plugins.azurite import REPOSITORY, free_port, wait_for

START_SECONDS = 90
PROGRAM = REPOSITORY / ".make" / "rabbitmq" / "rabbitmq-server"


@contextmanager
def running_rabbitmq() -> Iterator[str]:
    """Run a node; give its url. What it holds is gone afterwards."""
    if not PROGRAM.exists():
        pytest.fail("RabbitMQ is not installed: run `make setup-servers`.")
    with tempfile.TemporaryDirectory(prefix="rabbitmq-") as folder:
        port, distribution = free_port(), free_port()
        own = {
            "HOME": folder,
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "RABBITMQ_NODENAME": f"test{port}@localhost",
            "RABBITMQ_NODE_PORT": str(port),
            "RABBITMQ_NODE_IP_ADDRESS": "127.0.0.1",
            "RABBITMQ_DIST_PORT": str(distribution),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": f"-start_epmd false -erl_epmd_port {distribution}",
            "RABBITMQ_MNESIA_BASE": f"{folder}/mnesia",
            "RABBITMQ_LOG_BASE": f"{folder}/log",
            "RABBITMQ_ENABLED_PLUGINS_FILE": f"{folder}/plugins",
            "RABBITMQ_CONFIG_FILE": f"{folder}/rabbitmq.conf",
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
        }
        log = Path(folder, "output")
        with log.open("ab") as file:
            process = subprocess.Popen(
                [PROGRAM], env={**os.environ, **own}, stdin=subprocess.DEVNULL, stdout=file, stderr=file,
                start_new_session=True,
            )  # fmt: skip
        url = f"amqp://guest:guest@127.0.0.1:{port}/"
        try:
            wait_for(lambda: asyncio.run(_answers(url)), process, log, START_SECONDS)
            yield url
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)  # of the session that was started for it
            process.wait()


async def _answers(url: str) -> bool:
    import aio_pika

    try:
        socket.create_connection(("127.0.0.1", int(url[:-1].rpartition(":")[2])), timeout=1).close()
        connection = await aio_pika.connect(url, timeout=2)
    except (TimeoutError, OSError, aio_pika.exceptions.AMQPError):
        return False
    await connection.close()
    return True


@pytest.fixture(scope="session")
def rabbitmq() -> Iterator[str]:
    """Give the url of a node that runs for the whole test session."""
    with running_rabbitmq() as url:
        yield url

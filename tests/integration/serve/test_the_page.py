"""The commands of docs/serve.md and docs/how-to/kafka-to-postgresql.md run as shown, on a broker of this machine."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from runtime.cli.commands.init import template
from samples.shooting_range.log import generate
from tests.docs.pasting import beside_the_project, marked, paste
from tests.plugins.azurite import free_port
from tests.plugins.kafka import KafkaServer, running_kafka
from tests.serve_kills.world import wait_until

PAGE = "docs/serve.md"
pytestmark = pytest.mark.thorough


@pytest.fixture
def server():
    with running_kafka() as found:
        found.make_topics("shots", "Hit", "Missed", partitions=1)
        producer = Producer({"bootstrap.servers": found.address})
        for row in generate(5, 100):
            headers = {"message_id": str(row["message_id"]), "type": row["type"]}
            producer.produce("shots", row["body"], json.loads(row["body"])["game_id"], headers=headers)
        producer.flush()
        yield found


def outputs(server: KafkaServer) -> int:
    own = {"bootstrap.servers": server.address, "group.id": "page", "auto.offset.reset": "earliest"}
    consumer, count = Consumer(own), 0
    consumer.subscribe(["Hit", "Missed"])
    while (record := consumer.poll(15 if not count else 3)) is not None:
        count += not record.error()
    consumer.close()
    return count


def run(command: Sequence[str], folder: Path, **options: Any) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, cwd=folder, env=beside_the_project(), **options)


def ready(port: int) -> dict[str, Any]:
    """Return the answer of the probe, empty when there is none yet."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            told: dict[str, Any] = json.load(answer)
    except OSError:
        return {}
    return told


def test_the_command(server, tmp_path):
    (command,) = marked(PAGE, "serve")
    port = free_port()
    command = command.replace("localhost:9092", server.address).replace("8080", str(port))
    with run(["bash", "-c", f"exec {command}"], tmp_path) as served:

        def is_done() -> bool:
            told = ready(port)
            return bool(told) and told["counts"].get("processed") == 100 and not told["held"]

        assert wait_until(is_done, 100)
        served.terminate()
        assert served.wait(60) == 0
    assert outputs(server) == 75


def test_the_program(server, tmp_path):
    (program,) = marked(PAGE, "consumer")
    (tmp_path / "program.py").write_text(
        program.replace("localhost:9092", server.address).replace("sleep(60)", "sleep(15)")
    )
    with run(["python", "program.py"], tmp_path) as served:
        assert served.wait(100) == 0
    assert outputs(server) == 75


HOW_TO = "docs/how-to/kafka-to-postgresql.md"


def test_from_kafka_to_postgresql(server, postgresql_url, tmp_path):
    # Given a project, and its log in a topic
    for name in ("raffle.py", "consistent.toml", "raffle.jsonl"):
        (tmp_path / name).write_text(template("raffle")[name])
    server.make_topics("entries", "Won", partitions=1)
    producer = Producer({"bootstrap.servers": server.address})
    for line in (tmp_path / "raffle.jsonl").read_text().splitlines():
        row = json.loads(line)
        headers = {"message_id": row["message_id"], "type": row["type"]}
        producer.produce("entries", json.dumps(row["body"]), row["body"]["raffle"], headers=headers)
    producer.flush()
    (command,), (query,) = marked(HOW_TO, "serve"), marked(HOW_TO, "query")
    url, port = "postgresql://USER:PASSWORD@localhost/raffle", free_port()
    command = command.replace("localhost:9092", server.address).replace("8080", str(port))

    # When the commands of the page are typed there
    with run(
        ["bash", "-c", command.replace(url, postgresql_url)], tmp_path, start_new_session=True
    ) as served:

        def is_done() -> bool:
            counts = ready(port).get("counts", {})
            return (counts.get("processed"), counts.get("duplicate"), counts.get("published")) == (4, 3, 1)

        try:
            assert wait_until(is_done, 100)
        finally:
            os.killpg(served.pid, signal.SIGTERM)
    shown = paste(query, tmp_path, {**beside_the_project(), "RAFFLE_STORE": postgresql_url})

    # Then each message counted once: Edsger entered after the draw
    assert 'spring,"{""names"":[""Edsger""]}"' in shown.replace(" ", "")

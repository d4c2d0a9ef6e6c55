"""The commands of docs/serve.md and docs/how-to/kafka-to-postgresql.md run as shown, on a broker of this machine."""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from collections.abc import Sequence
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer

from runtime.cli.commands.project import template
from samples.shooting_range.log import generate
from tests.docs.pasting import beside_the_project, marked, paste
from tests.plugins.azurite import free_port
from tests.plugins.kafka import KafkaServer, running_kafka
from tests.support.campaigns import wait_until

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


def run(command: Sequence[str], folder: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(command, cwd=folder, env=beside_the_project())


def serve(commands: str, server: KafkaServer, folder: Path, **counts: int) -> None:
    """Run the commands of a page until the consumer has these counts, and end it."""
    port = free_port()
    commands = commands.replace("localhost:9092", server.address).replace("8080", str(port))
    with run(["bash", "-c", commands.replace("consistent serve", "exec consistent serve")], folder) as served:

        def is_done() -> bool:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
                    told = json.load(answer)
            except OSError:
                return False
            return counts.items() <= told["counts"].items() and not told["held"]

        try:
            assert wait_until(is_done, 100)
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
                lags = re.findall(
                    r'^consistent_source_lag\{partition="\S+"\} (\d+)$', answer.read().decode(), re.MULTILINE
                )
            assert set(lags) == {"0"}
        finally:
            served.terminate()
        assert served.wait(60) == 0


def test_the_command(server, tmp_path):
    (command,) = marked(PAGE, "serve")
    serve(command, server, tmp_path, processed=100)
    assert outputs(server) == 75


def test_the_program(server, tmp_path):
    (program,) = marked(PAGE, "consumer")
    (tmp_path / "program.py").write_text(
        program.replace("localhost:9092", server.address).replace("sleep(60)", "sleep(15)")
    )
    with run(["python", "program.py"], tmp_path) as served:
        assert served.wait(100) == 0
    assert outputs(server) == 75


def test_from_kafka_to_postgresql(server, postgresql_url, tmp_path):
    page, url = "docs/how-to/kafka-to-postgresql.md", "postgresql://USER:PASSWORD@localhost/raffle"
    files = template("raffle")
    for name in ("raffle.py", "consistent.toml"):
        (tmp_path / name).write_text(files[name])
    server.make_topics("entries", "Won", partitions=1)
    producer = Producer({"bootstrap.servers": server.address})
    for row in map(json.loads, files["raffle.jsonl"].splitlines()):
        headers = {"message_id": row["message_id"], "type": row["type"]}
        producer.produce("entries", json.dumps(row["body"]), row["body"]["raffle"], headers=headers)
    producer.flush()
    (commands,), (query,) = marked(page, "serve"), marked(page, "query")

    serve(commands.replace(url, postgresql_url), server, tmp_path, processed=4, duplicate=3, published=1)
    shown = paste(query, tmp_path, {**beside_the_project(), "RAFFLE_STORE": postgresql_url})

    assert 'spring,"{""names"":[""Edsger""]}"' in shown.replace(" ", "")

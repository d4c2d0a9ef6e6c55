"""Live queues from Kafka to Kafka, beside consumers written by hand: `python -m benchmarks serve`.

Each contender gets a topic of three partitions for each number of keys. Messages/s are those of a backlog, from the
first output to the last. Then a second topic is sent half as many a second, at most `--most`: p50 and p99 are from
before a message is produced until a `read_committed` reader has its output. Last, the consumer is killed and started
again: seconds until the next output, with sessions of three seconds, which the broker awaits first.
"""

from __future__ import annotations

import json
import math
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self

import typer
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console
from rich.table import Table

from benchmarks.marks import check_marks, put_parts
from tests.plugins.azurite import running_azurite
from tests.plugins.kafka import KafkaServer, running_kafka
from tests.support.servers import postgresql_server

PART = "serve"
PARTITIONS = 3
SESSION = "session.timeout.ms=3000&heartbeat.interval.ms=300&transaction.timeout.ms=1000"
CONTENDERS = ("consistent", "consistent-postgres", "consistent-azurite", "by-hand", "dbos", "bare")
TITLES = (
    "consumer",
    "keys",
    "messages/s",
    "times by-hand",
    "p50 ms",
    "p99 ms",
    "at messages/s",
    "s after SIGKILL",
)
_WAIT_SECONDS = 30
_WARM = 30  # messages before those that are paced, for the connections


class Figures(NamedTuple):
    """What was measured of a contender with a number of keys."""

    rate: float
    p50: float
    p99: float
    sent_rate: float
    recovery: float


class Reader(threading.Thread):
    """Notes when each output arrives, by account and number."""

    def __init__(self, server: KafkaServer, topic: str) -> None:
        super().__init__(daemon=True)
        own = {"bootstrap.servers": server.address, "group.id": "reader", "isolation.level": "read_committed"}
        self._consumer = Consumer({**own, "fetch.wait.max.ms": 5})
        self._consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        self.arrived: dict[tuple[str, int], float] = {}
        self._ends = False

    def run(self) -> None:
        """Read until the end of the block."""
        while not self._ends:
            for record in self._consumer.consume(10_000, 0.005):
                if not record.error():
                    body = json.loads(record.value() or b"")
                    self.arrived.setdefault((body["account"], body["number"]), time.perf_counter())
        self._consumer.close()

    def wait(self, count: int, seconds: float = math.inf) -> None:
        """Wait for so many outputs, `seconds` after the first at most."""
        deadline = time.perf_counter() + _WAIT_SECONDS
        while len(self.arrived) < count:
            first = next(iter(self.arrived.values()), math.inf)
            if time.perf_counter() > min(deadline, first + seconds):
                return
            time.sleep(0.01)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ends = True
        self.join()


class Sender:
    """Produces messages, spread over the keys in turn, and notes when."""

    def __init__(self, server: KafkaServer, topic: str, keys: int) -> None:
        self._producer = Producer({"bootstrap.servers": server.address, "linger.ms": 0})
        self._topic, self._keys = topic, keys
        self.sent: dict[tuple[str, int], float] = {}

    def send(self, count: int) -> None:
        """Send the next messages."""
        for _ in range(count):
            number, key = divmod(len(self.sent), self._keys)
            account = f"account-{key}"
            self.sent[account, number + 1] = time.perf_counter()
            headers: Any = {"message_id": f"{account}-{number}", "type": "Add"}
            body = json.dumps({"account": account, "number": number + 1})
            self._producer.produce(self._topic, body, account, headers=headers)
            if not len(self.sent) % 10_000:
                self._producer.flush()
        self._producer.flush()

    def pace(self, rate: float, seconds: float) -> None:
        """Send at a rate, in steps of two milliseconds or more."""
        begun, sent = time.perf_counter(), 0
        while (passed := time.perf_counter() - begun) < seconds:
            due = int(passed * rate) - sent
            self.send(due)
            sent += due
            time.sleep(0.002)


@contextmanager
def running(name: str, server: KafkaServer, topic: str, store: str, folder: Path) -> Iterator[None]:
    """Run a contender as a process; kill it at the end."""
    command = [sys.executable, "-m", "benchmarks.peers.queues", name, server.address, topic, str(folder)]
    if name.startswith("consistent"):
        broker = f"kafka://{server.address}"
        command = [sys.executable, "-m", "runtime", "serve", "--app", "tests.serve_kills.apps:app"]
        command += ["--from", f"{broker}/{topic}?group={topic}&{SESSION}", "--publish", broker]
        command += ["--map", f"Added={topic}-outputs", "--store", store, "--table", topic.replace("-", "")]
    with (folder / "log").open("ab") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            yield
        finally:
            has_ended = process.poll() is not None
            process.kill()
            if has_ended:
                raise RuntimeError((folder / "log").read_text()[-2_000:])


def measure(  # noqa: PLR0917
    name: str, server: KafkaServer, store: str, keys: int, count: int, seconds: float, most: float
) -> Figures:
    """Measure one contender on topics of its own."""
    topic = f"{name}-{keys}"
    topics = [topic, f"{topic}-paced"]
    server.make_topics(*topics, *(f"{each}-outputs" for each in topics), partitions=PARTITIONS)
    with tempfile.TemporaryDirectory() as folder, Reader(server, f"{topic}-outputs") as reader:
        sender = Sender(server, topic, keys)
        sender.send(count)
        with running(name, server, topic, store.format(folder), Path(folder)):
            reader.wait(count, seconds)
        times = sorted(reader.arrived.values())
        rate = (len(times) - 1) / (times[-1] - times[0]) if len(times) > 1 else 0.0
    topic = topics[1]
    with tempfile.TemporaryDirectory() as folder, Reader(server, f"{topic}-outputs") as reader:
        sender, paced = Sender(server, topic, keys), min(rate / 2, most)
        sender.send(warm := min(keys, _WARM))
        with running(name, server, topic, store.format(folder), Path(folder)):
            reader.wait(warm)
            sender.pace(paced, seconds)
            reader.wait(len(sender.sent))
        late = [
            reader.arrived[each] - at
            for each, at in list(sender.sent.items())[warm:]
            if each in reader.arrived
        ]
        shares = statistics.quantiles(late, n=100) if len(late) > 1 else [math.nan] * 100
        p50, p99 = 1_000 * shares[49], 1_000 * shares[98]
        killed = time.perf_counter()
        with running(name, server, topic, store.format(folder), Path(folder)):
            before = len(reader.arrived)
            sender.send(1)
            reader.wait(before + 1)
            recovery = max(reader.arrived.values()) - killed
    return Figures(rate, p50, p99, paced, recovery)


def main(  # noqa: PLR0917 - options
    keys: Annotated[list[int] | None, typer.Option(help="Business objects; may be repeated.")] = None,
    only: Annotated[list[str] | None, typer.Option(help="A contender; may be repeated.")] = None,
    messages: Annotated[int, typer.Option(min=100, help="Of the backlog.")] = 60_000,
    seconds: Annotated[
        float, typer.Option(min=1, help="Of a backlog at most, and of the paced messages.")
    ] = 8,
    most: Annotated[float, typer.Option(min=10, help="Paced messages/s at most.")] = 5_000,
    document: Annotated[Path | None, typer.Option(help="The document to put the table into.")] = None,
) -> None:
    """Measure each contender, and print a table."""
    if document is not None:
        check_marks(document, [PART])
    rows = list[Sequence[str]]()
    servers = running_kafka(), running_azurite("table"), postgresql_server()
    with servers[0] as server, servers[1] as azurite, servers[2] as postgres:
        stores = {
            "consistent-azurite": f"azurite://{azurite}",
            "consistent-postgres": postgres.url,
        }
        for count in keys or (1, 50, 1_000):
            measured = dict[str, Figures]()
            for name in only or CONTENDERS:
                typer.echo(f"{name}, {count} keys", err=True)
                store = stores.get(name, "sqlite:///{}/store.db")
                measured[name] = measure(name, server, store, count, messages, seconds, most)
                typer.echo(str(measured[name]), err=True)
            for name, each in measured.items():
                times = f"{each.rate / measured['by-hand'].rate:.1f}" if "by-hand" in measured else ""
                figures = (
                    f"{each.p50:.0f}",
                    f"{each.p99:.0f}",
                    f"{each.sent_rate:,.0f}",
                    f"{each.recovery:.1f}",
                )
                rows.append((name, f"{count:,}", f"{each.rate:,.0f}", times, *figures))
    table = Table(*TITLES)
    for row in rows:
        table.add_row(*row)
    Console(width=160, highlight=False).print(table)
    if document is not None:
        lines = ["| " + " | ".join(TITLES) + " |", "|---|" + "---:|" * (len(TITLES) - 1)]
        put_parts(
            document, {PART: "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"}
        )


if __name__ == "__main__":
    typer.run(main)

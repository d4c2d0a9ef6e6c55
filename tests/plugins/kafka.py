"""Apache Kafka for the tests of consumers: one node of KRaft, on free ports of the loopback interface.

A server that is not installed fails the test: what cannot be run is not tested.
"""

import base64
import os
import shutil
import signal
import subprocess
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.plugins.azurite import REPOSITORY, START_SECONDS, free_port, wait_for

JARS = REPOSITORY / ".make" / "kafka"
SETTINGS = """
process.roles=broker,controller
node.id={node}
controller.quorum.voters={voters}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={folder}/data
auto.create.topics.enable=false
offsets.topic.replication.factor={replicas}
offsets.topic.num.partitions=1
transaction.state.log.replication.factor={replicas}
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
transaction.abort.timed.out.transaction.cleanup.interval.ms=500
group.initial.rebalance.delay.ms=0
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
group.min.session.timeout.ms=1000
log.cleaner.backoff.ms=200
"""


@dataclass
class KafkaServer:
    """A broker that keeps its data when it is killed, and can be started again."""

    folder: Path
    port: int = field(default_factory=free_port)
    controller: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None
    node: int = 1
    voters: str = ""  # of a cluster of several nodes
    replicas: int = 1

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def format(self, cluster: str) -> None:
        """Format the storage."""
        text = SETTINGS.format(
            port=self.port,
            controller=self.controller,
            folder=self.folder,
            node=self.node,
            voters=self.voters or f"{self.node}@127.0.0.1:{self.controller}",
            replicas=self.replicas,
        )
        (self.folder / "server.properties").write_text(text)
        command = ["kafka.tools.StorageTool", "format", "-t", cluster, "-c", self._settings]
        subprocess.run([*_java(), *command], check=True, capture_output=True, timeout=START_SECONDS)

    def launch(self) -> None:
        """Start the broker."""
        with (self.folder / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_java(), "kafka.Kafka", self._settings], stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def start(self) -> None:
        """Start the broker, and wait until it answers."""
        self.launch()
        self.wait()

    def wait(self) -> None:
        """Wait until a started broker answers."""
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        def answers() -> bool:
            try:
                admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
                return bool(admin.list_topics(timeout=1).brokers)
            except KafkaException:
                return False

        assert self.process is not None
        wait_for(answers, self.process, self.folder / "log")

    def kill(self, number: int = signal.SIGKILL) -> None:
        """End the broker as a crash does."""
        if self.process is not None:
            self.process.send_signal(number)
            self.process.wait()
            self.process = None

    def make_topics(self, *names: str, partitions: int = 3) -> None:
        """Make topics, and wait until they have a leader."""
        from confluent_kafka.admin import AdminClient
        from confluent_kafka.cimpl import NewTopic

        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        wanted = [NewTopic(each, partitions, self.replicas) for each in names]
        for made in admin.create_topics(wanted).values():
            made.result()

    @property
    def _settings(self) -> str:
        return str(self.folder / "server.properties")


def _java() -> Sequence[str]:
    home = os.environ.get("JAVA_HOME")
    java = shutil.which("java") or (home and shutil.which(f"{home}/bin/java"))
    if not java or not list(JARS.glob("kafka_2.13-*.jar")):
        pytest.fail("Apache Kafka is not installed: run `make setup-servers`.")
    quick = ("-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData")
    return [java, *quick, "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-cp", f"{JARS}/*"]


@contextmanager
def running_kafka() -> Iterator[KafkaServer]:
    """Run a broker; its data is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder:
        server = KafkaServer(Path(folder))
        server.format(_cluster())
        server.start()
        try:
            yield server
        finally:
            server.kill()


@contextmanager
def running_cluster(nodes: int = 3) -> Iterator[Sequence[KafkaServer]]:
    """Run several brokers as one cluster, which goes on without one of them."""
    with tempfile.TemporaryDirectory(prefix="kafka-") as folder:
        servers = [KafkaServer(Path(folder, str(number)), node=number) for number in range(1, nodes + 1)]
        voters, cluster = ",".join(f"{each.node}@127.0.0.1:{each.controller}" for each in servers), _cluster()
        for each in servers:
            each.folder.mkdir()
            each.voters, each.replicas = voters, nodes
            each.format(cluster)
        try:
            for each in servers:
                each.launch()
            for each in servers:
                each.wait()
            yield servers
        finally:
            for each in servers:
                each.kill()


def _cluster() -> str:
    return base64.b64encode(uuid.uuid4().bytes, b"AB").decode().rstrip("=")


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaServer]:
    """Give a broker that runs for the whole test session."""
    with running_kafka() as server:
        yield server

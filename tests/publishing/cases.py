"""The targets under test, each with how it is made empty and how it is looked into."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg

from runtime.publishing import DeliverySettings, OutgoingMessage
from runtime.publishing.publisher import Publisher, Target, TargetOptions
from runtime.publishing.targets.choice import open_target
from runtime.publishing.targets.kafka import MARKERS
from tests.plugins.kafka import KafkaServer
from tests.publishing.kills import IDS, Counts
from tests.publishing.servers import HttpReceiver
from tests.support.topics import committed

_COLUMNS = (
    "type TEXT, business_id TEXT, handler TEXT, body TEXT, sequence BIGINT, enqueued_at TEXT, "
    "headers TEXT, batch_id TEXT"
)


@dataclass
class SqliteCase:
    """An SQLite file, in which a trigger counts every insert and update."""

    file: Path
    url: str = ""

    def prepare(self) -> None:
        for file in self.file.parent.glob(f"{self.file.name}*"):
            file.unlink()
        with closing(sqlite3.connect(self.file)) as connection:
            connection.execute("CREATE TABLE written (id TEXT)")
            for name in ("Hit", "Missed"):
                connection.execute(f'CREATE TABLE "{name}" (message_id TEXT PRIMARY KEY, {_COLUMNS})')
                for verb in ("INSERT", "UPDATE"):
                    connection.execute(
                        f'CREATE TRIGGER {name}_{verb} AFTER {verb} ON "{name}" '
                        f"BEGIN INSERT INTO written VALUES (new.message_id); END"
                    )
            connection.commit()

    def target(self, before_call: Callable[[], Any]) -> Target:
        return open_target(f"sqlite:///{self.file}")

    def count(self) -> Counts:
        with closing(sqlite3.connect(self.file)) as connection:
            return counts_of(row[0] for row in connection.execute("SELECT id FROM written ORDER BY rowid"))


@dataclass
class PostgresCase:
    """A PostgreSQL database, in which a trigger counts every insert and update."""

    url: str

    def prepare(self) -> None:
        with psycopg.connect(self.url) as connection:
            connection.execute("DROP SCHEMA public CASCADE")
            connection.execute("CREATE SCHEMA public")
            connection.execute("CREATE TABLE written (at BIGSERIAL, id TEXT)")
            connection.execute(
                "CREATE FUNCTION note() RETURNS TRIGGER AS "
                "'BEGIN INSERT INTO written (id) VALUES (NEW.message_id); RETURN NEW; END' LANGUAGE plpgsql"
            )
            types = _COLUMNS.replace("body TEXT", "body JSON").replace("headers TEXT", "headers JSON")
            for name in ("Hit", "Missed"):
                connection.execute(f'CREATE TABLE "{name}" (message_id TEXT PRIMARY KEY, {types})'.encode())
                connection.execute(
                    f'CREATE TRIGGER noted AFTER INSERT OR UPDATE ON "{name}" '
                    f"FOR EACH ROW EXECUTE FUNCTION note()".encode()
                )

    def target(self, before_call: Callable[[], Any]) -> Target:
        return open_target(self.url)

    def count(self) -> Counts:
        with psycopg.connect(self.url) as connection:
            return counts_of(row[0] for row in connection.execute("SELECT id FROM written ORDER BY at"))


@dataclass
class HttpCase:
    """A receiver that honours the key, and answers each first request with an error, or a lost answer."""

    receiver: HttpReceiver
    behaviour: str = "lk"

    def prepare(self) -> None:
        self.receiver.forget()

    def target(self, before_call: Callable[[], Any]) -> Target:
        target: Any = open_target(f"{self.receiver.url}/{self.behaviour}")
        target.pace.take = lambda: before_call() or 0.0  # called before each request
        found: Target = target
        return found

    def count(self) -> Counts:
        found = self.receiver.counts()
        effects = counts_of(found["effects"])
        again = len(found["requests"]) - len(set(found["requests"]))
        return effects + Counts(recognised=again)


@dataclass
class FunctionCase:
    """A function that appends to a file what it is called with; its keys are in an SQLite file, or a Redis."""

    file: Path
    settings: DeliverySettings
    keys: str = ""
    run: int = 0

    def prepare(self) -> None:
        self.run += 1  # with keys of its own
        self.file.write_text("")

    def target(self, before_call: Callable[[], Any]) -> Target:
        def send(message: OutgoingMessage) -> None:
            before_call()
            with self.file.open("a") as file:
                file.write(f"{message.message_id}\n")
                file.flush()
                os.fsync(file.fileno())
            before_call()

        return open_target(
            "tests.x:send",
            TargetOptions(
                send=send,
                settings=self.settings,
                timeout=self.settings.lock_limit / 2,
                keys=self.keys or f"sqlite:///{self.file}-keys.db",
                keys_table=f"keys{self.run}",
            ),
        )

    def count(self) -> Counts:
        return counts_of(self.file.read_text().split())


@dataclass
class KafkaCase:
    """A cluster of Apache Kafka, whose topics are read with `read_committed`."""

    servers: Sequence[KafkaServer]
    run: int = 0

    def __post_init__(self) -> None:
        self.servers[0].make_topics(MARKERS, partitions=1)

    @property
    def brokers(self) -> str:
        return ",".join(each.address for each in self.servers)

    def prepare(self) -> None:
        self.run += 1  # in topics of its own
        up = next(each for each in self.servers if each.process is not None)
        up.make_topics(*self.topics().values(), partitions=2)

    def target(self, before_call: Callable[[], Any]) -> Target:
        target: Any = open_target(f"kafka://{self.brokers}", TargetOptions(names=self.topics()))
        made = target.publisher

        def publisher() -> Publisher:
            found = made()
            begun = found._begun
            found._begun = lambda: (before_call(), begun())[1]  # called before each request to the brokers
            publisher: Publisher = found
            return publisher

        target.publisher = publisher
        found: Target = target
        return found

    def topics(self) -> dict[str, str]:
        return {name: f"{name}-{self.run}" for name in ("Hit", "Missed")}

    def count(self) -> Counts:
        # There is a topic for each type, so order is that within each.
        found = [records(self.brokers, topic) for topic in self.topics().values()]
        each = [counts_of(ids) for ids in found]
        return Counts(
            lost=len(IDS - {id_ for ids in found for id_ in ids}),
            duplicates=sum(some.duplicates for some in each),
            disorder=sum(some.disorder for some in each),
        )


@dataclass
class KafkaWithoutABroker(KafkaCase):
    """In it one broker after another is killed where others kill the runner. It is started again for the next run."""

    def strike(self) -> None:
        process = self.servers[self.run % len(self.servers)].process
        assert process is not None
        os.kill(process.pid, signal.SIGKILL)

    def prepare(self) -> None:
        for each in self.servers:
            if each.process is not None and each.process.poll() is not None:
                each.start()
        super().prepare()


AT_MOST_ONCE = DeliverySettings(lock_limit=timedelta(seconds=4))
AT_LEAST_ONCE = DeliverySettings(frozenset("*"), lock_limit=timedelta(seconds=1))


def counts_of(ids: Iterable[str]) -> Counts:
    """Count what is lost, what is there once too often, and games whose outputs came in another order."""
    listed = list(ids)
    found = Counter(listed)
    first = list(dict.fromkeys(listed))
    by_game: dict[str, list[str]] = {}
    for each in first:
        by_game.setdefault(each.partition("-")[0], []).append(each)
    return Counts(
        lost=len(IDS - found.keys()),
        duplicates=len(listed) - len(found.keys() & IDS),
        disorder=sum(some != sorted(some) for some in by_game.values()),
    )


def records(brokers: str, topic: str) -> list[str]:
    """Return the ids of the outputs in a topic, as a reader with `read_committed` sees them."""
    return [dict(each.headers() or ())["message_id"].decode() for each in committed(brokers, topic)]

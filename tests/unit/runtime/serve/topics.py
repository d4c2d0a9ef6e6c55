"""A topic and a queue in memory, and a target that can be away: what a consumer sees of a broker."""

from __future__ import annotations

import asyncio
import json
import urllib.error
import urllib.request
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from typing import Any

import pytest

from eventstore import InterceptedTable, Table
from handlers import App, Context, Handler, Message, State, handles
from runtime.errors import TargetUnavailableError
from runtime.publishing.publisher import CommittedOutput
from runtime.serve import Consumer, ServeOptions
from runtime.serve.messages import Lane, Rebalances, Received, Settlement, read_message
from tests.unit.runtime.tables import memory_table


class Add(Message):
    account: str
    number: int


class Added(Message):
    account: str
    number: int
    count: int


class Account(State):
    count: int = 0


class Accounts(Handler[Account]):
    @handles(by="account")
    def add(self, state: Account, message: Add, context: Context) -> Account:
        if message.number < 0:
            raise ValueError("not below nothing")
        count = state.count + 1
        context.publish(Added(account=message.account, number=message.number, count=count))
        return Account(count=count)


app = App(Accounts)


def line(id_: str, account: str, number: int = 1) -> bytes:
    body = {"account": account, "number": number}
    return json.dumps({"message_id": id_, "type": "Add", "body": body}).encode()


class Topic:
    """A partition for each lane: what is not acknowledged is read again by the next consumer."""

    name = "topic"

    def __init__(self, *lanes: str, origin: str | None = "topic:cluster/group") -> None:
        self.origin = origin
        self.records: dict[str, list[bytes | None]] = {lane: [] for lane in lanes or ("entries/0",)}
        self.committed = dict.fromkeys(self.records, 0)
        self.log: list[str] = []
        self.reads: list[int] = []
        self.most = 10_000  # how many are read at once

    def send(self, *lines: bytes, lane: str = "entries/0") -> None:
        self.records[lane] += lines

    async def open(self, rebalances: Rebalances) -> None:
        self.lanes = {name: Lane(name, self.committed[name]) for name in self.records}
        self.position = dict(self.committed)
        rebalances.assigned(list(self.lanes.values()))

    async def read(self, most: int, linger: float) -> Sequence[Received]:
        self.reads.append(most)
        most = min(most, self.most)
        found: list[Received] = []
        for name, lane in self.lanes.items():
            for content in self.records[name][self.position[name] :][: most - len(found)]:
                if content is not None:
                    offset = self.position[name]
                    found.append(read_message(content, f"{name}/{offset}", lane=lane, offset=offset))
                self.position[name] += 1
        await asyncio.sleep(0)
        return found

    async def acknowledge(self, received: Sequence[Received]) -> None:
        for each in received:
            assert each.lane
            self.committed[each.lane.name] = each.offset + 1
        self.log.append(f"committed {sum(self.committed.values())}")

    async def close(self) -> None:
        self.log.append("closed")


class Target:
    """Keeps what it is sent, unless it is away."""

    def __init__(self, log: list[str]) -> None:
        self.sent: list[CommittedOutput] = []
        self.failures = 0
        self.before: Callable[[], object] = lambda: None
        self._log = log

    async def send(self, outputs: Sequence[CommittedOutput]) -> None:
        self.before()
        if self.failures:
            self.failures -= 1
            self._log.append("away")
            raise TargetUnavailableError("it does not answer", 0.001)
        self.sent += outputs
        self._log.append(f"sent {len(outputs)}")

    def numbers(self) -> list[tuple[str, int, int]]:
        """Return account, number and count of what was sent."""
        return [tuple(json.loads(each.body).values()) for each in self.sent]


class World:
    """A topic, a table and a target, with one consumer after another."""

    def __init__(self, *lanes: str, table: Table | None = None) -> None:
        self.topic = Topic(*lanes)
        self.table = table or memory_table()
        self.target = Target(self.topic.log)
        self.letters = Target([])
        self.options = ServeOptions(linger_ms=0)
        self.has_queue_for_letters = True
        self.app = app

    def hold(self, account: str) -> asyncio.Event:
        """Return an event until which the store does not answer requests of an account."""
        answers = asyncio.Event()

        async def wait(name: str, key: str, _: int) -> None:
            if key == f"Accounts-{account}":
                await answers.wait()

        self.table = InterceptedTable(self.table, before=wait)
        return answers

    def consumer(self) -> Consumer:
        to = "stdout:" if self.has_queue_for_letters else None
        options = replace(self.options, dead_letters=to)
        consumer = Consumer(self.app, table=self.table, source=self.topic, options=options)
        consumer._settlement = Settlement("target", self.topic, self.target.send)
        consumer._letters = Settlement("letters", None, self.letters.send)
        return consumer

    def consume(self, during: Callable[[Consumer], Coroutine[Any, Any, object]] | None = None) -> Consumer:
        """Run a consumer until all is acknowledged, or `during` ends."""

        async def run() -> Consumer:
            async with asyncio.timeout(60), self.consumer() as consumer:
                await (self.until_all_is_acknowledged() if during is None else during(consumer))
            return consumer

        return asyncio.run(run())

    async def until_all_is_acknowledged(self) -> None:
        topic = self.topic
        await until(lambda: topic.committed == {name: len(of) for name, of in topic.records.items()})


def probe(log: pytest.LogCaptureFixture, path: str) -> tuple[int, str, str]:
    """Ask a consumer, which has logged its port. Return status, type and text of the answer."""
    (port,) = [each.message.rpartition(":")[2] for each in log.records if "probes" in each.message]
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
            return answer.status, answer.headers["Content-Type"], answer.read().decode()
    except urllib.error.HTTPError as refused:
        return refused.code, "", refused.read().decode()


async def until(condition: Callable[[], object]) -> None:
    """Let others run until something holds."""
    while not condition():  # noqa: ASYNC110 - what others do is looked at
        await asyncio.sleep(0.001)

"""The consumer: folds what it reads ahead, publishes before it acknowledges, and loses nothing when it is disturbed."""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, drive
from handlers import App
from runtime.algorithms.state_based.truncation import TruncationChoices
from runtime.clock import system_clock
from runtime.dead_letters import Selection, find_letters
from runtime.errors import BatchRefusedError, TargetUnavailableError, UsageError
from runtime.ledger.batch import OpenBatches
from runtime.ledger.ledger import Ledger
from runtime.ledger.settings import TableSettings
from runtime.publishing.publisher import CommittedOutput, OneByOnePublisher, TargetOptions
from runtime.serve import Consumer, ServeOptions
from runtime.serve.messages import (
    Rebalances,
    Received,
    Settlement,
    SourceUnavailableError,
    Stage,
    open_settlement,
)
from runtime.versions.run import Commit
from runtime.versions.stream import versions
from samples.shooting_range import app as shooting_range
from tests.unit.runtime.serve.topics import Accounts, World, line, probe, until
from tests.unit.runtime.tables import memory_table

DAY = 86_400_000_000


def test_messages_of_a_business_object_share_one_query_and_one_transaction():
    counted = InterceptedTable(memory_table())
    world = World(table=counted)
    world.topic.send(*(line(f"m{number}", "anna", number) for number in range(100)))

    consumer = world.consume()

    assert world.target.numbers() == [("anna", number, number + 1) for number in range(100)]
    assert consumer.counts == {"processed": 100, "published": 100}
    looks, claims = 2, 1  # at the ledger, when the consumer starts
    assert (counted.counts["query"] - looks, counted.counts["transact"] - claims) == (1, 1)


def test_small_business_objects_share_one_query_and_one_commit(monkeypatch):
    # Given messages of many objects on a store of this machine, some of which are refused, known, or twice
    world, calls = World(), Counter[str]()
    world.topic.send(line("m5", "account 5"))
    world.consume()

    def counted(name: str) -> Any:
        call = getattr(world.table, name)

        def count(*given: Any, **named: Any) -> Any:
            calls[name] += 1
            return call(*given, **named)

        return count

    for name in ("query_each", "transact_each"):
        monkeypatch.setattr(world.table, name, counted(name))
    world.topic.send(*(line(f"m{number}", f"account {number}") for number in range(100)))
    world.topic.send(line("m7", "account 7"), line("m100", "account 8", -1), line("m101", "account 9", 2))

    # When they are read at once
    consumer = world.consume()

    # Then the others are not looked at one by one, and the order of each object is kept
    assert consumer.counts == {"processed": 100, "duplicate": 2, "dead_letter": 1, "published": 100}
    assert calls["query_each"] == 1
    assert calls["transact_each"] <= 3
    assert len(world.target.sent) == len({each.message_id for each in world.target.sent}) == 101
    made = drive(versions(world.table, "Accounts", "account 9"))
    assert [each.batch for each in made or ()] == ["@topic:cluster/group entries/0:10,103"] * 2


def test_large_business_objects_beside_small_ones_keep_their_order():
    world = World()
    world.options = ServeOptions(linger_ms=0, fold=90)
    large = [line(f"m{number}", "anna", number) for number in range(200)]
    small = [line(f"n{number}", "bert", number) for number in range(3)]
    world.topic.send(*large[:100], *small, *large[100:])

    world.consume()

    numbers = world.target.numbers()
    assert [each for each in numbers if each[0] == "anna"] == [("anna", n, n + 1) for n in range(200)]
    assert [each for each in numbers if each[0] == "bert"] == [("bert", n, n + 1) for n in range(3)]


def test_an_offset_waits_for_those_before_it():
    # Given a message whose store does not answer, and another one behind it
    world = World()
    answers = world.hold("slow")
    world.topic.send(line("m1", "slow"), line("m2", "quick"))

    async def during(consumer: Consumer) -> None:
        await until(lambda: consumer.counts.get("processed") == 1)
        for _ in range(20):
            await asyncio.sleep(0)

        # Then nothing is published nor acknowledged before it is done
        assert world.topic.log == []
        answers.set()
        await world.until_all_is_acknowledged()

    world.consume(during)
    assert world.topic.log == ["sent 2", "committed 2", "closed"]


def test_a_copy_at_another_offset_publishes_nothing():
    world = World("entries/0", "entries/1")
    world.topic.send(line("m1", "anna"))
    world.consume()

    world.topic.send(line("m1", "anna"))
    world.topic.send(line("m1", "anna"), lane="entries/1")
    consumer = world.consume()

    assert consumer.counts == {"duplicate": 2, "published": 0}
    assert world.target.numbers() == [("anna", 1, 1)]


def test_a_delivery_that_was_not_acknowledged_publishes_again():
    # Given a consumer that died after it had sent, before it acknowledged, with a copy in its fold
    world = World()
    world.topic.send(line("m1", "anna", 1), line("m2", "anna", 2), line("m1", "anna", 1))
    world.consume()
    world.topic.committed["entries/0"] = 0
    first, world.target.sent = world.target.sent, []

    # When another one reads all again, in folds that are cut otherwise
    world.options = ServeOptions(linger_ms=0, fold=1)
    world.consume()

    # Then each delivery that made a version publishes the same, and the copy nothing
    assert world.target.sent == first


@pytest.mark.parametrize("number", [b"-1", b'"one"'], ids=["by the handler", "by its type"])
def test_a_delivery_publishes_again_though_an_earlier_copy_in_its_fold_was_refused(number):
    # Given a consumer that died after it had acknowledged only the copy that was refused
    world = World()
    world.topic.send(line("m1", "anna").replace(b"1}", number + b"}"), line("m1", "anna"))
    assert world.consume().counts == {"dead_letter": 1, "processed": 1, "published": 1}
    world.topic.committed["entries/0"], world.target.sent = 1, []

    # When the copy that made the version is delivered again
    world.consume()

    assert world.target.numbers() == [("anna", 1, 1)]


def test_a_copy_publishes_when_the_delivery_that_made_the_version_is_gone_from_the_topic():
    # Given a version whose delivery was neither acknowledged nor kept by a compacted topic
    world = World()
    world.topic.send(line("m1", "anna"))
    world.consume()
    world.topic.committed["entries/0"], world.target.sent = 0, []
    world.topic.records["entries/0"] = [None, line("m1", "anna")]

    world.consume()

    assert world.target.numbers() == [("anna", 1, 1)]


@pytest.mark.parametrize("origin", ["topic:cluster/other", None], ids=["another group", "a queue"])
def test_a_version_of_another_source_is_published_again(origin):
    world = World()
    world.topic.send(line("m1", "anna"))
    world.consume()
    world.topic.origin = origin
    world.topic.send(line("m1", "anna"))

    world.consume()

    assert world.target.numbers() == [("anna", 1, 1)] * 2
    assert len({each.message_id for each in world.target.sent}) == 1


def test_versions_of_a_topic_are_cut_once_the_operator_vouches_for_them():
    world = World()
    world.topic.send(line("m1", "anna"), line("m2", "anna"))
    world.consume()

    made = drive(versions(world.table, "Accounts", "anna"))
    assert [each.batch for each in made or ()] == ["@topic:cluster/group entries/0:0-1"] * 2
    commit = Commit(2, made[0].batch if made else "", 0)
    rules = TruncationChoices(older_than=DAY).as_of(30 * DAY, OpenBatches())
    assert not rules.is_acknowledged(commit)
    assert replace(rules, acknowledged=DAY).is_acknowledged(commit)


def test_what_is_refused_is_a_dead_letter_and_is_acknowledged():
    world = World()
    world.topic.send(
        line("m1", "anna", -1),
        b"no json",
        b'{"message_id": "m2", "type": "Unknown", "body": {}}',
        line("m3", ""),
    )

    consumer = world.consume()

    async def kept() -> list[str]:
        return sorted([str(each.letter.reason) async for each in find_letters(world.table, Selection())])

    assert consumer.counts == {"dead_letter": 4, "published": 0}
    assert drive(kept()) == ["handler_error", "invalid_envelope", "no_business_id", "unknown_type"]


def test_refused_messages_are_sent_to_their_queue_before_they_are_acknowledged(caplog):
    # Given messages that are refused, one with an id that is no text, and a queue for letters that is away at first
    world = World()
    odd = b'{"message_id": "\\ud800", "type": "Add", "body": {"account": "anna", "number": "\\ud800"}}'
    world.topic.send(line("m1", "anna", -1), line("m2", "anna"), b"no json", odd)
    world.letters.failures = 2
    world.letters.before = lambda: world.topic.log.append("letters")

    # When they are handled, and handled again because they were not acknowledged
    for _ in range(2):
        world.topic.committed["entries/0"] = 0
        world.consume()

    # Then each letter has the message and the reason, and the same id in each copy
    assert "the target letters is unavailable" in caplog.text
    settled = ["letters", "sent 1", "committed 4", "closed"]
    assert world.topic.log == ["letters", "letters", *settled, *settled]
    first, again = world.letters.sent[:3], world.letters.sent[3:]
    assert [each.message_id for each in first] == [each.message_id for each in again]
    letters = {each.headers["reason"]: json.loads(each.body) for each in first}
    assert {*letters} == {"handler_error", "invalid_envelope"}
    assert json.loads(letters["handler_error"]["message"]["body"]) == {"account": "anna", "number": -1}
    assert "not below nothing" in letters["handler_error"]["error"]
    assert letters["invalid_envelope"]["message"]["body"]
    assert len({each.message_id for each in first}) == 3
    assert {each.type for each in first} == {"DeadLetter"}


@pytest.mark.parametrize("has_queue", [True, False])
def test_messages_beyond_the_calendar_and_large_ones_are_refused_like_others(has_queue):
    world = World()
    world.has_queue_for_letters = has_queue
    late = {**json.loads(line("m1", "anna")), "enqueued_at": "9999-12-31T23:59:59.999999-12:00"}
    world.topic.send(json.dumps(late).encode(), line("m2", "x" * 20_000, -1))

    consumer = world.consume()

    assert consumer.counts == {"dead_letter": 2, "published": 0}
    assert world.topic.log == ["committed 2", "closed"]
    letters = [json.loads(each.body) for each in world.letters.sent]
    assert [each["reason"] for each in letters] == ["enqueued_in_future", "key_too_long"] * has_queue
    if has_queue:
        large = letters[1]["message"]
        assert (large["message_id"], large["type"]) == ("m2", "Add")
        assert large["omitted_bytes"] > 20_000


def test_a_target_that_is_away_pauses_the_source_and_loses_nothing(caplog):
    world = World()
    world.target.failures = 3
    world.topic.send(*(line(f"m{number}", "anna", number) for number in range(5)))

    world.consume()

    assert world.topic.log == ["away"] * 3 + ["sent 5", "committed 5", "closed"]
    assert 0 in world.topic.reads
    away, back = [each.message for each in caplog.records]
    assert (away, back) == (
        "the target target is unavailable, so consumption pauses: it does not answer",
        "the target target is available again",
    )


def test_a_store_that_is_away_pauses_the_source_and_loses_nothing(monkeypatch):
    monkeypatch.setattr("runtime.serve.streams._ATTEMPTS", 1)
    monkeypatch.setattr("runtime.serve.streams.FIRST_SECONDS", 0.001)
    world, failures = World(), [3]

    async def fail(name: str, key: str, _: int) -> None:
        if key == "Accounts-anna" and failures[0]:
            failures[0] -= 1
            raise StoreUnavailableError("it does not answer")

    world.table = InterceptedTable(world.table, before=fail)
    world.topic.send(line("m1", "anna"))

    world.consume()

    assert world.target.numbers() == [("anna", 1, 1)]
    assert 0 in world.topic.reads


@pytest.mark.parametrize(
    ("options", "most"),
    [(ServeOptions(linger_ms=0, read_ahead=3), 3), (ServeOptions(linger_ms=0, read_ahead_bytes=1), 20)],
    ids=["messages", "bytes"],
)
def test_what_is_held_is_bounded(options, most):
    world, held = World(), list[int]()
    world.options = options
    world.topic.send(*(line(f"m{number}", f"account {number}") for number in range(40)))
    world.topic.most = 20

    async def during(consumer: Consumer) -> None:
        world.target.before = lambda: held.append(consumer.held)
        await world.until_all_is_acknowledged()

    world.consume(during)
    assert max(held) <= most
    assert len(world.target.sent) == 40


def test_a_consumer_that_is_told_to_stop_finishes_what_it_has_read():
    world = World()
    world.topic.send(*(line(f"m{number}", "anna", number) for number in range(5)))

    async def during(consumer: Consumer) -> None:
        world.target.before = consumer.stop  # when it is about to send what it has read
        await until(lambda: "closed" in world.topic.log)

    world.consume(during)

    assert world.topic.log == ["sent 5", "committed 5", "closed"]


def test_a_consumer_stops_within_its_bound_and_what_it_held_is_redelivered():
    world = World()
    world.options = ServeOptions(linger_ms=0, drain=timedelta(milliseconds=20))
    world.target.failures = 10_000
    world.topic.send(line("m1", "anna"))

    async def during(consumer: Consumer) -> None:
        await until(lambda: "away" in world.topic.log)

    world.consume(during)
    assert world.topic.committed == {"entries/0": 0}
    world.target.failures = 0
    world.consume()
    assert world.target.numbers() == [("anna", 1, 1)]


def test_a_source_that_is_away_at_the_start_is_waited_for_until_the_consumer_stops(monkeypatch):
    monkeypatch.setattr("runtime.serve.streams.FIRST_SECONDS", 0.001)
    world, failures = World(), [2]
    world.topic.send(line("m1", "anna"))
    opens = world.topic.open

    async def fail(rebalances: Rebalances) -> None:
        failures[0] -= 1
        if failures[0] >= 0:
            raise SourceUnavailableError("it does not answer")
        await opens(rebalances)

    monkeypatch.setattr(world.topic, "open", fail)
    world.consume()
    assert world.target.numbers() == [("anna", 1, 1)]

    failures[0] = 10**9
    world.options = ServeOptions(linger_ms=0, drain=timedelta(milliseconds=20))

    async def during(consumer: Consumer) -> None:
        await until(lambda: failures[0] < 10**9)
        consumer.stop()

    assert world.consume(during).counts == {"published": 0}


def test_a_consumer_stops_within_its_bound_while_its_source_hangs(monkeypatch):
    world, hangs = World(), asyncio.Event()
    world.options = ServeOptions(linger_ms=0, drain=timedelta(milliseconds=20))

    async def hang(most: int, linger: float) -> list[Received]:
        hangs.set()
        return await asyncio.Future()

    monkeypatch.setattr(world.topic, "read", hang)
    world.consume(lambda _: hangs.wait())

    assert world.topic.log == ["closed"]


def test_a_lane_that_is_revoked_is_given_back_when_what_was_started_is_settled():
    # Given one message that is being handled, and four that wait behind it
    world = World()
    answers = world.hold("anna")
    world.options = ServeOptions(linger_ms=0, fold=1)
    world.topic.send(*(line(f"m{number}", "anna", number) for number in range(5)))

    async def during(consumer: Consumer) -> None:
        await until(lambda: consumer.held == 5)
        lane = world.topic.lanes["entries/0"]
        stages = [each.stage for each in lane.waiting.values()]

        # When its lane is revoked, then it is waited for, and the others are dropped
        revoking = asyncio.create_task(asyncio.to_thread(consumer.revoked, [lane]))
        await until(lambda: Stage.DROPPED in [each.stage for each in lane.waiting.values()])
        answers.set()
        await revoking
        assert stages == [Stage.STARTED, *[Stage.WAITING] * 4]
        assert (consumer.held, lane.is_lost) == (0, True)

    world.consume(during)
    assert world.topic.committed == {"entries/0": 1}

    # And the next consumer handles them
    world.consume()
    assert world.target.numbers() == [("anna", number, number + 1) for number in range(5)]


def test_a_lane_that_was_lost_is_neither_published_nor_acknowledged():
    world = World()
    world.target.failures = 10_000
    world.topic.send(line("m1", "anna"))

    async def during(consumer: Consumer) -> None:
        await until(lambda: "away" in world.topic.log)
        await asyncio.to_thread(consumer.lost, [world.topic.lanes["entries/0"]])
        world.target.failures = 0
        await until(lambda: consumer.held == 0)

    world.consume(during)

    assert world.target.sent == []
    assert world.topic.committed == {"entries/0": 0}


def test_a_table_of_another_app_or_algorithm_is_refused():
    world = World()
    world.app = App(Accounts, name="one")
    world.consume(lambda _: asyncio.sleep(0))
    world.app = App(Accounts, name="other")

    with pytest.raises(UsageError, match="belongs to"):
        world.consume(lambda _: asyncio.sleep(0))

    world = World()
    drive(Ledger(world.table, system_clock).begin("batch", "log", "out", algorithm="outbox"))
    with pytest.raises(BatchRefusedError, match="would not recognise duplicates"):
        world.consume(lambda _: asyncio.sleep(0))


def test_probes_tell_what_is_away(caplog):
    caplog.set_level("INFO", "consistent.serve")
    world = World()
    world.options = ServeOptions(linger_ms=0, health_port=0, drain=timedelta(0))
    world.target.failures = 10_000
    world.topic.send(line("m1", "anna"))

    async def asked(path: str) -> tuple[int, Any]:
        status, _, text = await asyncio.to_thread(probe, caplog, path)
        return status, json.loads(text)

    async def during(consumer: Consumer) -> None:
        await until(lambda: "away" in world.topic.log)
        assert await asked("/livez") == (200, {"status": "live"})
        status, told = await asked("/readyz")
        assert (status, told["away"], told["held"]) == (503, {"the target target": "it does not answer"}, 1)
        world.target.failures = 0
        await world.until_all_is_acknowledged()
        status, told = await asked("/readyz")
        assert (status, told["counts"]) == (200, {"processed": 1, "published": 1})

    world.consume(during)


@pytest.mark.parametrize("stops", [False, True])
def test_an_error_is_raised_whatever_else_ends_and_all_are_closed(stops):
    world = World()
    world.topic.send(line("m1", "anna"))
    consumer = world.consumer()

    async def send(outputs):
        if stops:
            consumer.stop()
        raise TimeoutError("a target that is broken")

    async def close():
        raise ValueError("it cannot be closed")

    consumer._settlement = Settlement("target", world.topic, send, close)
    with pytest.raises(TimeoutError, match="a target that is broken"):
        asyncio.run(consumer.run())
    assert world.topic.log == ["closed"]


def test_what_was_opened_is_closed_if_the_table_is_refused():
    world = World()
    drive(TableSettings.claim(world.table, shooting_range))
    with pytest.raises(UsageError, match="belongs to"):
        asyncio.run(world.consumer().run())
    assert world.topic.log == ["closed"]


def test_a_target_over_http_that_is_down_is_unavailable_so_that_consumption_pauses():
    output = CommittedOutput("a", "Added", "{}", "a", "Accounts", 1, datetime.now(UTC))
    with socket.create_server(("127.0.0.1", 0)) as unused:
        url = f"http://127.0.0.1:{unused.getsockname()[1]}/"

    async def send():
        settlement = open_settlement(url, None, {})
        try:
            await settlement.settle([output], ())
        finally:
            await settlement.close()

    with pytest.raises(TargetUnavailableError):
        asyncio.run(send())


class SlowFirst(OneByOnePublisher[Any]):
    """Takes the first output of each object last, if it can."""

    def __init__(self) -> None:
        super().__init__(SimpleNamespace(options=TargetOptions(), name="slow"))
        self.sent: list[str] = []

    async def attempt(self, output: CommittedOutput) -> None:
        for _ in range(9 if output.message_id.endswith("0") else 0):
            await asyncio.sleep(0)
        self.sent.append(output.message_id)


def test_outputs_of_an_object_are_sent_one_by_one_in_order_beside_those_of_others():
    publisher = SlowFirst()
    outputs = [
        CommittedOutput(name + number, "Added", "{}", name, "Accounts", 1, datetime.now(UTC))
        for number in "012"
        for name in "ab"
    ]

    asyncio.run(publisher.send(outputs))

    for name in "ab":
        assert [each for each in publisher.sent if each[0] == name] == [f"{name}{n}" for n in "012"]


def test_a_port_or_folder_that_cannot_be_used_is_told(tmp_path):
    world, file = World(), tmp_path / "file"
    file.touch()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        wrong = {"health_port": taken.getsockname()[1]}, {"crashes": str(file)}
        for given, name in zip(wrong, ("--health-port", "--crashes"), strict=True):
            world.options = ServeOptions(**given)
            with pytest.raises(UsageError, match=name):
                world.consume(lambda _: asyncio.sleep(0))

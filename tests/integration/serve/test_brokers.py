"""`consistent serve` with real brokers: all that is sent is handled and published, and a process ends when told to."""

from __future__ import annotations

import asyncio
import json
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, closing
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

import pytest

from runtime.errors import TargetError
from runtime.publishing.publisher import CommittedOutput
from runtime.serve.messages import Countable, SourceUnavailableError, open_settlement, open_source
from tests.plugins.rabbitmq import running_rabbitmq
from tests.serve_kills.world import (
    BROKERS,
    AzureQueues,
    Broker,
    KafkaBroker,
    Served,
    differences,
    entries,
)
from tests.support.campaigns import ROOT, wait_until

SENT = list(islice(entries(Random(1), 5, 10**9), 120))


THOROUGH = [pytest.param(each, marks=pytest.mark.thorough) for each in ("kafka", "amqp")]


@pytest.fixture(params=["azurequeue", *THOROUGH])
def broker(request: pytest.FixtureRequest) -> Iterator[Broker]:
    with BROKERS[request.param]() as found:
        yield found


def end(served: Served, broker: Broker, log: Path) -> None:
    """Wait until all is acknowledged, and tell the consumer to end."""
    assert wait_until(lambda: broker.is_idle() or served.has_ended, 100), log.read_text()
    served.signal(signal.SIGTERM)
    assert served.process.wait(60) == 0, log.read_text()


def test_what_is_sent_is_published_and_a_consumer_ends_when_it_is_told_to(broker, tmp_path):
    log = tmp_path / "log"
    broker.send(SENT)
    with Served(broker, tmp_path / "store.db", log) as served:
        end(served, broker, log)

    assert differences(SENT, broker.published(), is_exact=broker.is_exact) == []
    assert "published" in log.read_text()


def test_a_queue_tells_how_many_messages_wait(broker):
    source: Any = open_source(broker.source.replace("prefetch=300", "prefetch=1"))
    if isinstance(broker, KafkaBroker):  # whose partitions tell it
        assert not isinstance(source, Countable)
        return
    broker.send(SENT)

    async def waiting() -> int:
        await source.open(None)
        counted: int = await source.waiting()
        await source.close()
        return counted

    assert asyncio.run(waiting()) in {len(SENT), len(SENT) - 1}  # one may be delivered


def test_refused_messages_go_to_a_queue_of_their_own(broker, tmp_path):
    refused = {"message_id": "wrong", "type": "Add", "body": {"account": "account-1", "number": "one"}}
    queue = "added" if isinstance(broker, AzureQueues) else "Added"  # the one that is read
    options = ["--dead-letter-queue", broker.target, "--map", f"DeadLetter={queue}", "--map"]
    broker.send([SENT[0], refused])
    found: dict[str, Any] = {}

    def are_there() -> bool:
        found.update((each.message_id, each.body) for each in broker.published())
        return len(found) == 2

    log = tmp_path / "log"
    with Served(broker, tmp_path / "store.db", log, *options, f"Added={queue}") as served:
        assert wait_until(are_there, 100), log.read_text()
        served.signal(signal.SIGTERM)
        assert served.process.wait(60) == 0, log.read_text()

    (letter,) = (body for body in found.values() if "reason" in body)
    assert letter["reason"] == "invalid_body"
    assert letter["message"]["message_id"] == "wrong"


@pytest.mark.thorough
def test_an_output_that_no_queue_takes_is_refused(rabbitmq):
    output = CommittedOutput("m1", "Nowhere", "{}", "anna", "Accounts", 1, datetime(2026, 3, 1, tzinfo=UTC))

    async def send() -> None:
        settlement = open_settlement(rabbitmq, None, {})
        try:
            await settlement.settle([output], ())
        finally:
            await settlement.close()

    with pytest.raises(TargetError, match="routes an output to no queue"):
        asyncio.run(send())


@pytest.mark.thorough
def test_a_source_whose_broker_has_died_is_away():
    async def read(url: str, broker: ExitStack) -> None:
        source: Any = open_source(f"{url}?queue=entries")
        await (await source._place.channel()).declare_queue("entries")
        await source.open(None)
        assert await source.read(1, 0) == []
        await asyncio.to_thread(broker.close)
        with pytest.raises(SourceUnavailableError):
            await source.read(1, 0)
        await source.close()

    with ExitStack() as broker:
        asyncio.run(read(broker.enter_context(running_rabbitmq()), broker))


@pytest.mark.thorough
def test_a_broker_that_dies_is_waited_for(tmp_path):
    log = tmp_path / "log"
    with BROKERS["kafka"]() as broker, Served(broker, tmp_path / "store.db", log):
        assert isinstance(broker, KafkaBroker)
        broker.send(SENT[:60])
        assert wait_until(broker.is_idle, 100), log.read_text()
        broker.server.kill()
        assert wait_until(lambda: "is unavailable" in log.read_text(), 60)
        broker.server.start()
        broker.send(SENT[60:])
        assert wait_until(broker.is_idle, 100), log.read_text()

        assert differences(SENT, broker.published(), is_exact=True) == []


@pytest.mark.thorough
def test_a_consumer_ends_within_its_bound_while_its_broker_answers_nothing(tmp_path):
    # Given a consumer with messages in hand, and a broker that is paused
    log = tmp_path / "log"
    with BROKERS["kafka"]() as broker, Served(broker, tmp_path / "store.db", log, "--drain", "2s") as served:
        assert isinstance(broker, KafkaBroker)
        broker.send(SENT[:60])
        assert wait_until(broker.is_idle, 100), log.read_text()
        broker.send(SENT[60:100])
        assert broker.server.process
        broker.server.process.send_signal(signal.SIGSTOP)
        served.signal(signal.SIGTERM)

        # Then SIGTERM ends it within --drain and ten seconds
        assert served.process.wait(2 + 10 + 5) in {0, 1}, log.read_text()
        broker.server.process.send_signal(signal.SIGCONT)

        # And the next one handles the rest
        broker.send(SENT[100:])
        with Served(broker, tmp_path / "store.db", log) as other:
            end(other, broker, log)
        assert differences(SENT, broker.published(), is_exact=True) == []


def _command(folder: Path, *arguments: str) -> list[str]:
    command = [sys.executable, "-m", "runtime", "serve", "--app", "tests.serve_kills.apps:app"]
    return [*command, "--store", f"sqlite:///{folder}/store.db", "--table", "accounts", *arguments]


def consistent(folder: Path, *arguments: str, given: str = "") -> subprocess.CompletedProcess[str]:
    command = _command(folder, *arguments)
    return subprocess.run(
        command, cwd=ROOT, input=given, capture_output=True, text=True, timeout=100, check=False
    )


def lines(text: str) -> list[dict[str, Any]]:
    return [json.loads(each) for each in text.splitlines()]


def test_lines_are_handled_and_their_outputs_printed(tmp_path):
    given = "".join(json.dumps(each) + "\n" for each in SENT)

    done = consistent(tmp_path, "--from", "stdin:", "--publish", "stdout:", given=given)

    assert done.returncode == 0, done.stderr
    distinct = len({each["message_id"] for each in SENT})
    assert f"Handled {distinct} processed, {len(SENT) - distinct} duplicate;" in done.stderr
    first = {each["message_id"]: each["body"] for each in lines(done.stdout)}
    assert len(first) == distinct

    # And the same lines again print the same outputs
    again = consistent(tmp_path, "--from", "stdin:", "--publish", "stdout:", given=given)
    assert {each["message_id"]: each["body"] for each in lines(again.stdout)} == first


def test_a_pipe_is_handled_as_it_comes(tmp_path):
    pipe, command = subprocess.PIPE, _command(tmp_path, "--from", "stdin:", "--publish", "stdout:")
    with subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe, text=True) as process:
        assert process.stdin
        assert process.stdout
        for each in SENT[:3]:
            process.stdin.write(json.dumps(each) + "\n")
            process.stdin.flush()
            assert json.loads(process.stdout.readline())["body"]["number"] == each["body"]["number"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--from", "nats://here"], "The source is invalid. Use stdin:, kafka://"),
        (["--from", "stdin:", "--publish", "samples.orders.post:post"], "The target is invalid. Use stdout:"),
        (["--from", "stdin:", "--algorithm", "outbox"], "Live queues need the algorithm state-based"),
        (["--from", "kafka://here:9092/entries"], "A source in Kafka is written"),
    ],
)
def test_what_cannot_be_served_is_told_in_one_sentence(arguments, sentence, tmp_path):
    done = consistent(tmp_path, *arguments)

    assert (done.returncode, done.stdout) == (2, "")
    assert sentence in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_outputs_and_refused_lines_are_rows_of_a_database_once(tmp_path):
    refused = {"message_id": "wrong", "type": "Add", "body": {"account": "account-1", "number": "one"}}
    given = "no json\n" + "".join(json.dumps(each) + "\n" for each in (refused, *SENT))
    to = ["--from", "stdin:", "--publish", f"sqlite:///{tmp_path}/outputs.db"]
    to += ["--dead-letter-queue", f"sqlite:///{tmp_path}/refused.db", "--map", "DeadLetter=refused"]
    for _ in range(2):
        done = consistent(tmp_path, *to, given=given)
        assert done.returncode == 0, done.stderr

    with closing(sqlite3.connect(tmp_path / "outputs.db")) as database:
        ids = [id_ for (id_,) in database.execute("SELECT message_id FROM Added")]
        assert database.execute("SELECT count(*) FROM consistent_slices").fetchone() == (0,)
    assert len(ids) == len(set(ids)) == len({each["message_id"] for each in SENT})
    with closing(sqlite3.connect(tmp_path / "refused.db")) as database:
        rows = database.execute("SELECT body ->> 'reason', headers ->> 'reason' FROM refused").fetchall()
    assert sorted(rows) == [("invalid_body", "invalid_body"), ("invalid_envelope", "invalid_envelope")]


def test_a_target_that_refuses_an_output_stops_the_consumer(tmp_path):
    with closing(sqlite3.connect(tmp_path / "outputs.db")) as database:
        database.execute(
            "CREATE TABLE Added (message_id TEXT PRIMARY KEY, type, business_id, handler, body, sequence CHECK "
            "(sequence < 0), enqueued_at, headers, batch_id)"
        )
    target = f"sqlite:///{tmp_path}/outputs.db"
    done = consistent(tmp_path, "--from", "stdin:", "--publish", target, given=json.dumps(SENT[0]) + "\n")

    assert done.returncode == 1
    assert "refuses the output" in " ".join(done.stderr.split())


def test_without_a_target_outputs_are_counted_and_dropped(tmp_path):
    done = consistent(tmp_path, "--from", "stdin:", "--json", given=json.dumps(SENT[0]) + "\n")

    assert json.loads(done.stdout) == {"processed": 1, "published": 1}

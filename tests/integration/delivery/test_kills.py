"""Deliveries that are killed while a server counts what it is sent: what each strategy promises holds, and no more."""

import os
import random
import signal
import subprocess
import sys
import time
from dataclasses import replace

import pyarrow.parquet as pq
import pytest

from benchmarks.delivery.__main__ import markdown
from benchmarks.delivery.kills import BrokenPromiseError, deliver_and_kill
from benchmarks.delivery.receiver import running_receiver
from benchmarks.delivery.sender import STRATEGIES, Work
from tests.docs.pages import ROOT
from tests.support.done_batches import games, make_batch
from tests.support.names import new_name


@pytest.fixture(scope="module")
def receiver():
    with running_receiver() as receiver:
        yield receiver


def killed(receiver, tmp_path, strategy, keys, messages, kills, name):
    given = Work(strategy, keys, str(tmp_path / "records"), messages, receiver.port, new_name())
    return deliver_and_kill(given, kills, receiver, random.Random(1), name)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_promises_hold_with_keys_in_a_file(receiver, tmp_path, strategy):
    seen = killed(receiver, tmp_path, strategy, f"sqlite:///{tmp_path}/keys.db", 40, 2, "SQLite")

    assert seen.kills == 2
    assert seen.requests + seen.lost - seen.duplicates == 40
    assert f"| {strategy} | SQLite | 40 | 2 |" in markdown([seen])


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_promises_hold_with_keys_in_redis(receiver, tmp_path, redis_server, strategy):
    assert killed(receiver, tmp_path, strategy, redis_server.url, 300, 10, "Redis").kills == 10


@pytest.mark.thorough
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_promises_hold_with_keys_in_azurite(receiver, tmp_path, azurite_url, strategy):
    assert killed(receiver, tmp_path, strategy, azurite_url, 100, 4, "Azurite").kills == 4


def test_a_strategy_that_is_not_the_one_that_is_promised_is_found(receiver, tmp_path, monkeypatch):
    # Given deliveries at least once that claim to be at most once, killed until one message is sent twice
    keys = f"sqlite:///{tmp_path}/keys.db"
    seen = killed(receiver, tmp_path, "at least once", keys, 40, 2, "SQLite")

    with pytest.raises(BrokenPromiseError, match=r"at most once, keys in SQLite: \d+ were sent twice"):
        replace(seen, strategy="at most once").check()


@pytest.mark.thorough
def test_the_command_goes_on_where_it_was_killed(tmp_path):
    make_batch(f"sqlite:///{tmp_path}/store.db", tmp_path / "outcomes", games(10, 4))
    (tmp_path / "post.py").write_text(
        "import time\n\ndef send(message):\n    time.sleep(0.05)\n"
        "    with open('sent', 'a') as sent:\n        print(message.message_id, file=sent)\n"
    )
    options = "--outcomes outcomes --sender post:send --keys sqlite:///keys.db --records records --timeout 1s"
    command = [
        sys.executable,
        "-m",
        "runtime",
        "deliver",
        *options.split(),
        "--concurrency",
        "2",
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TTL_LOCK_TIME_LIMIT_MS": "2000"}

    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE) as first:
        while not (tmp_path / "sent").exists():
            time.sleep(0.01)
        first.send_signal(signal.SIGKILL)
    assert not (tmp_path / "records").exists()
    subprocess.run(command, cwd=tmp_path, env=environment, check=True, capture_output=True)

    sent = (tmp_path / "sent").read_text().split()
    results = {each["message_id"]: each["result"] for each in pq.read_table(tmp_path / "records").to_pylist()}
    assert len(sent) == len(set(sent)) >= 38
    assert len(results) == 40
    assert {name for name, result in results.items() if result == "sent"} <= set(sent)

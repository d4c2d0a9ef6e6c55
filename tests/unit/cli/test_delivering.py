"""`consistent deliver` sends what batches published, and says what to do about mistakes."""

import json
import os
import signal
import subprocess
import sys

import pyarrow.parquet as pq
import pytest

from tests.docs.pages import ROOT
from tests.support.done_batches import make_batch, outcome, output

SENDER = """
from runtime.delivery import PermanentError, TransientError

def send(message):
    if message.customer == "Nobody":
        raise PermanentError("moved away")
    with open("sent", "a") as sent:
        print(message.customer, message.type, message.message_id, file=sent)

async def send_later(message):
    raise TransientError("busy")

def stop(message):
    import os, signal
    os.kill(os.getpid(), signal.SIGTERM)

def nothing(): ...

class Mailer: ...
"""
USUAL = ("--keys", "sqlite:///keys.db", "--records", "records")


def won(name):
    return output(f"to-{name}", 1, "Won", json.dumps({"name": name}))


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    (tmp_path / "post.py").write_text(SENDER)
    for batch, winners in (("first", ["Ada", "Grace"]), ("second", ["Nobody", "Ada"])):
        rounds = [[outcome(name, won(name)) for name in winners]]
        make_batch(f"sqlite:///{tmp_path}/store.db", tmp_path / "outcomes", rounds, batch_id=batch)
    for name in ("AT_LEAST_ONCE_SENDING_CUSTOMERS", "TTL_LOCK_TIME_LIMIT_MS"):
        monkeypatch.delenv(name, raising=False)
    yield
    sys.modules.pop("post", None)


@pytest.fixture
def deliver(consistent):
    def deliver(*more, sender="post:send", outcomes="outcomes"):
        return consistent(
            "deliver", "--sender", sender, "--outcomes", outcomes, "--customer", "name", *USUAL, *more
        )

    return deliver


def test_each_message_is_sent_once_and_has_a_record(deliver, tmp_path):
    first = deliver("--strategy", "at-most-once", "--json")
    again = deliver("--strategy", "at-most-once", "--json")

    assert first.code == 0, first.err
    assert first.document["delivered"] == {"sent": 2, "not_sent": 1, "unknown": 0, "filtered": 0}
    assert set(again.document["delivered"].values()) == {0}
    assert again.document["recorded"] == first.document["recorded"] == first.document["delivered"]
    assert sorted((tmp_path / "sent").read_text().splitlines()) == ["Ada Won to-Ada", "Grace Won to-Grace"]
    records = pq.read_table(tmp_path / "records").to_pylist()
    assert {each["customer"]: each["reason"] for each in records} == {
        "Ada": None,
        "Grace": None,
        "Nobody": "PermanentError: moved away",
    }


def test_one_batch_and_one_type_of_messages_may_be_chosen(deliver, tmp_path):
    assert deliver("--batch", "first", "--types", "Drawn", "--json").document["delivered"]["sent"] == 0
    assert deliver("--batch", "first", "--types", "Won", "--json").document["delivered"]["sent"] == 2


def test_a_dry_run_sends_and_writes_nothing(deliver, tmp_path, monkeypatch):
    monkeypatch.setenv("AT_LEAST_ONCE_SENDING_CUSTOMERS", "Ada")

    said = deliver("--dry-run", "--json")

    assert said.document == {
        "dry_run": True,
        "would_be_delivered": [
            {"type": "Won", "strategy": "at-least-once", "count": 1},
            {"type": "Won", "strategy": "at-most-once", "count": 2},
        ],
        "customers": 3,
        "recorded": 0,
        "without_customer": 0,
    }
    found = {each.name for each in tmp_path.iterdir()} - {"__pycache__"}
    assert found == {"outcomes", "post.py", "store.db"}
    assert "Would be delivered to 3 customers" in deliver("--dry-run").out


@pytest.mark.thorough
def test_what_stops_it_is_told_by_a_receiver_that_takes_nothing(deliver):
    options = ("--strategy", "at-least-once", "--give-up-after", "1s", "--attempts", "100")

    said = deliver(*options, sender="post:send_later")

    assert said.code == 1
    assert "The receiver has taken no message for" in said.err
    assert "TransientError: busy" in said.err


def test_the_ledger_knows_where_the_outcomes_of_a_batch_are(consistent, tmp_path):
    store = f"sqlite:///{tmp_path}/store.db"
    make_batch(store, tmp_path / "outcomes", [], batch_id="third", ends=False)
    named = ("deliver", "--sender", "post:send", *USUAL, "--store", store, "--table", "games")

    published = consistent(*named, "--batch", "second", "--json")
    unfinished = consistent(*named, "--batch", "third")

    assert published.document["delivered"]["sent"] == 2, published.err
    assert (unfinished.code, unfinished.err) == (
        1,
        "Error: Batch third is started, and nothing leaves a batch that is not done: run it to its end first.\n",
    )


@pytest.mark.parametrize(
    ("sender", "sentence"),
    [
        ("post", "A sender is named MODULE:FUNCTION, like post:send, not 'post'."),
        ("posts:send", "There is no module posts"),
        (
            "post:mail",
            "The module post has no function mail. Its functions: send, send_later, stop, nothing.",
        ),
        ("post:Mailer", "post:Mailer is no function but the class Mailer: write `def Mailer(message)"),
        (
            "post:nothing",
            "The sender post:nothing is called with one message (too many positional arguments)",
        ),
    ],
)
def test_a_sender_that_cannot_be(deliver, sender, sentence):
    said = deliver(sender=sender)

    assert said.code == 2
    assert sentence in said.err


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--strategy", "exactly-once"), "'exactly-once' is not one of 'at-most-once', 'at-least-once'"),
        (("--timeout", "2m"), "A send may take 120 s, but its lock lasts 120 s only"),
        (("--keys", "redis://127.0.0.1:1/0"), "No Redis answers at 127.0.0.1:1: start one"),
        (("--keys", "mysql://keys"), "sqlite:///"),
    ],
)
def test_options_that_cannot_be(deliver, options, sentence):
    said = deliver(*options)

    assert said.code == 2
    assert sentence in said.err


def test_a_strategy_that_contradicts_the_settings(deliver, monkeypatch):
    monkeypatch.setenv("AT_LEAST_ONCE_SENDING_CUSTOMERS", "17")

    said = deliver("--strategy", "at-most-once")

    assert said.code == 2
    assert "AT_LEAST_ONCE_SENDING_CUSTOMERS is '17': leave out one of them" in said.err


def test_it_must_be_said_what_is_delivered(consistent):
    said = consistent("deliver", "--sender", "post:send", *USUAL)

    assert said.code == 2
    assert "--outcomes DIR, or --batch ID with --store URL and --table NAME" in said.err


def test_told_to_end_it_records_what_it_sent(tmp_path):
    command = [sys.executable, "-m", "runtime", "deliver", "--sender", "post:stop", "--outcomes"]
    options = ["outcomes", "--concurrency", "1", *USUAL]

    done = subprocess.run(
        [*command, *options],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 128 + signal.SIGTERM, done.stderr
    assert "run the command again to go on" in done.stderr
    assert pq.read_table(tmp_path / "records")["result"].to_pylist() == ["sent"]

"""Keys in a Redis that dies: what it appended to its log is there again, what it had in memory is not."""

import asyncio
from datetime import timedelta

import pytest

from runtime.algorithms.last_hop.settings import DeliverySettings
from runtime.delivery import OutgoingMessage, deliver
from runtime.errors import UsageError

pytestmark = pytest.mark.thorough

MESSAGES = [OutgoingMessage(f"m-{number}", "Won", {}, f"{number % 3}") for number in range(20)]
BOTH = pytest.mark.parametrize(
    "settings", [DeliverySettings(), DeliverySettings(frozenset("*"))], ids=["at most", "at least"]
)


class Receiver:
    def __init__(self):
        self.got = []
        self.before_answer = lambda: None

    async def __call__(self, message):
        self.got.append(message.message_id)
        self.before_answer()


@pytest.fixture
def receiver():
    return Receiver()


@pytest.fixture
def send(receiver, tmp_path):
    def send(server, records, settings=None, **given):
        delivering = deliver(
            MESSAGES, receiver, keys=server.url, records=tmp_path / records, settings=settings, **given
        )
        return {result.value: count for result, count in asyncio.run(delivering).items()}

    return send


@BOTH
def test_what_was_sent_before_redis_died_is_filtered_after_it(redis_server, receiver, send, settings):
    assert send(redis_server, "first", settings) == {"sent": 20}
    redis_server.kill()
    redis_server.start()

    assert send(redis_server, "second", settings) == {"filtered": 20}
    assert len(receiver.got) == 20


@BOTH
def test_a_redis_that_is_killed_and_started_again_meanwhile_loses_nothing(
    redis_server, receiver, send, settings
):
    def die_at_the_third():
        if len(receiver.got) == 3:
            redis_server.kill()
            redis_server.start()

    receiver.before_answer = die_at_the_third

    assert send(redis_server, "records", settings) == {"sent": 20}
    assert sorted(receiver.got) == sorted(each.message_id for each in MESSAGES)


def test_a_redis_that_keeps_all_in_memory_forgets_what_was_sent_when_it_dies(forgetful_redis, receiver, send):
    remarks: list[str] = []
    send(forgetful_redis, "first", on_remark=remarks.append)
    forgetful_redis.kill()
    forgetful_redis.start()

    # Sent twice, though at most once was asked for: so it is said beforehand
    assert send(forgetful_redis, "second") == {"sent": 20}
    assert len(receiver.got) == 40
    (remark,) = remarks
    assert "keys in memory (appendonly is off): when it dies, what it had sealed may be sent again" in remark


def test_a_redis_that_appends_all_to_its_log_gives_no_cause_for_a_remark(redis_server, send):
    remarks: list[str] = []

    send(redis_server, "records", on_remark=remarks.append)

    assert remarks == []


def test_a_key_expires_with_the_time_of_its_customer(redis_server, receiver, send):
    short = DeliverySettings(default_ttl=timedelta(milliseconds=1))
    send(redis_server, "first", short)

    assert send(redis_server, "second", short) == {"sent": 20}


def test_where_no_redis_is_a_sentence_says_how_to_start_one(redis_server, send):
    redis_server.kill()

    with pytest.raises(UsageError, match=r"No Redis answers at 127.0.0.1:\d+: start one \(redis-server "):
        send(redis_server, "records")

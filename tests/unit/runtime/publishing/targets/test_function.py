"""A batch to a function of a user: each output at most once or at least once to its customer, with a record."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import timedelta

import pytest

from runtime.clock import system_clock
from runtime.errors import PermanentError, TargetError, TransientError, UsageError
from runtime.publishing import DeliverySettings, OutgoingMessage
from runtime.publishing.last_hop import DeliveryKey, TableKeys, unended
from runtime.publishing.publisher import Promise, PublishOptions
from runtime.publishing.records import Publications, SliceClaim
from tests.support.done_batches import BATCH, TABLE, outcome, output

AT_MOST_ONCE = DeliverySettings()
AT_LEAST_ONCE = DeliverySettings(frozenset("*"))
BOTH = pytest.mark.parametrize("settings", [AT_MOST_ONCE, AT_LEAST_ONCE], ids=["at most", "at least"])
SHORT = timedelta(milliseconds=300)
IMPATIENT = timedelta(milliseconds=200)
TO = "post:send"


class DiedError(BaseException):
    """The process is gone."""


class Mailbox:
    """Takes messages, but raises what it is told to, one after another."""

    def __init__(self, *errors: BaseException) -> None:
        self.sent: list[str] = []
        self.messages: list[OutgoingMessage] = []
        self.errors = list(errors)

    def send(self, message: OutgoingMessage) -> None:
        self.messages.append(message)
        if self.errors:
            raise self.errors.pop(0)
        self.sent.append(message.message_id)

    async def send_later(self, message: OutgoingMessage) -> None:
        self.send(message)


def results(done):
    return Counter(each.result.value for each in done.records)


def whys(done):
    return sorted((each.result.value, each.why) for each in done.records)


@BOTH
@pytest.mark.parametrize("name", ["send", "send_later"])
def test_each_output_is_given_to_it_in_order_and_recorded(batch, settings, name):
    mailbox = Mailbox()

    done = batch.publish(TO, send=getattr(mailbox, name), settings=settings)

    assert sorted(mailbox.sent) == sorted(batch.ids)
    for game in range(6):
        ours = [each for each in mailbox.sent if each.startswith(f"g{game}-")]
        assert ours == [f"g{game}-{number}" for number in range(4)]
    assert results(done) == {"sent": len(batch.ids)}
    assert done.refused == []


def test_records_and_sealed_keys_are_kept_with_what_the_output_is_and_for_the_time_of_its_customer(make):
    batch, settings = make(1, 1), DeliverySettings(ttl={"default": timedelta(seconds=100)})
    done = batch.publish(TO, send=print, settings=settings)

    async def kept(table):
        key = await TableKeys(table).get(DeliveryKey.of("default", "g0-0"))
        return key, await Publications(table, system_clock).records(done.publication)

    key, (record,) = batch.on_table(kept)
    assert record == ("g0-0", "Missed", "g0", "ShootingRange", "sent", "", "default")
    assert 90 < (key.expires_at - system_clock()) / 1_000_000 <= 100


@pytest.mark.parametrize(
    ("error", "at_most", "at_least"),
    [
        (PermanentError("no such number"), "not_sent", "not_sent"),
        (ValueError("oops"), "not_sent", "not_sent"),
        (TransientError("busy", retry_after=0.01), "not_sent", "sent"),
        (ConnectionError("gone"), "not_sent", "sent"),
        (TimeoutError("no line"), "unknown", "sent"),
    ],
)
@BOTH
def test_an_output_whose_send_fails_is_recorded_or_at_least_once_sent_again(
    make, settings, error, at_most, at_least
):
    batch, mailbox = make(1, 1), Mailbox(error)
    result = at_most if settings is AT_MOST_ONCE else at_least

    done = batch.publish(TO, send=mailbox.send, settings=settings)
    again = batch.publish(TO, send=mailbox.send, settings=settings)

    assert whys(done) == [(result, "" if result == "sent" else f"{type(error).__name__}: {error}")]
    assert again.records == done.records
    assert mailbox.sent == (["g0-0"] if result == "sent" else [])
    assert len(mailbox.messages) == 1 + len(mailbox.sent)


@BOTH
def test_five_failures_in_a_row_stop_the_work_before_more_is_lost(make, settings):
    batch, mailbox = make(3, 4), Mailbox(*[ValueError("a mistake")] * 12)

    with pytest.raises(TargetError, match="failed for 5 outputs in a row"):
        batch.publish(TO, send=mailbox.send, settings=settings, concurrency=1)
    mailbox.errors.clear()

    done = batch.publish(TO, send=mailbox.send, settings=settings)
    assert done.outputs == 12 - len(done.refused)
    assert 5 <= results(done)["not_sent"] <= 7  # what was being sent then is waited for
    assert results(done)["sent"] == 12 - results(done)["not_sent"]


def test_what_is_not_answered_in_time_may_have_arrived(make):
    async def hang(_):
        await asyncio.sleep(60)

    done = make(1, 1).publish(TO, send=hang, timeout=timedelta(milliseconds=10))

    assert whys(done) == [("unknown", "TimeoutError: no answer within 0.01 s")]


@BOTH
def test_what_another_publication_sent_is_filtered(make, settings):
    batch, mailbox = make(1, 2), Mailbox()
    batch.publish(TO, send=mailbox.send, settings=settings)

    done = batch.publish("post:other", send=mailbox.send, settings=settings)

    assert whys(done) == [("filtered", "filtered by idempotency")] * 2
    assert len(mailbox.sent) == 2


def test_to_some_customers_messages_are_sent_at_least_once(make_of):
    rows = [outcome("g", output(f"m-{id_}", id_, "Won", f'{{"id": {id_}}}')) for id_ in (17, 18)]
    settings = DeliverySettings(frozenset({"17"}))
    batch, tried = make_of([rows]), []

    def send(message):
        tried.append(message.customer)
        if tried.count(message.customer) == 1:
            raise TransientError("busy", retry_after=0)

    target = batch.target(TO, send=send, settings=settings, customer="id")

    done = batch.publish(target)

    assert {each.customer: each.result for each in done.records} == {"17": "sent", "18": "not_sent"}
    assert target.promise is Promise.BY_CUSTOMER


@pytest.mark.parametrize("value", ["null", '""', "true", '["17", "18"]', f'"{"x" * 600}"', '"\\ud800"'])
def test_an_output_that_names_no_customer_is_a_dead_letter_and_costs_the_others_nothing(make_of, value):
    mailbox = Mailbox()
    bodies = [f'{{"name": {value}}}', value, '{"name": 17}']
    rows = [outcome("g", output(f"m-{each}", each, "Won", body)) for each, body in enumerate(bodies)]

    done = make_of([rows]).publish(TO, send=mailbox.send, customer="name")

    assert [each.message_id for each in done.refused] == ["m-0", "m-1"]
    assert all("has no valid customer: name is " in each.why for each in done.refused)
    assert [(each.customer, each.message_id) for each in mailbox.messages] == [("17", "m-2")]


@BOTH
def test_one_message_reaches_each_of_its_customers_once(make_of, settings):
    mailbox, body = Mailbox(), '{"buyer": "a:b", "seller": "a", "clerk": "b"}'
    batch = make_of([[outcome("g", output("m", 1, "Won", body))]])

    for customer in ("buyer", "seller", "clerk") * 2:
        batch.publish(TO, send=mailbox.send, settings=settings, customer=customer)

    assert [each.customer for each in mailbox.messages] == ["a:b", "a", "b"]
    assert {(each.batch_id, each.body["clerk"]) for each in mailbox.messages} == {(BATCH, "b")}


@BOTH
def test_a_record_that_was_not_noted_is_that_of_the_key(make, settings, monkeypatch):
    # Given a runner that died after the key was sealed
    batch, mailbox = make(1, 2), Mailbox(PermanentError("no such number"))

    async def die(*_, **__):
        raise DiedError

    with monkeypatch.context() as patch:
        patch.setattr("runtime.publishing.records.SliceClaim.note", die)
        with pytest.raises(DiedError):
            batch.publish(TO, send=mailbox.send, settings=settings)

    done = batch.publish(TO, send=mailbox.send, settings=settings)

    assert whys(done) == [("not_sent", "PermanentError: no such number"), ("sent", "")]
    assert len(mailbox.messages) == 2


def test_at_most_once_a_process_that_died_while_it_sent_leaves_it_unknown_and_a_key_that_says_no_end(make):
    batch, mailbox = make(1, 1), Mailbox(DiedError())
    with pytest.raises(DiedError):
        batch.publish(TO, send=mailbox.send_later)
    left = asyncio.run(unended(batch.store, TABLE))

    done = batch.publish(TO, send=mailbox.send_later)

    assert left == [("default", "g0-0")]
    assert results(done) == {"unknown": 1}
    assert mailbox.sent == []


def test_at_least_once_it_is_sent_again_when_the_lock_of_the_dead_has_expired(make):
    batch, mailbox = make(1, 1), Mailbox(DiedError())
    settings = DeliverySettings(frozenset("*"), SHORT)
    with pytest.raises(DiedError):
        batch.publish(TO, send=mailbox.send_later, settings=settings, timeout=IMPATIENT)
    began = time.monotonic()

    done = batch.publish(TO, send=mailbox.send_later, settings=settings, timeout=IMPATIENT)

    assert (mailbox.sent, results(done)) == (["g0-0"], {"sent": 1})
    assert len(mailbox.messages) == 2
    assert time.monotonic() - began < 30


def test_no_more_are_sent_at_a_time_than_may_be(make):
    under_way = most = 0

    async def send(_):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1

    make(8, 2).publish(TO, PublishOptions(slices=8, concurrency=8), send=send, concurrency=3)

    assert most == 3


def test_a_send_may_not_take_longer_than_its_lock_lasts(batch):
    with pytest.raises(UsageError, match=r"take 120 s, but its lock expires after 120 s.*_LIMIT_MS"):
        batch.publish(TO, send=print, timeout=timedelta(minutes=2))


def test_one_that_is_told_to_stop_ends_what_it_is_sending(make):
    batch, mailbox = make(1, 4), Mailbox()

    async def stopped():
        async def send(message):
            publishing.cancel()
            await asyncio.sleep(0.01)
            mailbox.send(message)

        publishing = asyncio.ensure_future(batch.published(TO, send=send))
        with pytest.raises(asyncio.CancelledError):
            await publishing

    asyncio.run(stopped())
    assert mailbox.sent == ["g0-0"]

    assert results(batch.publish(TO, send=mailbox.send)) == {"sent": 4}
    assert sorted(mailbox.sent) == sorted(batch.ids)


def test_a_slice_is_not_resumed_when_its_keys_may_have_expired(make, monkeypatch):
    batch, mailbox = make(1, 2), Mailbox()
    to = {"send": mailbox.send, "settings": DeliverySettings(ttl={"17": timedelta(microseconds=1)})}

    async def die(*_: object) -> None:
        raise SystemError("killed before the position is noted")

    with monkeypatch.context() as killed:
        killed.setattr(SliceClaim, "note", die)
        with pytest.raises(SystemError):
            batch.publish(TO, **to)
    with pytest.raises(UsageError, match="could send outputs twice"):
        batch.publish(TO, PublishOptions(slices=3, take_over=True), **to)
    assert mailbox.sent == ["g0-0", "g0-1"]

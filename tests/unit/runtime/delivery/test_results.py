"""What becomes of a message, by what its sender does: each has one record that says so."""

import asyncio
import time

import pytest

from runtime.delivery import DeliveryPolicy, OutgoingMessage, PermanentError, TransientError, batch_messages
from runtime.delivery.outgoing import messages_of
from runtime.delivery.records import RecordFiles
from runtime.errors import UsageError
from runtime.publishing.outputs import BatchOutputs
from tests.support.done_batches import make_batch, outcome, output
from tests.unit.runtime.delivery.office import AT_LEAST_ONCE, AT_MOST_ONCE, QUICK, message

BOTH = pytest.mark.parametrize("settings", [AT_MOST_ONCE, AT_LEAST_ONCE], ids=["at most", "at least"])


@pytest.fixture
def batch(tmp_path):
    """Give the outputs of a batch with two winners, one without a name."""
    rows = [
        outcome("g1", output("m-1", 1, "Won", '{"id": 17, "name": "Ada"}')),
        outcome("g2", output("m-2", 1, "Drawn", '{"id": 18, "name": null}')),
    ]
    out = tmp_path / "outcomes"
    record = make_batch(f"sqlite:///{tmp_path}/store.db", out, [rows])
    return BatchOutputs.of(record, str(out))


def result(office):
    (record,) = office.records()
    return record["result"], record["reason"], record["sends"], record["is_final"]


@BOTH
def test_what_the_receiver_took_is_sent(office, settings):
    assert office.deliver([message(1), message(2)], settings) == {"sent": 2}

    records = office.records()
    assert sorted(office.sent) == sorted(each["message_id"] for each in records) == ["m-1", "m-2"]
    assert {(each["customer"], each["type"], each["batch_id"]) for each in records} == {
        ("17", "Won", "first")
    }


@BOTH
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (PermanentError("no such number"), "PermanentError: no such number"),
        (ValueError("x"), "ValueError: x"),
    ],
)
def test_what_will_never_be_taken_is_tried_once(office, settings, error, reason):
    office.errors = [error]

    assert office.deliver(settings=settings) == {"not_sent": 1}
    assert result(office) == ("not_sent", reason, 1, True)
    assert office.deliver(settings=settings) == {}


@pytest.mark.parametrize("error", [TransientError("busy"), TimeoutError("no line"), ConnectionError("gone")])
def test_at_least_once_tries_again_after_an_error_that_may_pass(office, error):
    office.errors = [error, error]

    assert office.deliver(settings=AT_LEAST_ONCE) == {"sent": 1}
    assert result(office) == ("sent", None, 3, True)


def test_at_least_once_gives_up_after_so_many_attempts_and_the_next_delivery_goes_on(office):
    office.errors = [TransientError("busy")] * 5

    assert office.deliver(settings=AT_LEAST_ONCE) == {"not_sent": 1}
    assert result(office) == ("not_sent", "TransientError: busy", 5, False)

    assert office.deliver(settings=AT_LEAST_ONCE) == {"sent": 1}
    assert sorted(each["result"] for each in office.records()) == ["not_sent", "sent"]


def test_at_most_once_never_tries_again(office):
    office.errors = [TransientError("busy")]

    assert office.deliver() == {"not_sent": 1}
    assert office.calls == 1


def test_what_was_not_answered_in_time_may_have_arrived(office):
    async def hang(_):
        await asyncio.sleep(60)

    assert office.deliver(sender=hang, policy=DeliveryPolicy(timeout=0.01)) == {"unknown": 1}
    assert result(office) == ("unknown", "TimeoutError: no answer within 0.01 s", 1, True)


@BOTH
def test_what_another_delivery_sent_is_filtered(office, settings):
    office.deliver(settings=settings)

    assert office.deliver(settings=settings, records="others") == {"filtered": 1}
    (record,) = office.records("others")
    assert (record["reason"], record["sends"]) == ("filtered by idempotency", 0)
    assert office.calls == 1


def test_a_message_that_names_no_customer_is_not_sent(office, batch):
    assert office.deliver(messages_of("b1", batch, "name")) == {"sent": 1, "not_sent": 1}
    assert {each["reason"] for each in office.records()} == {
        None,
        "Its body names no customer: name is null.",
    }
    assert office.calls == 1


def test_outputs_go_to_the_customer_they_name(batch):
    found = sorted(messages_of("b1", batch, "id"), key=lambda each: each.message_id)

    assert found[0] == OutgoingMessage(
        "m-1", "Won", {"id": 17, "name": "Ada"}, "17", {"trace": "m-1"}, "b1", None
    )
    assert found[1].customer == "18"
    assert {each.customer for each in messages_of("b1", batch)} == {"default"}


def test_the_outputs_of_a_batch_are_found_by_its_ledger(batch, tmp_path):
    store = f"sqlite:///{tmp_path}/store.db"

    found = asyncio.run(batch_messages(store, "games", "b1", types=["Won"], customer="id"))

    assert [each.customer for each in found] == ["17"]


def test_senders_without_async_work_beside_each_other(office):
    began = time.monotonic()

    assert office.deliver([message(n) for n in range(8)], sender=lambda _: time.sleep(0.2)) == {"sent": 8}
    assert time.monotonic() - began < 8 * 0.2


def test_no_more_are_sent_at_a_time_than_may_be(office):
    under_way = most = 0

    async def send(_):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        await asyncio.sleep(0.001)
        under_way -= 1

    office.deliver([message(n) for n in range(20)], sender=send, policy=DeliveryPolicy(concurrency=3))

    assert most == 3


def test_the_receiver_says_when_to_try_again(office):
    office.errors = [TransientError("busy", retry_after=0.05)]
    began = time.monotonic()

    office.deliver(settings=AT_LEAST_ONCE)

    assert time.monotonic() - began >= 0.05


def test_a_send_may_not_take_longer_than_its_lock_lasts(office):
    with pytest.raises(UsageError, match=r"A send may take 120 s, but its lock lasts 120 s only.*_LIMIT_MS"):
        office.deliver(policy=DeliveryPolicy(timeout=120))


def test_one_that_is_told_to_stop_ends_what_it_is_sending(office):
    stopped = asyncio.Event()

    async def send(each):
        stopped.set()
        await asyncio.sleep(0.01)
        office.sent.append(each.message_id)

    policy = DeliveryPolicy(concurrency=2)
    counts = office.deliver([message(n) for n in range(50)], sender=send, policy=policy, stopped=stopped)

    assert counts == {"sent": len(office.sent)}
    assert 0 < len(office.sent) <= 2
    assert office.deliver([message(n) for n in range(50)]) == {"sent": 50 - counts["sent"]}


def test_a_store_of_keys_that_fails_ends_the_delivery_and_no_record_is_lost(office, monkeypatch):
    take = type(office.keys).put

    async def put(self, key, *given, **named):
        if key.message == "m-30":
            raise OSError("The disk is full.")
        return await take(self, key, *given, **named)

    monkeypatch.setattr(type(office.keys), "put", put)

    with pytest.raises(OSError, match="disk"):
        office.deliver([message(n) for n in range(50)], policy=QUICK)
    assert len(office.records()) == len(office.sent) > 0


def test_messages_that_cannot_be_read_end_the_delivery_and_no_record_is_lost(office):
    def messages():
        yield from (message(n) for n in range(100))
        raise OSError("The file is damaged.")

    with pytest.raises(OSError, match="damaged"):
        office.deliver(messages())
    assert len(office.records()) == len(office.sent) > 0


def test_records_that_cannot_be_written_end_the_delivery_and_are_found_by_the_next(office, monkeypatch):
    def fail(*_):
        raise OSError("The disk is full.")

    with monkeypatch.context() as patch:
        patch.setattr(RecordFiles, "add", fail)
        with pytest.raises(OSError, match="full"):
            office.deliver([message(n) for n in range(20)])
    sent = list(office.sent)
    assert sent

    office.deliver([message(n) for n in range(20)])

    assert sorted(office.sent) == sorted(f"m-{n}" for n in range(20))
    assert {each["result"] for each in office.records()} == {"sent"}
    assert len(office.records()) == 20

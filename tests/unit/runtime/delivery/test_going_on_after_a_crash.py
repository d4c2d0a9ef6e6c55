"""A delivery that died is told by its keys what became of the messages whose records it had not written."""

import asyncio
from datetime import timedelta

import pytest

from runtime.algorithms.last_hop.settings import DeliverySettings
from runtime.delivery import DeliveryPolicy
from runtime.delivery.records import RecordFiles
from tests.unit.runtime.delivery.office import AT_LEAST_ONCE, AT_MOST_ONCE, message

SHORT = timedelta(milliseconds=200)
PATIENT = DeliveryPolicy(timeout=0.1)


class DiedError(BaseException):
    """The process is gone."""


@pytest.mark.parametrize("settings", [AT_MOST_ONCE, AT_LEAST_ONCE], ids=["at most", "at least"])
def test_a_record_that_was_not_written_is_that_of_the_key(office, monkeypatch, settings):
    with monkeypatch.context() as patch:
        patch.setattr(RecordFiles, "flush", lambda _: None)
        office.deliver(settings=settings)
    assert office.records() == []

    assert office.deliver(settings=settings) == {"sent": 1}
    assert office.calls == 1


def test_at_most_once_it_is_unknown_whether_a_message_was_sent_whose_process_died_meanwhile(office):
    settings = DeliverySettings(lock_limit=SHORT)

    async def send(_):
        raise DiedError

    with pytest.raises(BaseExceptionGroup):
        office.deliver(settings=settings, sender=send, policy=PATIENT)

    # Another process may be sending it still: first its time must be over
    assert office.deliver(settings=settings, policy=PATIENT) == {"unknown": 1}
    assert office.sent == []
    assert "died" in office.records()[0]["reason"]


def test_at_least_once_a_message_is_sent_again_when_the_lock_of_the_dead_has_expired(office):
    settings = DeliverySettings(frozenset("*"), SHORT)

    async def send(each):
        office.sent.append(each.message_id)
        raise DiedError

    with pytest.raises(BaseExceptionGroup):
        office.deliver(settings=settings, sender=send, policy=PATIENT)

    assert office.deliver(settings=settings, policy=PATIENT) == {"sent": 1}
    assert office.sent == ["m-1", "m-1"]


def test_two_processes_on_one_folder_send_each_message_once(office):
    async def send(each):
        await asyncio.sleep(0.001)
        office.sent.append(each.message_id)

    async def both():
        await asyncio.gather(*(office.delivery(sender=send).run(messages) for _ in range(2)))

    messages = [message(n) for n in range(20)]
    asyncio.run(both())

    assert sorted(office.sent) == sorted(each.message_id for each in messages)
    assert {each["result"] for each in office.records()} == {"sent"}

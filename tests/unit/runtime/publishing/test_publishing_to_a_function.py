"""A batch to a function of a user: at most once or at least once, by choice."""

from __future__ import annotations

import pytest

from runtime.errors import PermanentError, TargetError, TransientError, UsageError
from runtime.publishing.publisher import Promise
from runtime.publishing.runner import PublishOptions


class Mailbox:
    """Takes outputs, but raises what it is told to, once for each output."""

    def __init__(self, error=None):
        self.sent = []
        self._error = error
        self._refused = set()

    def send(self, output):
        if self._error is not None and output.message_id not in self._refused:
            self._refused.add(output.message_id)
            raise self._error
        self.sent.append(output.message_id)

    async def send_later(self, output):
        self.send(output)


@pytest.mark.parametrize("promise", [Promise.AT_MOST_ONCE, Promise.AT_LEAST_ONCE])
@pytest.mark.parametrize("name", ["send", "send_later"])
def test_each_output_is_given_to_it_in_order(batch, promise, name):
    mailbox = Mailbox()

    batch.publish("post:send", send=getattr(mailbox, name), strategy=promise)

    assert sorted(mailbox.sent) == sorted(batch.ids)
    for game in range(6):
        ours = [each for each in mailbox.sent if each.startswith(f"g{game}-")]
        assert ours == [f"g{game}-{number}" for number in range(4)]


def test_at_least_once_calls_it_again_after_an_error(make):
    batch, mailbox = make(1, 2), Mailbox(TransientError("busy", retry_after=0.01))

    batch.publish("post:send", send=mailbox.send, strategy=Promise.AT_LEAST_ONCE)

    assert set(mailbox.sent) == batch.ids


def test_at_most_once_does_not_and_says_why_it_was_not_sent(make):
    batch, mailbox = make(1, 2), Mailbox(TransientError("busy"))

    done = batch.publish("post:send", send=mailbox.send, strategy=Promise.AT_MOST_ONCE)
    again = batch.publish("post:send", send=mailbox.send, strategy=Promise.AT_MOST_ONCE)

    assert mailbox.sent == []
    assert {(each.message_id, each.why) for each in done.refused} == {
        (each, "TransientError: busy") for each in batch.ids
    }
    assert again.refused == done.refused


def test_a_permanent_error_is_a_dead_letter(make):
    batch, mailbox = make(1, 2), Mailbox(PermanentError("no such number"))

    done = batch.publish("post:send", send=mailbox.send, strategy=Promise.AT_LEAST_ONCE)

    assert {each.message_id for each in done.refused} == batch.ids


def test_a_function_that_always_raises_stops_the_work_which_can_be_resumed(make):
    batch, mailbox = make(1, 2), Mailbox(ValueError("oops"))

    with pytest.raises(TargetError, match="in 1 attempts: ValueError: oops"):
        batch.publish("post:send", send=mailbox.send, strategy=Promise.AT_LEAST_ONCE, attempts=1)

    batch.publish("post:send", PublishOptions(), send=mailbox.send, strategy=Promise.AT_LEAST_ONCE)
    assert set(mailbox.sent) == batch.ids


def test_it_must_be_said_how_often_it_is_called(batch):
    with pytest.raises(UsageError, match="--strategy at-most-once or at-least-once"):
        batch.publish("post:send", send=print)

"""What a target refused is sent again, once its cause is mended: as often as the target promises, and in order."""

from __future__ import annotations

import asyncio

import pytest

from runtime.errors import PermanentError, TargetError, TransientError, UsageError
from runtime.publishing import DeliverySettings
from runtime.publishing.publisher import PublishOptions
from runtime.publishing.runner import letters, redrive

AT_MOST_ONCE, AT_LEAST_ONCE = DeliverySettings(), DeliverySettings(frozenset("*"))


class Post:
    """Refuses the outputs of some games for good, and takes all others."""

    def __init__(self, batch, settings=AT_LEAST_ONCE, refused=("g1", "g2")):
        self.refused = set(refused)
        self.sent = []
        self.error: type[BaseException] = PermanentError
        self.target = batch.target("post:send", send=self.send, attempts=1, settings=settings)

    def send(self, message):
        game = message.message_id.partition("-")[0]
        if game in self.refused:
            raise self.error(f"{game} has moved")
        self.sent.append(message.message_id)


@pytest.fixture
def post(batch):
    """Return a post that has refused two games of a batch."""
    post = Post(batch)
    batch.publish(post.target, TWO)
    assert len(post.sent) == 16
    post.sent.clear()
    return post


TWO = PublishOptions(slices=2)


class DiedError(BaseException):
    """The process is gone."""


def again(batch, target, **options):
    return batch.redriven(target, PublishOptions(**options))


def listed(batch, target):
    found = batch.on_table(lambda table: letters(table, batch.record, target))
    return [(each.message_id, each.handler, each.why) for each in found.refused]


def test_what_the_target_takes_now_is_a_letter_no_more_and_the_rest_has_its_new_reason(batch, post):
    assert listed(batch, post.target) == [
        (f"{game}-{number}", "ShootingRange", f"PermanentError: {game} has moved")
        for game in ("g1", "g2")
        for number in range(4)
    ]
    assert post.sent == []

    post.refused = {"g2"}
    done = again(batch, post.target)
    assert post.sent == [f"g1-{number}" for number in range(4)]
    assert done.outputs == 4
    assert {each.business_id for each in done.refused} == {"g2"}

    post.refused = set()
    assert again(batch, post.target).refused == []
    assert again(batch, post.target).outputs == 0
    assert sorted(post.sent) == sorted(f"{game}-{number}" for game in ("g1", "g2") for number in range(4))


@pytest.mark.parametrize("settings", [AT_MOST_ONCE, AT_LEAST_ONCE], ids=["at most", "at least"])
def test_two_redrives_send_each_output_once(batch, settings):
    post = Post(batch, settings)
    batch.publish(post.target, TWO)
    post.sent.clear()
    post.refused = set()

    async def twice(table):
        work = (redrive(table, batch.record, str(batch.out), post.target) for _ in range(2))
        return await asyncio.gather(*work)

    done = batch.on_table(twice)

    assert sorted(post.sent) == sorted(set(post.sent))
    assert sum(each.outputs for each in done) == 8


def test_at_most_once_what_was_under_way_when_it_was_killed_is_in_doubt_and_a_redrive_sends_it(batch):
    post = Post(batch, AT_MOST_ONCE, refused=("g1",))
    batch.publish(post.target, TWO)
    post.error = DiedError

    async def die(_):
        raise DiedError

    with pytest.raises(DiedError):
        again(batch, batch.target("post:send", send=die), concurrency=1)

    in_doubt, *others = [why for *_, why in listed(batch, post.target)]
    assert in_doubt.startswith("The process ended while sending it again")
    assert others == ["PermanentError: g1 has moved"] * 3
    post.refused = set()
    assert again(batch, post.target).outputs == 4


def test_one_that_stops_is_resumed(batch, post):
    def send(message):
        if message.message_id == "g1-2":
            raise TransientError("busy")
        post.sent.append(message.message_id)

    with pytest.raises(TargetError, match="did not accept g1-2"):
        again(batch, batch.target("post:send", send=send, attempts=1, settings=AT_LEAST_ONCE), concurrency=1)
    assert post.sent == ["g1-0", "g1-1"]

    post.refused = set()
    assert again(batch, post.target).outputs == 6
    assert len(set(post.sent)) == len(post.sent) == 8


def test_a_batch_that_was_not_published_so_has_no_letters(batch, post):
    other = batch.target("post:other", send=post.send)

    with pytest.raises(UsageError, match="was not published to post:other"):
        again(batch, other)

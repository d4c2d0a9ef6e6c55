"""The last hop, one delivery after another. `tests/model` explores it with all crashes and lost answers."""

from contextlib import suppress

import pytest

from eventstore import StoreUnavailableError, drive
from runtime.publishing.last_hop import End
from tests.unit.runtime.algorithms.world import At, CrashError, Pause, crash, lose_answer, resume
from tests.unit.runtime.publishing.post import AT_LEAST_ONCE, AT_MOST_ONCE, CUSTOMER, Post
from tests.unit.runtime.tables import rows
from tests.unit.runtime.worker import HOUR, SECOND

BOTH = pytest.mark.parametrize("settings", [AT_MOST_ONCE, AT_LEAST_ONCE], ids=["at most", "at least"])
MINUTE = 60 * SECOND


def deliver(post: Post, **disturbances):
    return drive(post.deliver(**disturbances))


def calls(settings) -> int:
    post = Post(settings)
    deliver(post)
    return len(post.calls)


@BOTH
def test_a_message_is_sent_once_and_its_copy_is_filtered(settings):
    post = Post(settings)

    first, again = deliver(post), deliver(post)

    assert (first.end, again.end, again.why) == (End.SENT, End.FILTERED, "filtered by idempotency")
    assert first.is_done
    assert again.is_done
    assert (post.sent, post.end()) == (1, "sent")


@BOTH
def test_other_messages_and_the_same_to_others_are_sent(settings):
    post = Post(settings)

    deliver(post)
    deliver(post, message="m-2")
    for customer in ("18", "19"):  # the key is of customer and message
        deliver(post, customer=customer)

    assert post.sent == 4


@BOTH
def test_one_message_in_two_spellings_of_its_id_is_sent_once(settings):
    post = Post(settings)

    deliver(post, message="7D444840-9DC0-11D1-B245-5FFDCE74FAD2")
    deliver(post, message="{7d4448409dc011d1b2455ffdce74fad2}")

    assert post.sent == 1


@BOTH
def test_a_key_expires_after_the_ttl_of_its_customer(settings):
    post = Post(settings)
    deliver(post)
    post.clock.now += 6 * HOUR - 1
    before = deliver(post)
    post.clock.now += 1

    after = deliver(post)

    assert (before.end, after.end) == (End.FILTERED, End.SENT)


@BOTH
def test_what_is_sent_and_what_is_filtered_costs_two_requests(settings):
    post = Post(settings)

    deliver(post)
    sent = [call for call in post.calls if call not in ("send", "barrier")]
    deliver(post)
    filtered = [call for call in post.calls if call not in ("send", "barrier")]

    assert (sent, filtered) == (["transact"] * 2, ["transact", "get"])


@BOTH
def test_a_lost_answer_keeps_nobody_from_sending(settings):
    # The key that is found there afterwards is this delivery's own
    for number in range(1, calls(settings) + 1):
        post = Post(settings)
        with suppress(StoreUnavailableError):  # a lost barrier, or the sender's own answer
            deliver(post, after=At(number, lose_answer))
        assert post.sent == 1
        assert post.end() in {"sent", "not_sent", None}


@BOTH
def test_an_error_that_does_not_pass_is_recorded_and_the_message_is_not_sent_again(settings):
    post = Post(settings)
    post.error = ValueError("no such number")

    outcome = deliver(post)
    again = deliver(post)

    assert (outcome.end, outcome.why, outcome.is_done) == (End.NOT_SENT, "ValueError: no such number", True)
    assert again.end is End.FILTERED
    assert (post.end(), again.found.why) == ("not_sent", outcome.why)


def test_at_least_once_sends_again_after_an_error_that_passes():
    post = Post(AT_LEAST_ONCE)
    post.error = ConnectionError("no line")
    first = deliver(post)
    post.error = None

    again = deliver(post)

    assert (first.end, first.try_again_at) == (End.NOT_SENT, post.clock.now)
    assert again.end is End.SENT
    assert post.end() == "sent"


def test_at_most_once_does_not_send_again_even_if_the_error_passes():
    post = Post(AT_MOST_ONCE)
    post.error = ConnectionError("no line")
    first = deliver(post)
    post.error = None

    again = deliver(post)

    assert (first.end, first.is_done, again.end) == (End.NOT_SENT, True, End.FILTERED)
    assert post.sent == 0


@BOTH
def test_what_timed_out_may_have_arrived(settings):
    post = Post(settings)
    post.error = TimeoutError("no line")

    outcome = deliver(post)

    assert outcome.end is End.UNKNOWN
    assert post.end() == ("unknown" if settings is AT_MOST_ONCE else None)


def test_at_most_once_loses_a_send_after_a_crash_and_a_report_shows_it():
    # This is what it promises: rather not at all than twice.
    post = Post(AT_MOST_ONCE)
    with pytest.raises(CrashError):
        deliver(post, before=lambda call: crash() if call == "send" else None)

    assert deliver(post).end is End.FILTERED
    assert deliver(post, message="m-2").end is End.SENT
    assert post.sent == 1
    assert post.unended() == [(CUSTOMER, "m-1")]


def test_a_copy_that_finds_a_lock_is_tried_again_after_its_expiry():
    # Acknowledged, it would be lost together with the other, which may have died
    post = Post(AT_LEAST_ONCE)
    with pytest.raises(CrashError):
        deliver(post, before=lambda call: crash() if call == "send" else None)

    early = deliver(post)
    assert (early.end, early.is_done, post.sent) == (End.LOCKED, False, 0)
    assert early.try_again_at == post.clock.now + 2 * MINUTE

    post.clock.now = early.try_again_at
    assert deliver(post).end is End.SENT
    assert post.end() == "sent"


def test_a_crash_before_the_seal_and_a_copy_send_twice_at_least_once():
    # This is what it promises: rather twice than not at all.
    post = Post(AT_LEAST_ONCE)
    with pytest.raises(CrashError):
        deliver(post, after=lambda call: crash() if call == "sent" else None)
    post.clock.now += 2 * MINUTE

    deliver(post)

    assert post.sent == 2


def test_a_slow_delivery_whose_lock_nobody_took_seals_it():
    post = Post(AT_LEAST_ONCE)
    slow = post.deliver(before=lambda call: Pause() if call == "send" else None)
    assert resume(slow)
    post.clock.now += 3 * MINUTE

    assert not resume(slow)

    assert deliver(post).end is End.FILTERED


@BOTH
def test_a_redrive_sends_again_what_was_not_sent_and_nothing_else(settings):
    post = Post(settings)
    post.error = ValueError("no such number")
    deliver(post)
    post.error = None

    assert deliver(post, is_redrive=True).end is End.SENT
    assert deliver(post, is_redrive=True).end is End.FILTERED
    assert (post.sent, post.end()) == (1, "sent")


def test_a_redrive_leaves_a_lock_alone():
    post = Post(AT_LEAST_ONCE)
    other = post.deliver(before=lambda call: Pause() if call == "send" else None)
    assert resume(other)

    assert deliver(post, is_redrive=True).end is End.LOCKED
    assert not resume(other)


def test_keys_that_have_expired_can_be_deleted():
    post = Post(AT_MOST_ONCE)
    deliver(post)
    post.clock.now += 6 * HOUR
    deliver(post, message="m-2")

    assert drive(post.keys.forget_expired(CUSTOMER, post.clock.now)) == 1
    assert [key for _, key in rows(post.table) if key.startswith("ID-")] == ["ID-T-m-2"]

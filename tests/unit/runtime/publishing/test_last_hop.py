"""The last hop, one delivery after another. `tests/model` explores it with all crashes and lost answers."""

from __future__ import annotations

from contextlib import suppress
from datetime import timedelta

import pytest

from eventstore import InterceptedTable, StoreUnavailableError, drive
from runtime import UsageError
from runtime.publishing import DeliverySettings
from runtime.publishing.last_hop import Delivered, DeliveryKey, End, IdempotentDelivery, TableKeys
from tests.unit.runtime.accidents import At, CrashError, Pause, crash, lose_answer, resume
from tests.unit.runtime.algorithms.world import Step
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import HOUR, SECOND, ToldClock

CUSTOMER = "17"
AT_MOST_ONCE = DeliverySettings()
AT_LEAST_ONCE = DeliverySettings(frozenset({"*"}))


class Post:
    """Delivers messages to customers, as often as they come."""

    def __init__(self, settings: DeliverySettings) -> None:
        self.settings = settings
        self.table = memory_table()
        self.clock = ToldClock()
        self.sent = 0
        self.calls: list[str] = []
        self.error: Exception | None = None
        self.keys = TableKeys(self.table)
        self._names = 0

    async def deliver(
        self,
        *,
        before: Step | None = None,
        after: Step | None = None,
        message: str = "m-1",
        customer: str = CUSTOMER,
        is_redrive: bool = False,
    ) -> Delivered:
        self.calls.clear()

        async def send() -> None:
            await self._step("send", before)
            if self.error is not None:
                raise self.error
            self.sent += 1
            await self._step("sent", after, note=False)

        table = InterceptedTable(
            self.table,
            before=lambda call, *_: self._step(call, before),
            after=lambda call, *_: self._step(call, after, note=False),
        )
        delivery = IdempotentDelivery(
            TableKeys(table), self.settings, clock=self.clock, new_id=self._new_id, retries=PATIENCE
        )
        return await delivery.deliver(customer, message, send, is_redrive=is_redrive)

    def end(self) -> str | None:
        """Return how the delivery ended that sealed the key, as the key says."""
        key = drive(self.keys.get(DeliveryKey.of(CUSTOMER, "m-1")))
        return None if key is None else key.end

    def unended(self) -> list[tuple[str, str]]:
        async def read() -> list[tuple[str, str]]:
            return [each async for each in self.keys.unended()]

        return drive(read())

    def _new_id(self) -> str:
        self._names += 1
        return f"delivery{self._names:04}"

    async def _step(self, call: str, step: Step | None, *, note: bool = True) -> None:
        if note:
            self.calls.append(call)
        waiting = step(call) if step else None
        if waiting is not None:
            await waiting


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
    post, costs = Post(settings), []
    ends = []
    for spelling in ("7D444840-9DC0-11D1-B245-5FFDCE74FAD2", "{7d4448409dc011d1b2455ffdce74fad2}"):
        ends.append(deliver(post, message=spelling))
        costs.append([call for call in post.calls if call not in ("send", "barrier")])

    assert [each.end for each in ends] == [End.SENT, End.FILTERED]
    assert ends[1].why == "filtered by idempotency"
    assert all(each.is_done for each in ends)
    assert post.sent == 1
    assert costs == [["transact"] * 2, ["transact", "get"]]


@BOTH
def test_other_messages_and_the_same_to_others_are_sent(settings):
    post = Post(settings)

    deliver(post)
    deliver(post, message="m-2")
    for customer in ("18", "19"):  # the key is of customer and message
        deliver(post, customer=customer)

    assert post.sent == 4


@BOTH
def test_a_key_expires_after_the_ttl_of_its_customer_and_can_be_deleted(settings):
    post = Post(settings)
    deliver(post)
    post.clock.now += 6 * HOUR - 1
    assert deliver(post).end is End.FILTERED
    post.clock.now += 1
    assert deliver(post).end is End.SENT

    post.clock.now += 6 * HOUR
    deliver(post, message="m-2")
    assert drive(post.keys.forget_expired(CUSTOMER, post.clock.now)) == 1
    assert [key for _, key in rows(post.table) if key.startswith("ID-")] == ["ID-T-m-2"]


@BOTH
def test_a_lost_answer_keeps_nobody_from_sending(settings):
    # The key that is found there afterwards is this delivery's own
    for number in range(1, calls(settings) + 1):
        post = Post(settings)
        with suppress(StoreUnavailableError):  # a lost barrier, or the sender's own answer
            deliver(post, after=At(number, lose_answer))
        assert post.sent == 1
        assert post.end() in {"sent", "not_sent", None}


@pytest.mark.parametrize(
    ("settings", "error", "end", "key", "again"),
    [
        (AT_MOST_ONCE, ValueError("no such number"), End.NOT_SENT, "not_sent", End.FILTERED),
        (AT_LEAST_ONCE, ValueError("no such number"), End.NOT_SENT, "not_sent", End.FILTERED),
        # One that passes
        (AT_MOST_ONCE, ConnectionError("no line"), End.NOT_SENT, "not_sent", End.FILTERED),
        (AT_LEAST_ONCE, ConnectionError("no line"), End.NOT_SENT, None, End.SENT),
        # What timed out may have arrived
        (AT_MOST_ONCE, TimeoutError("no line"), End.UNKNOWN, "unknown", End.FILTERED),
        (AT_LEAST_ONCE, TimeoutError("no line"), End.UNKNOWN, None, End.SENT),
    ],
)
def test_an_error_is_recorded_and_the_message_not_sent_again_unless_it_passes(
    settings, error, end, key, again
):
    post = Post(settings)
    post.error = error
    first = deliver(post)
    assert (first.end, first.why, post.end()) == (end, f"{type(error).__name__}: {error}", key)
    assert first.is_done is (key is not None)
    assert key or first.try_again_at == post.clock.now
    post.error = None

    second = deliver(post)

    assert second.end is again
    assert post.end() == (key or "sent")
    assert key is None or second.found.why == first.why


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


def test_a_slow_delivery_whose_lock_nobody_took_seals_it_and_a_redrive_leaves_a_lock_alone():
    post = Post(AT_LEAST_ONCE)
    slow = post.deliver(before=lambda call: Pause() if call == "send" else None)
    assert resume(slow)
    assert deliver(post, is_redrive=True).end is End.LOCKED
    post.clock.now += 3 * MINUTE

    assert not resume(slow)

    assert deliver(post).end is End.FILTERED


@BOTH
def test_a_redrive_sends_again_what_was_not_sent_and_nothing_else(settings):
    post = Post(settings)
    post.error = ValueError("no such number")
    deliver(post)
    post.error = None

    assert [deliver(post, is_redrive=True).end for _ in "ab"] == [End.SENT, End.FILTERED]
    assert (post.sent, post.end()) == (1, "sent")


# Settings.

read = DeliverySettings.read
CUSTOMERS, TTL = "AT_LEAST_ONCE_SENDING_CUSTOMERS", "TTL_IDEMPOTENCY_PER_CUSTOMER_SEC"
LIMITS = "TTL_LOCK_TIME_LIMIT_MS", "TTL_LOCK_TIME_LIMIT_MILLIS"


def test_settings_are_read_from_the_environment():
    assert read({}) == DeliverySettings()
    assert not read({}).is_at_least_once("17")
    assert (read({}).lock_limit, read({}).ttl_of("17")) == (timedelta(minutes=2), timedelta(hours=6))

    for names in (LIMITS[:1], LIMITS[1:], LIMITS):
        assert read(dict.fromkeys(names, "1500")).lock_limit == timedelta(seconds=1.5)

    own = read({TTL: '{"17": 60, "default": 120}'})
    assert (own.ttl_of("17"), own.ttl_of("18")) == (timedelta(minutes=1), timedelta(minutes=2))


@pytest.mark.parametrize(("named", "customers"), [("17, 18,", {"17", "18"}), ("*", {"17", "18", "1", ""})])
def test_customers_are_named_with_commas_and_a_star_is_every_customer(named, customers):
    settings = read({CUSTOMERS: named})

    assert {each for each in ("17", "18", "1", "") if settings.is_at_least_once(each)} == customers


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        *(({LIMITS[0]: value}, "a whole number of milliseconds") for value in ("two minutes", "0", "-5")),
        ({LIMITS[0]: "1", LIMITS[1]: "2"}, f"{LIMITS[0]} and {LIMITS[1]} contradict each other"),
        *(({TTL: value}, "a JSON object of") for value in ("3600", "{17: 1}", '{"17": true}', '{"17": 0}')),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(variables, sentence):
    with pytest.raises(UsageError, match=sentence):
        read(variables)

"""The last hop, one delivery after another. `tests/model` explores it with all crashes and lost answers."""

from __future__ import annotations

from datetime import timedelta

import pytest

from eventstore import InterceptedTable, drive
from runtime import UsageError
from runtime.publishing import DeliverySettings
from runtime.publishing.last_hop import Delivered, DeliveryKey, IdempotentDelivery, TableKeys
from runtime.publishing.publisher import Result
from tests.unit.runtime.accidents import CrashError, crash
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import HOUR, SECOND, ToldClock

CUSTOMER = "17"
AT_MOST_ONCE, AT_LEAST_ONCE = DeliverySettings(), DeliverySettings(frozenset({"*"}))
BOTH = pytest.mark.parametrize("settings", [AT_MOST_ONCE, AT_LEAST_ONCE], ids=["at most", "at least"])


class Post:
    """Delivers messages to one customer, and counts calls of the store."""

    def __init__(self, settings: DeliverySettings) -> None:
        self.memory, self.clock, self.sent = memory_table(), ToldClock(), 0
        self.table = InterceptedTable(self.memory)
        self.keys = TableKeys(self.table)
        self.delivery = IdempotentDelivery(self.keys, settings, clock=self.clock, retries=PATIENCE)

    async def send(self) -> None:
        self.sent += 1

    def deliver(self, message: str = "m-1", send=None, **options: bool) -> Delivered:
        return drive(self.delivery.deliver(CUSTOMER, message, send or self.send, **options))


@BOTH
def test_a_message_is_sent_once_and_its_copy_is_filtered(settings):
    post = Post(settings)

    first = post.deliver("7D444840-9DC0-11D1-B245-5FFDCE74FAD2")
    assert (post.table.counts["transact"], post.table.counts["get"]) == (2, 0)
    copy = post.deliver("{7d4448409dc011d1b2455ffdce74fad2}")
    assert (post.table.counts["transact"], post.table.counts["get"]) == (3, 1)

    assert (first.end, copy.end, post.sent) == (Result.SENT, Result.FILTERED, 1)
    assert copy.why == "filtered by idempotency"
    assert first.is_done
    assert copy.is_done


@BOTH
def test_a_key_expires_after_the_ttl_of_its_customer_and_can_be_deleted(settings):
    post = Post(settings)
    post.deliver()
    post.clock.now += 6 * HOUR - 1
    assert post.deliver().end is Result.FILTERED
    post.clock.now += 1
    assert post.deliver().end is Result.SENT

    post.clock.now += 6 * HOUR
    post.deliver("m-2")
    assert drive(post.keys.forget_expired(CUSTOMER, post.clock.now)) == 1
    assert [key for _, key in rows(post.memory) if key.startswith("ID-")] == ["ID-T-m-2"]


def test_a_copy_that_finds_a_lock_is_tried_again_after_its_expiry():
    # Acknowledged, the copy would be lost together with the other delivery, which may have died
    post = Post(AT_LEAST_ONCE)

    async def die() -> None:
        crash()

    with pytest.raises(CrashError):
        post.deliver(send=die)

    for early in (post.deliver(), post.deliver(is_redrive=True)):
        assert (early.end, early.is_done, post.sent) == (Result.LOCKED, False, 0)
        assert early.try_again_at == post.clock.now + 120 * SECOND

    post.clock.now += 120 * SECOND
    assert post.deliver().end is Result.SENT
    stored = drive(post.keys.get(DeliveryKey.of(CUSTOMER, "m-1")))
    assert stored is not None
    assert stored.end == "sent"


@pytest.mark.parametrize(("settings", "end"), [(AT_MOST_ONCE, "not_sent"), (AT_LEAST_ONCE, "unlocked")])
def test_at_least_once_an_error_that_passes_unlocks_the_key(settings, end):
    post = Post(settings)

    async def fail() -> None:
        raise ConnectionError("no line")

    delivered = post.deliver(send=fail)
    stored = drive(post.keys.get(DeliveryKey.of(CUSTOMER, "m-1")))

    assert (delivered.end, delivered.why) == (Result.NOT_SENT, "ConnectionError: no line")
    assert delivered.try_again_at == (post.clock.now if end == "unlocked" else None)
    assert ("unlocked" if stored is None else stored.end) == end


# Settings.

read = DeliverySettings.read
CUSTOMERS, TTL = "AT_LEAST_ONCE_SENDING_CUSTOMERS", "TTL_IDEMPOTENCY_PER_CUSTOMER_SEC"
LIMITS = "TTL_LOCK_TIME_LIMIT_MS", "TTL_LOCK_TIME_LIMIT_MILLIS"


def test_settings_are_read_from_the_environment():
    assert read({}) == DeliverySettings()
    assert (read({}).lock_limit, read({}).ttl_of("17")) == (timedelta(minutes=2), timedelta(hours=6))
    for names in (LIMITS[:1], LIMITS[1:], LIMITS):
        assert read(dict.fromkeys(names, "1500")).lock_limit == timedelta(seconds=1.5)
    own = read({TTL: '{"17": 60, "default": 120}'})
    assert (own.ttl_of("17"), own.ttl_of("18")) == (timedelta(minutes=1), timedelta(minutes=2))


@pytest.mark.parametrize(
    ("named", "customers"), [("", set()), ("17, 18,", {"17", "18"}), ("*", {"17", "18", "1", ""})]
)
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
def test_invalid_settings_are_refused_with_a_sentence(variables, sentence):
    with pytest.raises(UsageError, match=sentence):
        read(variables)

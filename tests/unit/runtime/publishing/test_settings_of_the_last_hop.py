"""The settings of deliveries are read by the names that operators know; what cannot be meant is told in a sentence."""

from datetime import timedelta

import pytest

from runtime import UsageError
from runtime.publishing import DeliverySettings

read = DeliverySettings.read
CUSTOMERS, TTL = "AT_LEAST_ONCE_SENDING_CUSTOMERS", "TTL_IDEMPOTENCY_PER_CUSTOMER_SEC"
LIMITS = "TTL_LOCK_TIME_LIMIT_MS", "TTL_LOCK_TIME_LIMIT_MILLIS"


def test_without_settings_it_is_at_most_once_with_six_hours():
    settings = read({})

    assert settings == DeliverySettings()
    assert not settings.is_at_least_once("17")
    assert (settings.lock_limit, settings.ttl_of("17")) == (timedelta(minutes=2), timedelta(hours=6))


@pytest.mark.parametrize(("named", "customers"), [("17, 18,", {"17", "18"}), ("*", {"17", "18", "1", ""})])
def test_customers_are_named_with_commas_and_a_star_is_every_customer(named, customers):
    settings = read({CUSTOMERS: named})

    assert {each for each in ("17", "18", "1", "") if settings.is_at_least_once(each)} == customers


@pytest.mark.parametrize("names", [LIMITS[:1], LIMITS[1:], LIMITS])
def test_the_limit_of_a_lock_goes_by_two_names_which_may_say_the_same(names):
    assert read(dict.fromkeys(names, "1500")).lock_limit == timedelta(seconds=1.5)


def test_a_customer_has_its_own_ttl_or_the_default():
    settings = read({TTL: '{"17": 60, "default": 120}'})

    assert (settings.ttl_of("17"), settings.ttl_of("18")) == (timedelta(minutes=1), timedelta(minutes=2))


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        *(({LIMITS[0]: value}, "a whole number of milliseconds") for value in ("two minutes", "0", "-5")),
        (
            {LIMITS[0]: "1", LIMITS[1]: "2"},
            f"{LIMITS[0]} and {LIMITS[1]} say different things: set one of them",
        ),
        *(
            ({TTL: value}, "an object of customer ids and seconds")
            for value in ("3600", "{17: 1}", '{"17": true}', '{"17": 0}')
        ),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(variables, sentence):
    with pytest.raises(UsageError, match=sentence):
        read(variables)

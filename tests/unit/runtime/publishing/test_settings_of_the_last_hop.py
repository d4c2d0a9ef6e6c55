"""The settings of deliveries are read by the names that operators know; what cannot be meant is told in a sentence."""

from datetime import timedelta

import pytest

from runtime import UsageError
from runtime.publishing import DeliverySettings

read = DeliverySettings.read


def test_without_settings_it_is_at_most_once_with_six_hours():
    settings = read({})

    assert settings == DeliverySettings()
    assert not settings.is_at_least_once("17")
    assert (settings.lock_limit, settings.ttl_of("17")) == (timedelta(minutes=2), timedelta(hours=6))


def test_customers_are_named_with_commas():
    settings = read({"AT_LEAST_ONCE_SENDING_CUSTOMERS": "17, 18,"})

    assert [settings.is_at_least_once(customer) for customer in ("17", "18", "1", "")] == [
        True,
        True,
        False,
        False,
    ]


def test_a_star_is_every_customer():
    assert read({"AT_LEAST_ONCE_SENDING_CUSTOMERS": "*"}).is_at_least_once("17")


@pytest.mark.parametrize("name", ["TTL_LOCK_TIME_LIMIT_MS", "TTL_LOCK_TIME_LIMIT_MILLIS"])
def test_the_limit_of_a_lock_goes_by_two_names(name):
    assert read({name: "1500"}).lock_limit == timedelta(seconds=1.5)


def test_two_names_may_say_the_same():
    variables = {"TTL_LOCK_TIME_LIMIT_MS": "1500", "TTL_LOCK_TIME_LIMIT_MILLIS": "1500"}

    assert read(variables).lock_limit == timedelta(seconds=1.5)


def test_a_customer_has_its_own_ttl_or_the_default():
    settings = read({"TTL_IDEMPOTENCY_PER_CUSTOMER_SEC": '{"17": 60, "default": 120}'})

    assert (settings.ttl_of("17"), settings.ttl_of("18")) == (timedelta(minutes=1), timedelta(minutes=2))


@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        ({"TTL_LOCK_TIME_LIMIT_MS": "two minutes"}, "give it a whole number of milliseconds"),
        ({"TTL_LOCK_TIME_LIMIT_MS": "0"}, "give it a whole number of milliseconds"),
        ({"TTL_LOCK_TIME_LIMIT_MS": "-5"}, "give it a whole number of milliseconds"),
        (
            {"TTL_LOCK_TIME_LIMIT_MS": "1", "TTL_LOCK_TIME_LIMIT_MILLIS": "2"},
            "TTL_LOCK_TIME_LIMIT_MS and TTL_LOCK_TIME_LIMIT_MILLIS say different things: set one of them",
        ),
        ({"TTL_IDEMPOTENCY_PER_CUSTOMER_SEC": "3600"}, "give it an object of customer ids and seconds"),
        ({"TTL_IDEMPOTENCY_PER_CUSTOMER_SEC": "{17: 1}"}, "give it an object of customer ids and seconds"),
        (
            {"TTL_IDEMPOTENCY_PER_CUSTOMER_SEC": '{"17": true}'},
            "give it an object of customer ids and seconds",
        ),
        ({"TTL_IDEMPOTENCY_PER_CUSTOMER_SEC": '{"17": 0}'}, "give it an object of customer ids and seconds"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_a_sentence(variables, sentence):
    with pytest.raises(UsageError, match=sentence):
        read(variables)

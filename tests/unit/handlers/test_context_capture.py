"""A captured value is had once and recorded; a replay gets what was recorded."""

from collections.abc import Mapping
from datetime import UTC, datetime
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from handlers import CaptureError, Context


def context(recorded: Mapping[str, bytes] | None = None) -> Context:
    return Context("Bell", "east", "m-1", 0, recorded=recorded)


def not_called():
    pytest.fail("a replay must not look at the environment again")


plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text() | st.integers(0, 99), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(plain)
def test_a_replay_gets_the_value_that_was_captured_first(value):
    first = context()
    captured = first.capture("weather", lambda: value)

    replayed = context(first.captured).capture("weather", not_called)

    assert captured == replayed == value


def test_the_first_run_gets_the_value_as_a_replay_will():
    # Through the codec on the first run too: a tuple that a replay gets as a list is a list at once.
    first = context()

    assert first.capture("wind", lambda: (1, (2, 3))) == [1, [2, 3]]
    assert first.capture("sound", lambda: bytearray(b"x")) == b"x"


def test_a_value_that_is_changed_afterwards_is_not_changed_in_the_record():
    first = context()
    found = {"degrees": 20}
    captured = first.capture("weather", lambda: found)

    found["degrees"] = captured["degrees"] = 99

    assert context(first.captured).capture("weather", not_called) == {"degrees": 20}


def test_several_names_are_recorded_apart():
    first = context()
    first.capture("wind", lambda: 1)
    first.capture("rain", lambda: 2)

    replay = context(first.captured)

    assert replay.capture("rain", not_called) == 2
    assert replay.capture("wind", not_called) == 1
    assert replay.captured == first.captured


@pytest.mark.parametrize("recorded", [None, {"wind": b"\x01"}])
def test_a_name_used_twice_is_an_error(recorded):
    used = context(recorded)
    used.capture("wind", lambda: 1)

    with pytest.raises(
        CaptureError, match=r"^The handler captures 'wind' twice: use another name for each value.$"
    ):
        used.capture("wind", lambda: 2)


@pytest.mark.parametrize(
    "value",
    [
        object(),
        {1, 2},
        Decimal(1),
        datetime(2026, 1, 1, tzinfo=UTC),
        2**64,
        -(2**63) - 1,
        {"a": object()},
        {(1, 2): 3},
        "\ud800",
    ],
)
def test_what_is_no_plain_data_is_an_error_on_the_first_run(value):
    with pytest.raises(CaptureError, match=r"^The value captured as 'wind' cannot be recorded: "):
        context().capture("wind", lambda: value)


@pytest.mark.parametrize("name", ["\ud800", 7, None, b"wind"])
def test_a_name_that_cannot_be_recorded_is_an_error(name):
    with pytest.raises(CaptureError, match=r"^capture\(\) takes a name that is a str, valid as UTF-8, not "):
        context().capture(name, lambda: 1)


def test_a_replay_that_asks_for_what_was_not_recorded_is_an_error():
    with pytest.raises(
        CaptureError,
        match=r"^A replay captures 'rain', which was not captured when the message was first handled: ",
    ):
        context({"wind": b"\x01"}).capture("rain", not_called)


def test_a_replay_of_a_run_that_captured_nothing_looks_at_nothing():
    with pytest.raises(CaptureError, match="was not captured"):
        context({}).capture("wind", not_called)


def test_an_error_of_the_function_is_the_handlers_and_records_nothing():
    first = context()

    with pytest.raises(ZeroDivisionError):
        first.capture("wind", lambda: 1 // 0)

    assert first.captured == {}

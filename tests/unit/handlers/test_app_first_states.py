"""The first state of a business object is made of defaults, and has been through the codec like any other."""

from datetime import date
from decimal import Decimal

import pytest

from handlers import App, AppError, Context, Handler, Message, State, handles


class Rang(Message):
    tower: str


def app_with(state_type: type[State]) -> App:
    class Bell(Handler[state_type]):  # type: ignore[valid-type]
        @handles(by="tower")
        def rang(self, state: state_type, message: Rang, context: Context) -> state_type:  # type: ignore[valid-type]
            return state

    return App(Bell)


def test_the_defaults_are_the_first_state():
    class Data(State):
        rings: int = 3
        name: str = "Emmanuel"

    assert app_with(Data).handlers["Bell"].initial == b'{"rings":3,"name":"Emmanuel"}'


def test_a_missing_default_is_refused():
    class Data(State):
        rings: int
        name: str
        cast: int = 0

    with pytest.raises(
        AppError, match=r"^Data needs a default for rings, name: the defaults are the initial state.$"
    ):
        app_with(Data)


def test_a_default_of_a_related_type_is_stored_as_the_field_has_it():
    # Pydantic does not check defaults. Stored as 0, it would come back as 0.0 or "0" and look like a changed state.
    class Data(State):
        weight: float = 0
        price: Decimal = 0  # type: ignore[assignment]
        rings: int = 0.0  # type: ignore[assignment]

    assert app_with(Data).handlers["Bell"].initial == b'{"weight":0.0,"price":"0","rings":0}'


def test_a_default_that_its_field_cannot_hold_is_refused():
    class Data(State):
        cast_on: date = None  # type: ignore[assignment]

    with pytest.raises(
        AppError, match=r"^The defaults of Data cannot be the initial state: .*cast_on: Input should be"
    ):
        app_with(Data)

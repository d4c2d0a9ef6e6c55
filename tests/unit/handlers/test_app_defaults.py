"""A default that may be another one each time is refused: the first state and a replay would not be the same."""

import time
import uuid
from typing import Any

import pytest
from pydantic import BaseModel, ConfigDict, Field

from handlers import App, AppError, Context, Handler, Message, State, handles


class Rang(Message):
    tower: str


class Data(State):
    rings: int = 0


class Part(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = "part"


class Careless(BaseModel):
    model_config = ConfigDict(frozen=True)

    at: float = Field(default_factory=time.time)


class Chimed(Message):
    id: uuid.UUID = Field(default_factory=uuid.uuid4)


def app_with(state_type: type[State], message_type: type[Message] = Rang) -> App:
    class Bell(Handler[state_type]):  # type: ignore[valid-type]
        @handles(by="tower")
        def rang(self, state: state_type, message: message_type, context: Context) -> state_type:  # type: ignore[valid-type]
            context.publish(Chimed())
            return state

    return App(Bell)


@pytest.mark.parametrize(
    ("annotation", "factory"),
    [(str, str), (int, int), (tuple[int, ...], tuple), (frozenset[str], frozenset), (Part, Part)],
)
def test_a_factory_that_always_gives_the_same_is_taken(annotation: Any, factory: Any):
    class Data(State):
        field: annotation = Field(default_factory=factory)

    assert app_with(Data).handlers["Bell"].state_type is Data


@pytest.mark.parametrize(
    ("annotation", "factory"), [(uuid.UUID, uuid.uuid4), (float, time.time), (int, lambda: 1)]
)
def test_any_other_factory_is_refused_in_a_state(annotation: Any, factory: Any):
    class Data(State):
        field: annotation = Field(default_factory=factory)

    expected = r"^Data.field has a default_factory, which may return another value in a replay: give it a default, or"
    with pytest.raises(AppError, match=expected):
        app_with(Data)


def test_it_is_refused_in_a_message():
    class Rang(Message):
        tower: str
        at: float = Field(default_factory=time.time)

    with pytest.raises(AppError, match=r"^Rang.at has a default_factory"):
        app_with(Data, Rang)


def test_it_is_refused_in_a_model_inside():
    class Data(State):
        part: Careless = Careless(at=0)

    with pytest.raises(AppError, match=r"^Careless.at has a default_factory"):
        app_with(Data)


def test_it_is_refused_in_a_message_that_is_published():
    # An app knows the messages that its handlers take; which ones they publish shows when they do.
    method = app_with(Data).handlers["Bell"].routes["Rang"].revisions[1]

    with pytest.raises(AppError, match=r"^Chimed.id has a default_factory"):
        method(Data(), Rang(tower="east"), Context("Bell", "east", "m-1", 0))


def test_a_type_that_is_not_there_at_run_time_is_refused():
    class Data(State):
        part: "Missing | None" = None  # type: ignore[name-defined] # noqa: F821

    with pytest.raises(
        AppError, match=r"^Data has an annotation that cannot be resolved: import its type at run"
    ):
        app_with(Data)

"""Apps, messages and errors cross process borders."""

import inspect
import pickle
from uuid import UUID

import pytest

import handlers.errors
from handlers import App, HandlersError, Message
from samples.shooting_range import app
from samples.shooting_range.domain import FireAt, Hit

ERRORS = [
    found
    for found in vars(handlers.errors).values()
    if inspect.isclass(found) and issubclass(found, BaseException) and found.__module__ == "handlers.errors"
]


def copy(value):
    return pickle.loads(pickle.dumps(value))


def test_the_errors_are_found():
    assert {error.__name__ for error in ERRORS} >= {"HandlersError", "AppError", "CodecError", "CaptureError"}


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_survives_pickling(error):
    back = copy(error("one sentence"))

    assert type(back) is error
    assert str(back) == "one sentence"
    assert isinstance(back, HandlersError)


def test_an_app_survives_pickling_with_its_handlers_in_order():
    back = copy(app)

    assert isinstance(back, App)
    assert list(back.handlers) == ["ShootingRange", "LeaderBoard"]
    assert {name: found.handler_type for name, found in back.handlers.items()} == {
        name: found.handler_type for name, found in app.handlers.items()
    }
    assert sorted(back.message_types) == ["FireAt", "Hit", "Missed", "StartNewRound"]


@pytest.mark.parametrize(
    "message",
    [
        FireAt(game_id=UUID(int=7), position=3),
        Hit(id=UUID(int=8), game_id=UUID(int=7)),
    ],
)
def test_messages_survive_pickling(message: Message):
    assert copy(message) == message

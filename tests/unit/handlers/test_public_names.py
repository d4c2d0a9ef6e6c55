"""What a user imports from `handlers`: all that is listed is there, all that is there is listed, and it is pickled."""

import pickle
import types
from uuid import UUID

import pytest

import handlers
import handlers.testing
from handlers import HandlersError
from samples.shooting_range.domain import FireAt, Hit

ERRORS = [each for each in vars(handlers.errors).values() if isinstance(each, type)]


@pytest.mark.parametrize("package", [handlers, handlers.testing])
def test_all_names_what_is_public(package):
    public = {
        name
        for name, value in vars(package).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }

    assert set(package.__all__) == public
    assert list(package.__all__) == sorted(package.__all__, key=lambda name: (name.islower(), name))


@pytest.mark.parametrize("error", ERRORS)
def test_every_error_is_public_and_survives_pickling(error):
    back = pickle.loads(pickle.dumps(error("one sentence")))

    assert error.__name__ in handlers.__all__
    assert (type(back), str(back)) == (error, "one sentence")
    assert isinstance(back, HandlersError)


@pytest.mark.parametrize(
    "message", [FireAt(game_id=UUID(int=7), position=3), Hit(id=UUID(int=8), game_id=UUID(int=7))]
)
def test_messages_survive_pickling(message):
    assert pickle.loads(pickle.dumps(message)) == message

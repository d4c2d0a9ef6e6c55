"""A message type that was renamed also takes messages under its old names."""

import pickle

import pytest

from handlers import App, AppError, Context, Handler, Message, State, handles
from handlers.message import message_aliases, message_name


class Rang(Message, aliases=("Chimed", "Pealed")):
    tower: str


class Data(State):
    rings: int = 0


class Bell(Handler[Data]):
    @handles(by="tower")
    def rang(self, state: Data, message: Rang, context: Context) -> Data:
        return state


class Chimed(Message):
    tower: str


class Tolled(Message, aliases=("Chimed",)):
    tower: str


def bell(*message_types: type[Message]) -> type[Handler[Data]]:
    """Return a handler that takes some types."""

    class Taker(Handler[Data]):
        pass

    for number, message_type in enumerate(message_types):

        def take(self, state, message, context):
            return state

        take.__annotations__ = {"message": message_type}
        setattr(Taker, f"take_{number}", handles(by="tower")(take))
    return Taker


def test_messages_are_routed_by_the_name_of_their_type_and_by_its_aliases():
    app = App(Bell)

    (route,) = app.routes("Rang")
    assert app.routes("Chimed") == app.routes("Pealed") == (route,)
    assert set(app.message_types) == {"Rang", "Chimed", "Pealed"}
    assert route.names == ("Rang", "Chimed", "Pealed")
    assert app.routes("Tolled") == ()


def test_what_is_published_has_the_name_of_its_type():
    context = Context("Bell", "east", "m-1", 0)

    context.publish(Rang(tower="east"))

    assert context.published[0].type == "Rang"


def test_an_alias_is_not_inherited():
    class RangTwice(Rang):
        pass

    assert (message_name(RangTwice), message_aliases(RangTwice)) == ("RangTwice", ())


def test_an_app_with_aliases_survives_pickling():
    app = pickle.loads(pickle.dumps(App(Bell)))

    assert set(app.message_types) == {"Rang", "Chimed", "Pealed"}


@pytest.mark.parametrize(
    ("one", "other", "name"),
    [(Rang, Chimed, "Chimed"), (Chimed, Rang, "Chimed"), (Rang, Tolled, "Chimed"), (Tolled, Rang, "Chimed")],
)
def test_an_alias_that_another_type_has_is_refused(one, other, name):
    sentence = rf"^The message types \w+ and \w+ both take messages named {name}: remove the alias"

    with pytest.raises(AppError, match=sentence):
        App(bell(one, other))

    class Other(bell(other)):  # type: ignore[misc] # a class that is made here
        pass

    with pytest.raises(AppError, match=sentence):
        App(bell(one), Other)


@pytest.mark.parametrize("aliases", ["Chimed", ["Chimed"], (1,), None])
def test_aliases_that_are_no_tuple_of_names_are_refused(aliases):
    with pytest.raises(AppError, match=r"^The message Rang has aliases .*use a tuple of names"):
        type("Rang", (Message,), {}, aliases=aliases)


def test_an_alias_that_is_no_name_is_refused():
    with pytest.raises(AppError, match=r"^An alias of the message Rang is named 'rang-1'"):
        type("Rang", (Message,), {}, aliases=("rang-1",))


@pytest.mark.parametrize("aliases", [("Rang",), ("Chimed", "Chimed")])
def test_a_name_that_is_given_twice_is_refused(aliases):
    with pytest.raises(AppError, match="use each name once"):
        type("Rang", (Message,), {}, aliases=aliases)

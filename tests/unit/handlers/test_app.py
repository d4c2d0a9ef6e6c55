"""An app takes handlers of methods `(self, state, message, context) -> state`; one sentence refuses all else."""

import pickle
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Annotated, Any, NewType
from uuid import UUID

import pytest
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    Strict,
    StrictInt,
    StringConstraints,
    create_model,
)

from handlers import App, AppError, Context, Handler, Message, State, handles
from handlers.app import KeyKind, Route
from handlers.message import message_aliases, message_name
from samples.shooting_range import app as shooting_range
from tests.unit.handlers.bell import Data, Rang, bell

TowerId = NewType("TowerId", str)


class Struck(Message):
    tower: str
    city: str


class OtherData(State):
    rings: int = 0


@dataclass
class Plain:
    tower: str = ""


class Place(BaseModel):
    model_config = ConfigDict(frozen=True)

    tower: str
    number: int


def handler_of(source: str) -> Any:
    """Return a handler with the method `rang` of some source."""

    class Bell(Handler[Data]):
        pass

    names = dict(globals())
    exec(source, names)
    names["rang"].__qualname__ = "Bell.rang"
    setattr(Bell, "rang", handles(by="tower")(names["rang"]))  # noqa: B010 - not declared
    return Bell


def routes_of(message_type: type[Message], by: str) -> Route:
    (route,) = App(bell(message_type, by=by)).routes(message_name(message_type))
    return route


def message_of(annotation: Any) -> Any:
    return create_model("Rang", __base__=Message, tower=(annotation, ...))


# Methods.


@pytest.mark.parametrize(
    ("source", "sentence"),
    [
        ("def rang(self, state: Data, message: Rang) -> Data: ...", "must be a plain method"),
        ("async def rang(self, state: Data, message: Rang, context: Context) -> Data: ...", "It is async"),
        ("async def rang(self, state: Data, message: Rang, context: Context): yield state", "It is async"),
        ("def rang(self, state: Data, message: Rang, context: Context): yield state", "It yields"),
        ("def rang(self, state: Data, message: Rang, *, context: Context) -> Data: ...", "must be a plain method"),
        ("def rang(self, state: OtherData, message: Rang, context: Context) -> Data: ...", "take and return a Data"),
        ("def rang(self, state: Data, message: Rang, context: Context) -> None: ...", "take and return a Data"),
        ("def rang(self, state: Data, message: Rang, context: Rang) -> Data: ...", "take a Context as its last"),
        ("def rang(self, state: Data, message, context: Context) -> Data: ...", "annotate its message"),
        ("def rang(self, state: Data, message: Message, context: Context) -> Data: ...", "annotate its message"),
        ("def rang(self, state: Data, message: str, context: Context) -> Data: ...", "annotate its message"),
        ("def rang(self, state: Data, message: State, context: Context) -> Data: ...", "annotate its message"),
        ("def rang(self, state: Data, message: Plain, context: Context) -> Data: ...", "not a Message: write"),
        ("def rang(self, state: Data, message: Rang | Struck, context: Context) -> Data: ...", "one of Rang, Struck"),
        ("def rang(self, state: Data, message: 'Gone', context: Context) -> Data: ...", "types at run time"),
    ],
)  # fmt: skip
def test_a_method_of_another_form_is_refused(source, sentence):
    with pytest.raises(AppError, match=rf"^Bell\.rang.*{sentence}"):
        App(handler_of(source))


NO_FIELD = r'^@handles takes the name of the field of .*, by="FIELD", not by='
NO_REVISION = r"^@handles\(revision=...\) takes an int from 1, not .*\.$"


@pytest.mark.parametrize(
    ("given", "options", "sentence"),
    [
        ([bell], {}, r'above .*bell: write @handles\(by="FIELD"\)\.$'),
        ([], {}, r'write @handles\(by="FIELD"\)\.$'),
        *[([], {"by": by}, NO_FIELD) for by in ("", "tower.", 7, None, Rang, ("city", "tower"), ())],
        *[([], {"by": "tower", "revision": each}, NO_REVISION) for each in (0, -1, "2", 1.0, True, None)],
    ],
)
def test_handles_takes_the_name_of_a_field_and_a_revision_from_1(given: Any, options: Any, sentence: str):
    with pytest.raises(AppError, match=sentence):
        handles(*given, **options)


def revised(by: str, revision: int) -> type[Handler[Data]]:
    class Bell(Handler[Data]):
        @handles(by="tower")
        def struck(self, state: Data, message: Struck, context: Context) -> Data:
            return state

        @handles(by=by, revision=revision)
        def struck_again(self, state: Data, message: Struck, context: Context) -> Data:
            return state

    return Bell


@pytest.mark.parametrize(
    ("by", "revision", "sentence"),
    [
        ("tower", 1, r'two methods for Struck, .* write @handles\(by="tower", revision=2\) above .* of \w+ and'),
        ("city", 2, "^Bell: all revisions for Struck must take the same type and `by`.$"),
    ],
)  # fmt: skip
def test_two_revisions_of_a_method_are_told_apart_and_the_highest_is_the_newest(by, revision, sentence):
    (route,) = App(revised("tower", 3)).routes("Struck")
    assert (sorted(route.revisions), route.newest) == ([1, 3], 3)

    with pytest.raises(AppError, match=sentence):
        App(revised(by, revision))


def test_all_problems_of_an_app_are_said_at_once():
    class Listed(State):
        rings: list[int] = Field(default_factory=list)

    class Wrong(Handler[Listed]):
        @handles(by="steeple")
        def rang(self, state: Listed, message: Rang, context: Context) -> Listed:
            return state

        @handles(by="tower")  # type: ignore[arg-type] # the context is missing
        def struck(self, state: Listed, message: Struck) -> Listed:
            return state

    class Empty(Handler[Listed]):
        pass

    with pytest.raises(AppError) as raised:
        App(Wrong, Empty, Rang, bell())  # type: ignore[arg-type] # that is a message

    assert len(raised.value.args) == 5  # the state once, though two handlers have it
    begins = ["Listed.rings", "Wrong.rang: Rang", "test_all", "Empty handles no", "App takes classes"]
    for begin in begins:
        assert any(begin in each for each in raised.value.args)
    again = pickle.loads(pickle.dumps(raised.value))
    assert (again.args, str(again)) == (raised.value.args, str(raised.value))
    assert str(again).count("\n- ") == 5


# Handlers, and what they keep.


def test_a_handler_names_its_state_or_inherits_it():
    class Unnamed(Handler):
        pass

    class OfDataclass(Handler[Plain]):  # type: ignore[type-var]
        pass

    class Sounding(bell()):  # type: ignore[misc] # a class that is made here
        pass

    assert App(Sounding).handlers["Sounding"].state_type is Data
    with pytest.raises(AppError, match=r"^Unnamed must name its state"):
        App(Unnamed)
    with pytest.raises(AppError, match=r"Plain as its state, .* not a State: write class Plain\(State\)"):
        App(OfDataclass)


def test_a_handler_is_made_without_arguments_and_keeps_nothing():
    class Loud(bell()):  # type: ignore[misc] # a class that is made here
        def __init__(self, loudness: int) -> None:
            pass

    class Keeps(bell()):  # type: ignore[misc] # a class that is made here
        def __init__(self) -> None:
            self.rings = 0

    with pytest.raises(AppError, match=r"^Loud\(\) failed: .*'loudness'. Remove its __init__"):
        App(Loud)
    with pytest.raises(AppError, match=r"^Keeps\(\) failed: Keeps.rings cannot be set"):
        App(Keeps)


@pytest.mark.parametrize("given", [[Rang], [bell()()], ["Bell"], [None], []])
def test_what_is_no_handler_class_is_refused(given):
    with pytest.raises(AppError, match=r"^App takes classes, as .*, not |at least one handler"):
        App(*given)


# Names: they stand in stored keys and on the wire.


def test_handlers_and_messages_are_named_by_their_own_class_or_as_given():
    class Given(Handler[Data], name="Bell"):
        pass

    class Derived(Given):
        pass

    class Pealed(Message, name="Rang", aliases=("Chimed",)):
        pass

    class PealedTwice(Pealed):
        pass

    assert Given.__handler_name__ == "Bell"
    assert Derived.__handler_name__ == "Derived"  # with its base's name it would write to the base's streams
    assert [message_name(each) for each in (Rang, Pealed, PealedTwice)] == ["Rang", "Rang", "PealedTwice"]
    assert message_aliases(PealedTwice) == ()


@pytest.mark.parametrize("name", ["A", "_", "_a1", "a_B_9", "Z" * 200])
def test_a_name_has_letters_digits_and_underscores(name):
    made: type[Handler] = type("Bell", (Handler,), {}, name=name)
    assert made.__handler_name__ == name


@pytest.mark.parametrize("name", ["1st", "a-b", "a b", "a.b", "é", "a\n", "a/b", "a|b", "٣"])
@pytest.mark.parametrize("base", [Handler, Message])
def test_any_other_name_or_alias_is_refused(name, base):
    for options in ({"name": name}, {"aliases": (name,)})[: 1 + (base is Message)]:
        with pytest.raises(AppError, match="use ASCII letters, digits and _, and no digit first"):
            type("Bell", (base,), {}, **options)


SHARED = "handlers are named Bell and would share their streams: give one"


@pytest.mark.parametrize(
    ("handlers", "told"),
    [
        ((bell(), bell()), SHARED),
        ((bell(), bell(Struck)), SHARED),
        ((bell(), bell(message_of(str), name="Clock")), "message types are named Rang: give one of them another"),
    ],
)  # fmt: skip
def test_two_handlers_or_message_types_of_one_name_are_refused(handlers, told):
    with pytest.raises(AppError, match=f"^Two {told}"):
        App(*handlers)


def test_one_message_type_goes_to_several_handlers():
    app = App(bell(), bell(name="Watch"))

    assert [route.handler for route in app.routes("Rang")] == ["Bell", "Watch"]
    assert app.routes("Unheard") == ()


class Renamed(Message, name="Pealed", aliases=("Rung", "Chimed")):
    tower: str


class Rung(Message):
    tower: str


class Tolled(Message, aliases=("Rung",)):
    tower: str


def test_messages_are_routed_by_the_name_of_their_type_and_by_its_aliases():
    app = App(bell(Renamed))
    context = Context("Bell", "east", "m-1", 0)
    context.publish(Renamed(tower="east"))

    (route,) = app.routes("Pealed")
    assert app.routes("Chimed") == app.routes("Rung") == (route,)
    assert set(app.message_types) == {"Pealed", "Chimed", "Rung"}
    assert route.names == ("Pealed", "Rung", "Chimed")
    assert app.routes("Tolled") == ()
    assert context.published[0].type == "Pealed"


@pytest.mark.parametrize(
    ("one", "other"), [(Renamed, Rung), (Rung, Renamed), (Renamed, Tolled), (Tolled, Renamed)]
)
def test_an_alias_that_another_type_has_is_refused(one, other):
    told = r"^The message types \w+ and \w+ both take messages named Rung: remove"
    for handlers in ([bell(one, other)], [bell(one), bell(other, name="Other")]):
        with pytest.raises(AppError, match=told):
            App(*handlers)


@pytest.mark.parametrize(
    ("aliases", "sentence"),
    [
        *[(given, "use a tuple of names") for given in ("Chimed", ["Chimed"], (1,), None)],
        (("rang-1",), "An alias of the message Rang is named 'rang-1'"),
        (("Rang",), "use each name once"),
        (("Chimed", "Chimed"), "use each name once"),
    ],
)
def test_aliases_that_are_no_names_of_their_own_are_refused(aliases, sentence):
    with pytest.raises(AppError, match=sentence):
        type("Rang", (Message,), {}, aliases=aliases)


# Business ids.


@pytest.mark.parametrize(
    ("annotation", "kind"),
    [
        (str, KeyKind.TEXT),
        (TowerId, KeyKind.TEXT),
        (Annotated[str, StringConstraints(min_length=1)], KeyKind.TEXT),
        (UUID, KeyKind.UUID),
        (StrictInt, KeyKind.INTEGER),
        (Annotated[int, Strict()], KeyKind.INTEGER),
    ],
)
def test_a_business_id_is_a_str_a_uuid_or_a_strict_int(annotation, kind):
    assert routes_of(message_of(annotation), "tower").key_kind is kind


class StrictRang(Message):
    model_config = ConfigDict(strict=True)

    tower: int


def test_an_int_of_a_strict_message_is_a_business_id():
    assert routes_of(StrictRang, "tower").key_kind is KeyKind.INTEGER


OTHERS = (float, bool, bytes, str | None, UUID | None, tuple[str, ...], frozenset[UUID], Place)
SEVERAL = Annotated[str, Field(validation_alias=AliasChoices("tower", "towerId"))]


@pytest.mark.parametrize(
    ("annotation", "by", "sentence"),
    [
        *[(kind, "tower", "Rang.tower is a .*: a business id must be a .*: write tower: str.$") for kind in OTHERS],
        (int, "tower", "Rang.tower is a int: a business id must be a .*: write tower: StrictInt.$"),
        (Place, "tower.number", "write number: StrictInt"),
        (str, "steeple", "Bell.rang: Rang has no field 'steeple'. Possible for 'steeple': tower.$"),
        (Place, "tower.nmuber", "has no field 'tower.nmuber'. Possible for 'nmuber': tower, number.$"),
        (Place, "tower.tower.name", "has no field 'tower.tower.name'. Possible for 'name': none.$"),
        (Place | None, "tower.tower", "has no field 'tower.tower'"),
        (SEVERAL, "tower", "has several aliases"),
    ],
)  # fmt: skip
def test_what_is_no_business_id_is_refused(annotation, by, sentence):
    with pytest.raises(AppError, match=sentence):
        routes_of(message_of(annotation), by)


def test_a_dotted_path_reaches_into_a_nested_model_and_goes_by_aliases():
    nested = message_of(Place)
    route = routes_of(nested, "tower.tower")

    assert route.wire_path == ("tower", "tower")
    assert route.business_id(nested(tower=Place(tower="east", number=1))) == "east"
    assert routes_of(message_of(Annotated[str, Field(alias="towerId")]), "tower").wire_path == ("towerId",)


def test_a_uuid_in_any_spelling_is_one_business_id():
    rang = message_of(UUID)
    spellings = [
        "{7D444840-9DC0-11D1-B245-5FFDCE74FAD2}",
        "7d4448409dc011d1b2455ffdce74fad2",
        "urn:uuid:7d444840-9dc0-11d1-b245-5ffdce74fad2",
    ]

    ids = {routes_of(rang, "tower").business_id(rang.model_validate({"tower": each})) for each in spellings}

    assert ids == {"7d444840-9dc0-11d1-b245-5ffdce74fad2"}


def test_the_defaults_are_the_first_state_as_it_would_be_stored():
    # Pydantic does not check defaults. Stored as 0, they would come back as 0.0 or "0" and look like a changed state.
    class First(State):
        rings: int = 3
        name: str = "Emmanuel"
        weight: float = 0
        price: Decimal = 0  # type: ignore[assignment]
        count: int = 0.0  # type: ignore[assignment]

    initial = App(bell(state=First)).handlers["Bell"].initial

    assert initial == b'{"rings":3,"name":"Emmanuel","weight":0.0,"price":"0","count":0}'


@pytest.mark.parametrize(
    ("fields", "told"),
    [
        ({"rings": (int, ...), "name": (str, ...), "cast": (int, 0)}, "Made needs a default for rings, name: "),
        ({"cast_on": (date, None)}, "The defaults of Made cannot be the initial state: .*cast_on: Input"),
    ],
)  # fmt: skip
def test_a_default_that_is_missing_or_that_its_field_cannot_hold_is_refused(fields, told):
    with pytest.raises(AppError, match=f"^{told}"):
        App(bell(state=create_model("Made", __base__=State, **fields)))


def test_an_app_survives_pickling_with_its_handlers_in_order_and_aliases():
    back = pickle.loads(pickle.dumps(shooting_range))

    assert list(back.handlers) == ["ShootingRange", "LeaderBoard"]
    assert back.handler_types == shooting_range.handler_types
    assert sorted(back.message_types) == ["FireAt", "Hit", "Missed", "StartNewRound"]

"""The field named by `by` is the business id: a str, a UUID or a strict int, on one path of the body."""

from typing import Annotated, NewType
from uuid import UUID

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, Strict, StrictInt, StringConstraints

from handlers import App, AppError, Context, Handler, Message, State, handles
from handlers.handler import KeyKind, Route

TowerId = NewType("TowerId", str)


class Place(BaseModel):
    model_config = ConfigDict(frozen=True)

    tower: str
    number: int


class Data(State):
    rings: int = 0


def route_of(message_type: type[Message], by: str) -> Route:
    class Bell(Handler[Data]):
        @handles(by=by)
        def rang(self, state: Data, message: message_type, context: Context) -> Data:  # type: ignore[valid-type]
            return state

    (route,) = App(Bell).routes(message_type.__message_name__)
    return route


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
    class Rang(Message):
        tower: annotation  # type: ignore[valid-type]

    assert route_of(Rang, "tower").key_kind is kind


def test_an_int_of_a_strict_model_is_strict():
    class Rang(Message, strict=True):
        tower: int

    assert route_of(Rang, "tower").key_kind is KeyKind.INTEGER


def test_a_plain_int_is_refused_with_a_hint():
    class Rang(Message):
        tower: int

    expected = (
        r"Rang.tower is a int: a business id must be a str, a UUID or a strict int; "
        r'use pydantic.StrictInt, which does not take 7, 7.0 and "7" for the same id.$'
    )
    with pytest.raises(AppError, match=expected):
        route_of(Rang, "tower")


@pytest.mark.parametrize("annotation", [float, bool, bytes, str | None, tuple[str, ...], Place])
def test_a_business_id_of_another_type_is_refused(annotation):
    class Rang(Message):
        tower: annotation  # type: ignore[valid-type]

    with pytest.raises(
        AppError, match=r"Rang.tower is a .*: a business id must be a str, a UUID or a strict int.$"
    ):
        route_of(Rang, "tower")


def test_a_field_that_is_not_there_is_refused():
    class Rang(Message):
        tower: str

    with pytest.raises(AppError, match=r"Bell.rang: Rang has no field 'steeple'.$"):
        route_of(Rang, "steeple")


def test_a_dotted_path_reaches_into_a_nested_model():
    class Rang(Message):
        place: Place

    route = route_of(Rang, "place.tower")

    assert route.wire_path == ("place", "tower")
    assert route.business_id(Rang(place=Place(tower="east", number=1))) == "east"


def test_a_dotted_path_that_leads_nowhere_names_where_it_ends():
    class Rang(Message):
        place: Place

    with pytest.raises(AppError, match=r"Bell.rang: Rang has no field 'place.steeple'.$"):
        route_of(Rang, "place.steeple")
    with pytest.raises(AppError, match=r"Bell.rang: Rang has no field 'place.tower.name'.$"):
        route_of(Rang, "place.tower.name")


def test_a_dotted_path_through_what_may_be_none_is_refused():
    class Rang(Message):
        place: Place | None = None

    with pytest.raises(AppError, match=r"Rang has no field 'place.tower'.$"):
        route_of(Rang, "place.tower")


def test_a_nested_plain_int_is_refused_like_one_at_the_top():
    class Rang(Message):
        place: Place

    with pytest.raises(AppError, match=r"use pydantic.StrictInt"):
        route_of(Rang, "place.number")


def test_the_path_on_the_wire_goes_by_aliases():
    class Rang(Message):
        tower: str = Field(alias="towerId")

    assert route_of(Rang, "tower").wire_path == ("towerId",)


def test_a_business_id_with_several_aliases_is_refused():
    class Rang(Message):
        tower: str = Field(validation_alias=AliasChoices("tower", "towerId"))  # type: ignore[pydantic-alias]

    with pytest.raises(
        AppError, match=r"the field tower of the business id has several aliases: give it one.$"
    ):
        route_of(Rang, "tower")


def test_a_uuid_in_any_spelling_is_one_business_id():
    class Rang(Message):
        tower: UUID

    route = route_of(Rang, "tower")
    spellings = [
        "{7D444840-9DC0-11D1-B245-5FFDCE74FAD2}",
        "7d4448409dc011d1b2455ffdce74fad2",
        "urn:uuid:7d444840-9dc0-11d1-b245-5ffdce74fad2",
    ]

    ids = {route.business_id(Rang.model_validate({"tower": spelling})) for spelling in spellings}

    assert ids == {"7d444840-9dc0-11d1-b245-5ffdce74fad2"}

from __future__ import annotations

from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from uuid import UUID

import pytest
from pydantic import BaseModel, Field, ValidationError

from eventstore import EventData, Int64, RecordedEvent, UnknownEventTypeError
from eventstore.sourcing import EventCodec


class Colour(Enum):
    RED = "red"


class Line(BaseModel, frozen=True):
    article: str
    prices: tuple[Decimal, ...]


class Everything(BaseModel, frozen=True, strict=True):
    text: str
    flag: bool
    number: int
    real: float
    at: datetime
    guid: UUID
    raw: bytes
    maybe: str | None
    maybe_not: int | None = None
    price: Decimal
    day: date
    colour: Colour
    lines: tuple[Line, ...]
    names: frozenset[str]
    line: Line | None = Line(article="none", prices=())


class Opened(BaseModel, frozen=True):
    owner: str


class Closed(BaseModel, frozen=True):
    reason: str = "asked for"


EVERYTHING = Everything(
    text="t",
    flag=True,
    number=2**40,
    real=1.5,
    at=datetime(2020, 1, 2, 3, 4, 5, 6, tzinfo=UTC),
    guid=UUID(int=7),
    raw=b"\0\xff",
    maybe=None,
    price=Decimal("12.50"),
    day=date(2020, 1, 2),
    colour=Colour.RED,
    lines=(Line(article="a", prices=(Decimal("1.10"), Decimal(2))),),
    names=frozenset({"x", "y"}),
    line=None,
)


def recorded(event: EventData) -> RecordedEvent:
    return RecordedEvent(7, event.properties)


def test_fields_that_a_table_holds_are_properties_and_others_are_json():
    properties = EventCodec(Everything).encode(EVERYTHING).properties

    assert properties == {
        "Type": "Everything",
        "text": "t",
        "flag": True,
        "number": Int64(2**40),
        "real": 1.5,
        "at": EVERYTHING.at,
        "guid": UUID(int=7),
        "raw": b"\0\xff",
        "price": '"12.50"',
        "day": '"2020-01-02"',
        "colour": '"red"',
        "lines": '[{"article":"a","prices":["1.10","2"]}]',
        "names": properties["names"],
        "line": "null",
    }
    assert type(properties["number"]) is Int64


def test_an_event_is_read_back_as_it_was():
    codec = EventCodec(Everything)

    assert codec.decode(recorded(codec.encode(EVERYTHING))) == EVERYTHING


def test_types_are_told_by_their_names():
    codec = EventCodec[Opened | Closed](Opened, Closed)

    for event in (Opened(owner="Ada"), Closed()):
        assert codec.decode(recorded(codec.encode(event))) == event


def test_a_type_that_was_renamed_is_read_under_its_old_name():
    codec = EventCodec(Opened, aliases={"Begun": Opened})

    assert codec.decode(RecordedEvent(1, {"Type": "Begun", "owner": "Ada"})) == Opened(owner="Ada")
    assert codec.encode(Opened(owner="Ada")).properties["Type"] == "Opened"


def test_a_field_that_an_older_event_lacks_has_its_default():
    assert EventCodec(Closed).decode(RecordedEvent(1, {"Type": "Closed"})) == Closed(reason="asked for")


@pytest.mark.parametrize("properties", [{"Type": "Closed"}, {}, {"Type": 7}])
def test_an_unknown_type_is_an_error(properties):
    with pytest.raises(UnknownEventTypeError, match="Event 7 has the type"):
        EventCodec(Opened).decode(RecordedEvent(7, properties))


def test_properties_of_another_shape_are_an_error():
    with pytest.raises(ValidationError):
        EventCodec(Opened).decode(RecordedEvent(1, {"Type": "Opened"}))


def test_an_event_of_another_type_is_not_encoded():
    codec: EventCodec[BaseModel] = EventCodec(Opened)

    with pytest.raises(TypeError, match="no event of the type Closed"):
        codec.encode(Closed())


def test_two_types_cannot_have_one_name():
    with pytest.raises(ValueError, match="one name"):
        EventCodec[BaseModel](Opened, Closed, aliases={"Closed": Opened})


class Reserved(BaseModel):
    Type: str


class Versioned(BaseModel):
    Version: int


class Aliased(BaseModel):
    name: str = Field(alias="Name")


class Defaulted(BaseModel):
    name: str | None = "nobody"


@pytest.mark.parametrize("model", [Reserved, Versioned, Aliased, Defaulted])
def test_a_field_that_could_not_be_read_back_is_refused(model):
    with pytest.raises(ValueError, match=f"of {model.__name__} has"):
        EventCodec(model)

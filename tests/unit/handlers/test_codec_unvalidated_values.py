"""`model_copy(update=...)` checks nothing: what it let in comes back as its field's type, or is refused."""

from datetime import date
from decimal import Decimal
from uuid import UUID

import pytest
from pydantic import BaseModel, ConfigDict, field_validator

from handlers import CodecError, Message, State
from handlers.codec import Codec

KEY = UUID("7d444840-9dc0-11d1-b245-5ffdce74fad2")


def settled(model):
    codec = Codec(type(model))
    return codec.canonical(codec.encode(model))


class Nested(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = ""


class Data(State):
    notes: tuple[str, ...] = ()
    rings: int = 0
    weight: float = 0.0
    price: Decimal = Decimal(0)
    key: UUID | None = None
    day: date | None = None


class DataWithSet(State):
    nested: Nested = Nested()
    names: frozenset[str] = frozenset()


def test_a_list_in_a_tuple_field_comes_back_as_a_tuple():
    back, _ = settled(Data().model_copy(update={"notes": ["a", "b"]}))

    assert back.notes == ("a", "b")


def test_a_list_in_a_set_field_comes_back_as_a_sorted_set():
    back, encoded = settled(DataWithSet().model_copy(update={"names": ["b", "a", "b"]}))

    assert back.names == {"a", "b"}
    assert encoded == b'{"nested":{"name":""},"names":["a","b"]}'


@pytest.mark.parametrize(
    ("update", "field", "value"),
    [
        ({"rings": 1.0}, "rings", 1),
        ({"rings": "7"}, "rings", 7),
        ({"rings": True}, "rings", 1),
        ({"weight": 1}, "weight", 1.0),
        ({"price": 3}, "price", Decimal(3)),
        ({"price": 1.5}, "price", Decimal("1.5")),
        ({"key": str(KEY).upper()}, "key", KEY),
        ({"day": "2026-01-01"}, "day", date(2026, 1, 1)),
    ],
)
def test_a_related_value_comes_back_as_the_type_of_its_field(update, field, value):
    back, encoded = settled(Data().model_copy(update=update))

    assert getattr(back, field) == value
    assert type(getattr(back, field)) is type(value)
    # Encoded again it is the same: nothing looks like a change that nobody made.
    assert Codec(Data).encode(back) == encoded


@pytest.mark.parametrize(
    "update", [{"rings": 1.5}, {"rings": "many"}, {"notes": [1]}, {"key": "x"}, {"rings": None}]
)
def test_a_value_that_the_field_cannot_hold_is_refused(update):
    with pytest.raises(CodecError, match=r"^Data holds a value that its type does not allow: "):
        settled(Data().model_copy(update=update))


@pytest.mark.parametrize("value", [object(), lambda: 0])
def test_a_value_that_cannot_be_written_is_refused(value):
    with pytest.raises(CodecError, match=r"^Data\.\w+ cannot be encoded: "):
        settled(Data().model_copy(update={"notes": (value,)}))


def test_a_text_that_is_no_valid_unicode_is_refused():
    with pytest.raises(CodecError, match=r"^Data\.\w+ cannot be encoded: "):
        settled(Data().model_copy(update={"notes": ("\ud800",)}))


def test_an_unknown_field_is_refused():
    with pytest.raises(CodecError, match=r"^Data has no field ring.$"):
        Codec(Data).encode(Data().model_copy(update={"ring": 1}))


def test_an_unknown_field_is_refused_in_a_model_with_sets():
    with pytest.raises(CodecError, match=r"^DataWithSet has no field ring.$"):
        Codec(DataWithSet).encode(DataWithSet().model_copy(update={"ring": 1}))


def test_an_unknown_field_in_a_nested_model_of_one_with_sets_is_refused():
    nested = Nested().model_copy(update={"nmae": "x"})

    with pytest.raises(CodecError, match=r"^A model in DataWithSet has no field nmae.$"):
        Codec(DataWithSet).encode(DataWithSet(nested=nested))


def test_a_lacking_field_is_refused():
    class Rang(Message):
        tower: str

    with pytest.raises(CodecError, match=r"^Rang lacks tower.$"):
        Codec(Rang).encode(Rang.model_construct())  # type: ignore[call-arg]


def test_a_model_of_another_type_is_refused():
    class Derived(Data):
        more: int = 0

    with pytest.raises(CodecError, match=r"^Expected Data, got Derived.$"):
        Codec(Data).encode(Derived())


def test_a_model_of_a_derived_type_in_a_field_comes_back_as_the_fields_type():
    class Longer(Nested):
        more: int = 7

    back, encoded = settled(DataWithSet(nested=Longer(name="x")))

    assert type(back.nested) is Nested
    assert Codec(DataWithSet).encode(back) == encoded


def test_a_model_that_comes_back_as_something_else_each_time_is_refused():
    class Growing(State):
        rings: int = 0

        @field_validator("rings")
        @classmethod
        def one_more(cls, value: int) -> int:
            return value + 1

    with pytest.raises(
        CodecError, match=r"^Growing changes with every encoding and decoding: check its validators.$"
    ):
        settled(Growing(rings=1))

"""The codec: the same bytes everywhere, and the same model back."""

import json
import math
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    RootModel,
    ValidationError,
    create_model,
    field_validator,
)
from pydantic.alias_generators import to_camel

from handlers import CodecError, Message, State
from handlers.codec import Codec, all_problems

Loudness = NewType("Loudness", int)


class Pitch(Enum):
    LOW = "low"
    HIGH = "high"


class Size(IntEnum):
    SMALL = 1
    LARGE = 2


class Note(BaseModel):
    model_config = ConfigDict(frozen=True, ser_json_bytes="base64", val_json_bytes="base64")

    name: str
    sound: bytes
    marks: frozenset[int] = frozenset()


class Everything(State):
    text: str
    whole: int
    real: float
    flag: bool
    raw: bytes
    key: UUID
    moment: datetime
    day: date
    hour: time
    span: timedelta
    amount: Decimal
    pitch: Pitch
    size: Size
    kind: Literal["a", "b", 1]
    nothing: None
    maybe: int | None
    loudness: Loudness
    pair: tuple[int, str]
    many: tuple[float, ...]
    nested: Note
    notes: tuple[Note, ...]


class EverythingAndSets(Everything):
    words: frozenset[str]
    keys: frozenset[UUID]
    pitches: frozenset[Pitch]
    raws: frozenset[bytes]
    sets: frozenset[frozenset[int]]
    pairs: frozenset[tuple[int, str]]


whole_minutes = st.integers(-14 * 60, 14 * 60).map(lambda minutes: timezone(timedelta(minutes=minutes)))
integers = st.integers(-(10**30), 10**30)
reals = st.floats(allow_nan=False)
notes = st.builds(Note, name=st.text(), sound=st.binary(), marks=st.frozensets(st.integers()))
fields = {
    "text": st.text(),
    "whole": integers,
    "real": reals,
    "flag": st.booleans(),
    "raw": st.binary(),
    "key": st.uuids(),
    "moment": st.datetimes(timezones=st.none() | st.just(UTC) | whole_minutes),
    "day": st.dates(),
    "hour": st.times(),
    "span": st.timedeltas(timedelta(days=-999_999), timedelta(days=999_999)),
    "amount": st.decimals(allow_nan=False, allow_infinity=False),
    "pitch": st.sampled_from(Pitch),
    "size": st.sampled_from(Size),
    "kind": st.sampled_from(["a", "b", 1]),
    "nothing": st.none(),
    "maybe": st.none() | integers,
    "loudness": st.integers().map(Loudness),
    "pair": st.tuples(integers, st.text()),
    "many": st.lists(reals, max_size=3).map(tuple),
    "nested": notes,
    "notes": st.lists(notes, max_size=3).map(tuple),
}
set_fields = {
    "words": st.frozensets(st.text(max_size=5)),
    "keys": st.frozensets(st.uuids(), max_size=4),
    "pitches": st.frozensets(st.sampled_from(Pitch)),
    "raws": st.frozensets(st.binary(max_size=4)),
    "sets": st.frozensets(st.frozensets(st.integers(), max_size=3), max_size=3),
    "pairs": st.frozensets(st.tuples(st.integers(), st.text(max_size=3)), max_size=3),
}
models = st.builds(Everything, **fields) | st.builds(EverythingAndSets, **fields, **set_fields)


@given(models)
def test_a_model_comes_back_equal(model):
    codec = Codec(type(model))

    assert codec.reread(codec.encode(model)) == model


@given(models)
def test_what_came_back_is_encoded_to_the_same_bytes(model):
    codec = Codec(type(model))
    encoded = codec.encode(model)

    assert codec.encode(codec.reread(encoded)) == encoded
    assert codec.canonical(model, encoded) == (model, encoded)


class Odd(State):
    value: float = 0.0
    values: frozenset[float] = frozenset()
    sound: bytes = b""
    sounds: frozenset[bytes] = frozenset()


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, -0.0])
def test_infinity_nan_and_both_zeros_come_back_in_a_field_and_in_a_set(number):
    codec = Codec(Odd)

    back = codec.reread(codec.encode(Odd(value=number, values=frozenset({number}))))

    assert repr((back.value, *back.values)) == repr((number, number))


# "YWI=" is the base64 of b"ab": read by another rule than it was written by, one would become the other.
@pytest.mark.parametrize("sound", [b"", b"YWI=", bytes(range(256))])
def test_bytes_come_back_in_a_field_and_in_a_set(sound):
    codec, model = Codec(Odd), Odd(sound=sound, sounds=frozenset({sound}))

    assert codec.reread(codec.encode(model)) == model


class Shelf(BaseModel):
    model_config = ConfigDict(frozen=True)

    fruits: frozenset[str] = Field(default=frozenset(), alias="fruitNames")


class Shop(State):
    shelves: tuple[Shelf, ...] = ()
    crates: frozenset[frozenset[str]] = frozenset()


def test_sets_in_nested_models_and_in_sets_are_sorted_too():
    crates = frozenset({frozenset({"b", "a"}), frozenset({"c"}), frozenset({"a", "c"})})
    shop = Shop(shelves=(Shelf(fruitNames=frozenset({"b", "a"})),), crates=crates)

    encoded = Codec(Shop).encode(shop)

    assert encoded == b'{"shelves":[{"fruitNames":["a","b"]}],"crates":[["a","b"],["a","c"],["c"]]}'


KEY = UUID("7d444840-9dc0-11d1-b245-5ffdce74fad2")


def settled(model):
    codec = Codec(type(model))
    return codec.canonical(model, codec.write(model))


class Peal(Message):
    times: tuple[int, ...]


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


@pytest.mark.parametrize(
    ("update", "field", "value"),
    [
        ({"notes": ["a", "b"]}, "notes", ("a", "b")),
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


def test_a_list_in_a_set_field_comes_back_as_a_sorted_set():
    back, encoded = settled(DataWithSet().model_copy(update={"names": ["b", "a", "b"]}))

    assert (back.names, encoded) == ({"a", "b"}, b'{"nested":{"name":""},"names":["a","b"]}')


class Growing(State):
    rings: int = 0

    @field_validator("rings")
    @classmethod
    def one_more(cls, value: int) -> int:
        return value + 1


class Derived(Data):
    more: int = 0


@pytest.mark.parametrize(
    ("model_type", "model", "sentence"),
    [
        *[
            (Data, Data().model_copy(update=update), "Data holds a value that its type does not allow: ")
            for update in ({"rings": 1.5}, {"rings": "many"}, {"notes": [1]}, {"key": "x"}, {"rings": None})
        ],
        *[
            (Data, Data().model_copy(update={"notes": (note,)}), r"Data\.\w+ cannot be encoded: ")
            for note in (object(), lambda: 0, "half \ud800")
        ],
        (Data, Data().model_copy(update={"ring": 1}), "Data has no field ring.$"),
        (Data, Derived(), "Expected Data, got Derived.$"),
        (DataWithSet, DataWithSet().model_copy(update={"ring": 1}), "DataWithSet has no field ring.$"),
        (
            DataWithSet,
            DataWithSet(nested=Nested().model_copy(update={"nmae": "x"})),
            "DataWithSet.nested would change",
        ),
        (Peal, Peal.model_construct(), "Peal lacks times.$"),  # type: ignore[call-arg]
        (Growing, Growing(rings=1), "Growing.rings would change"),
    ],
)
def test_what_does_not_fit_its_type_or_comes_back_otherwise_is_refused(model_type, model, sentence):
    codec = Codec(model_type)

    with pytest.raises(CodecError, match=f"^{sentence}"):
        codec.canonical(model, codec.encode(model))


class Longer(Nested):
    more: int = 7


class Circle(Nested):
    size: int = 1


class Square(Nested):
    size: int = 1


class Seconds(RootModel[int]):
    model_config = ConfigDict(frozen=True)


class Pair(Enum):
    PAIR = (1, 2)


class Written(BaseModel):
    model_config = ConfigDict(frozen=True)

    share: float | None = None
    number: int = Field(default=0, serialization_alias="nr")
    rounded: Annotated[float, PlainSerializer(lambda value: round(value, 1))] = 0.0


def stores(values: dict[str, tuple[Any, Any]], base: type[Any]) -> Any:
    """Return a model with fields of these types, which hold these values."""
    create: Any = create_model
    made = create("Stores", __base__=base, **{name: (kind, ...) for name, (kind, _) in values.items()})
    return made(**{name: value for name, (_, value) in values.items()})


BERLIN = ZoneInfo("Europe/Berlin")
CHANGED: list[tuple[Any, Any]] = [
    (Circle | Square, Square(size=1)),
    (tuple[Circle | Square, ...], (Circle(), Square())),
    (UUID | str, str(KEY)),
    (Decimal | str, "1.50"),
    (datetime | str, "2026-01-01T00:00:00"),
    (Nested, Longer(name="x")),
    (Nested | None, Longer(name="x")),
    (tuple[Nested, ...], (Nested(), Longer(name="x"))),
    (tuple[int, Nested], (1, Longer(name="x"))),
    (frozenset[Nested], frozenset({Nested(), Longer(name="x")})),
    (Nested, Nested().model_copy(update={"nmae": "x"})),
    (time, time(1, tzinfo=BERLIN)),
    (datetime, datetime(2026, 7, 1, tzinfo=BERLIN)),
    (datetime, datetime(2026, 10, 25, 2, 30, fold=1, tzinfo=BERLIN)),
    (tuple[time, ...], (time(1, tzinfo=BERLIN),)),
    (time, time(1, tzinfo=timezone(timedelta(seconds=90)))),
    (datetime, datetime(2026, 1, 1, tzinfo=timezone(timedelta(seconds=90)))),
    (Written, Written(share=math.nan)),
    (Written, Written(number=1)),
    (Written, Written(rounded=0.25)),
    (Pair, Pair.PAIR),
]
KEPT: list[tuple[Any, Any]] = [
    (date | datetime, datetime(2026, 1, 1)),  # noqa: DTZ001 - on purpose
    (Circle | None, Circle(size=2)),
    (tuple[Circle | Square, ...], (Circle(), Circle(size=2))),
    (UUID | str, KEY),
    (Decimal | str, Decimal("1.50")),
    (int | float | str | None, 1.0),
    (int | float | str | None, "1.0"),
    (datetime, datetime(2026, 7, 1, tzinfo=ZoneInfo("UTC"))),
    (time, time(1, tzinfo=UTC)),
    (time, time(1, tzinfo=timezone(timedelta(hours=5, minutes=30)))),
    (Seconds, Seconds(7)),
    (Written, Written(share=0.5, rounded=0.5)),
    (timedelta, timedelta(microseconds=1)),
]


@pytest.mark.parametrize("base", [State, Message])
@pytest.mark.parametrize(
    "others", [{}, {"marks": (frozenset[str], frozenset({"b", "a"}))}], ids=["", "with a set"]
)
@pytest.mark.parametrize(("kind", "value"), CHANGED)
def test_a_value_that_would_come_back_as_another_is_refused(kind, value, others, base):
    model = stores({"value": (kind, value), **others}, base)

    with pytest.raises(CodecError, match=r"^Stores"):
        Codec(type(model)).encode(model)
    if base is State:
        with pytest.raises(CodecError, match=r"^Stores"):
            settled(model)


@pytest.mark.parametrize(
    "others", [{}, {"marks": (frozenset[str], frozenset({"b", "a"}))}], ids=["", "with a set"]
)
@pytest.mark.parametrize(("kind", "value"), KEPT)
def test_a_value_that_comes_back_is_taken_and_written_alike_beside_a_set(kind, value, others):
    model, alone = stores({"value": (kind, value), **others}, State), stores({"value": (kind, value)}, State)
    codec = Codec(type(model))

    encoded = codec.encode(model)

    assert codec.encode(codec.reread(encoded)) == encoded
    assert json.loads(encoded)["value"] == json.loads(Codec(type(alone)).encode(alone))["value"]
    assert settled(model)[1] == encoded


def test_a_set_leaves_the_serializers_of_the_other_fields_as_they_are():
    class Visit(State):
        model_config = ConfigDict(ser_json_timedelta="float")

        marks: frozenset[str] = frozenset({"b", "a"})
        span: timedelta = timedelta(minutes=1)
        wait: Seconds = Seconds(3)

    assert Codec(Visit).encode(Visit()) == b'{"marks":["a","b"],"span":60.0,"wait":3}'


class Priced(Message):
    price: Decimal
    share: float = 0.0


@pytest.mark.parametrize(
    "number",
    ["0.12345678901234567891", "-1234567890123456.123456789e-3", "1e-400", "12345678901234567890.5", "1.5"],
)
def test_a_decimal_keeps_all_digits_of_a_number(number):
    read = Codec(Priced).decode(f'{{"price":{number},"share":{number}}}')

    assert (read.price, read.share) == (Decimal(number), float(number))


class Rang(Message):
    tower_id: str = Field(alias="towerId")
    times: int = 1


NAMES = AliasChoices("tower", "steeple")


class RangForSome(Message):
    tower_id: str = Field(alias="towerId")
    listeners: frozenset[str] = Field(default=frozenset(), alias="heardBy")


class HeardFar(Message):
    model_config = ConfigDict(alias_generator=to_camel)

    tower_id: str = ""
    heard_by: frozenset[str] = frozenset()  # type: ignore[pydantic-alias]


class Renamed(Message):
    tower: str = Field(default="", validation_alias=NAMES)  # type: ignore[pydantic-alias]


@pytest.mark.parametrize(
    ("model", "encoded"),
    [
        (Rang(towerId="east"), b'{"towerId":"east","times":1}'),
        (
            RangForSome(towerId="east", heardBy=frozenset({"b", "a"})),
            b'{"towerId":"east","heardBy":["a","b"]}',
        ),
        (HeardFar(towerId="east", heardBy=frozenset("ab")), b'{"towerId":"east","heardBy":["a","b"]}'),
        (Renamed.model_validate({"steeple": "east"}), b'{"tower":"east"}'),
    ],
)
def test_a_field_stands_under_its_alias_and_comes_back(model, encoded):
    codec = Codec(type(model))

    assert codec.encode(model) == encoded
    assert codec.reread(encoded) == model


@pytest.mark.parametrize("more", ['"colour":"red"', '"towerId":"east"'])
def test_unknown_fields_are_ignored_and_the_last_of_two_equal_keys_counts(more):
    assert Codec(Rang).decode(f'{{"towerId":"west",{more},"towerId":"east"}}') == Rang(towerId="east")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ('{"times":"many"}', "towerId: Field required; times: Input should be a valid integer, unable to"),
        ("{", "Invalid JSON: EOF while parsing"),
    ],
)
def test_all_problems_of_a_body_are_told_in_one_line(body, told):
    with pytest.raises(ValidationError) as invalid:
        Codec(Rang).decode(body)

    assert all_problems(invalid.value).startswith(told)
    assert "\n" not in all_problems(invalid.value)


def test_of_very_many_problems_the_first_are_told():
    with pytest.raises(ValidationError) as invalid:
        Codec(Peal).decode(f'{{"times":[{",".join(["null"] * 23)}]}}')

    told = all_problems(invalid.value).split("; ")
    assert told[:2] == [f"times.{number}: Input should be a valid integer" for number in (0, 1)]
    assert (len(told), told[-1]) == (21, "and 3 more")

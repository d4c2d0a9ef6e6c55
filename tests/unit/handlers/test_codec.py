"""The codec: the same bytes everywhere, and the same model back. Untrusted msgpack is unpacked in bounded memory."""

import json
import math
import struct
import tracemalloc
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal
from enum import Enum, IntEnum
from typing import Annotated, Any, Literal, NewType
from uuid import UUID
from zoneinfo import ZoneInfo

import msgpack
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
from handlers import codec as unpacking
from handlers.codec import MAX_DEPTH, MAX_ITEMS, Codec, all_problems, unpack

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
reals = st.floats(allow_nan=False)
notes = st.builds(Note, marks=st.frozensets(st.integers()))
fields = {
    "real": reals,
    "moment": st.datetimes(timezones=st.none() | st.just(UTC) | whole_minutes),
    "span": st.timedeltas(timedelta(days=-999_999), timedelta(days=999_999)),
    "amount": st.decimals(allow_nan=False, allow_infinity=False),
    "many": st.lists(reals, max_size=3).map(tuple),
    "nested": notes,
    "notes": st.lists(notes, max_size=3).map(tuple),
}
models = st.builds(Everything, **fields) | st.builds(EverythingAndSets, **fields)


@given(models)
def test_a_model_comes_back_equal_and_is_encoded_to_the_same_bytes(model):
    codec = Codec(type(model))
    encoded = codec.encode(model)

    assert codec.reread(encoded) == model
    assert codec.encode(codec.reread(encoded)) == encoded
    assert codec.canonical(model, encoded) == (model, encoded)


class Odd(State):
    value: float = 0.0
    values: frozenset[float] = frozenset()


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, -0.0])
def test_infinity_nan_and_both_zeros_come_back_in_a_field_and_in_a_set(number):
    codec = Codec(Odd)

    back = codec.reread(codec.encode(Odd(value=number, values=frozenset({number}))))

    assert repr((back.value, *back.values)) == repr((number, number))


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


def canonical(model):
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
    back, encoded = canonical(Data().model_copy(update=update))

    assert getattr(back, field) == value
    assert type(getattr(back, field)) is type(value)
    assert Codec(Data).encode(back) == encoded  # else the next handler seems to have changed the state


def test_a_list_in_a_set_field_comes_back_as_a_sorted_set():
    back, encoded = canonical(DataWithSet().model_copy(update={"names": ["b", "a", "b"]}))

    assert (back.names, encoded) == ({"a", "b"}, b'{"nested":{"name":""},"names":["a","b"]}')


class Growing(State):
    rings: int = 0

    @field_validator("rings")
    @classmethod
    def one_more(cls, value: int) -> int:
        return value + 1


class Derived(Data):
    more: int = 0


NOT_ALLOWED, NOT_ENCODED = (
    "Data holds a value that its type does not allow: ",
    r"Data\.\w+ cannot be encoded: ",
)
MISSPELT = Nested().model_copy(update={"nmae": "x"})


@pytest.mark.parametrize(
    ("model", "sentence"),
    [
        *[(Data().model_copy(update=update), NOT_ALLOWED)
          for update in ({"rings": 1.5}, {"rings": "many"}, {"notes": [1]}, {"key": "x"}, {"rings": None})],
        *[(Data().model_copy(update={"notes": (note,)}), NOT_ENCODED) for note in (object(), lambda: 0, "half \ud800")],
        (Data().model_copy(update={"ring": 1}), "Data has no field ring.$"),
        (DataWithSet().model_copy(update={"ring": 1}), "DataWithSet has no field ring.$"),
        (DataWithSet(nested=MISSPELT), "DataWithSet.nested would change"),
        (Peal.model_construct(), "Peal lacks times.$"),  # type: ignore[call-arg]
        (Growing(rings=1), "Growing.rings would change"),
        (Derived(), "Expected Data, got Derived.$"),
    ],
)  # fmt: skip
def test_what_does_not_fit_its_type_or_comes_back_otherwise_is_refused(model: Any, sentence: str):
    codec = Codec(Data if isinstance(model, Derived) else type(model))

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
    (Nested, MISSPELT),
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


a_set = pytest.mark.parametrize(
    "others", [{}, {"marks": (frozenset[str], frozenset({"b", "a"}))}], ids=["", "with a set"]
)


@a_set
@pytest.mark.parametrize("base", [State, Message])
@pytest.mark.parametrize(("kind", "value"), CHANGED)
def test_a_value_that_would_come_back_as_another_is_refused(kind, value, others, base):
    model = stores({"value": (kind, value), **others}, base)

    for refused in (Codec(type(model)).encode, canonical):
        with pytest.raises(CodecError, match=r"^Stores"):
            refused(model)


@a_set
@pytest.mark.parametrize(("kind", "value"), KEPT)
def test_a_value_that_comes_back_is_taken_and_written_alike_beside_a_set(kind, value, others):
    model, alone = stores({"value": (kind, value), **others}, State), stores({"value": (kind, value)}, State)
    codec = Codec(type(model))

    encoded = codec.encode(model)

    assert codec.encode(codec.reread(encoded)) == encoded
    assert json.loads(encoded)["value"] == json.loads(Codec(type(alone)).encode(alone))["value"]
    assert canonical(model)[1] == encoded


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


class RangForSome(Message):
    tower_id: str = Field(alias="towerId")
    listeners: frozenset[str] = Field(default=frozenset(), alias="heardBy")


class HeardFar(Message):
    model_config = ConfigDict(alias_generator=to_camel)

    tower_id: str = ""
    heard_by: frozenset[str] = frozenset()  # type: ignore[pydantic-alias]


class Renamed(Message):
    tower: str = Field(default="", validation_alias=AliasChoices("tower", "steeple"))  # type: ignore[pydantic-alias]


@pytest.mark.parametrize(
    ("model", "encoded"),
    [
        (Rang(towerId="east"), b'{"towerId":"east","times":1}'),
        (RangForSome(towerId="east", heardBy=frozenset("ba")), b'{"towerId":"east","heardBy":["a","b"]}'),
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


PROBLEM = "Input should be a valid integer"


@pytest.mark.parametrize(
    ("model_type", "body", "begins", "last", "count"),
    [
        (Rang, '{"times":"many"}', ["towerId: Field required"], f"times: {PROBLEM}, unable to parse string", 2),
        (Rang, "{", ["Invalid JSON: EOF while parsing an object"], "Invalid JSON: EOF while parsing an object", 1),
        (Peal, f'{{"times":[{",".join(["null"] * 23)}]}}', [f"times.{n}: {PROBLEM}" for n in (0, 1)], "and 3 more", 21),
    ],
)  # fmt: skip
def test_the_first_problems_of_a_body_are_told_in_one_line(model_type, body, begins, last, count):
    with pytest.raises(ValidationError) as invalid:
        Codec(model_type).decode(body)

    told = all_problems(invalid.value).split("; ")
    assert len(told) == count
    assert all(map(str.startswith, told, begins))
    assert told[-1].startswith(last)
    assert "\n" not in all_problems(invalid.value)


# Unpacking msgpack: bombs are refused before they take memory.

MIB = 2**20
REFUSALS = (ValueError, TypeError, msgpack.UnpackException)


def announced(items: int, code: bytes = b"\xdd") -> bytes:
    # By default of an array; the code of a map is \xdf.
    return code + struct.pack(">I", items)


BOMBS = {
    "empty arrays": announced(8 * MIB) + b"\x90" * (8 * MIB),
    "empty maps": announced(8 * MIB) + b"\x80" * (8 * MIB),
    "arrays of empty arrays": announced(5000) + (b"\xdc\x00\xff" + b"\x90" * 255) * 5000,
    "arrays that announce more than they have": announced(2 * MIB) * 1000 + bytes(4 * MIB),
    "maps that announce more than they have": announced(2 * MIB, b"\xdf") + bytes(4 * MIB),
    "numbers": announced(8 * MIB) + bytes(8 * MIB),
    "small arrays that announce much": announced(60_000) * 1000 + bytes(60_000),
    "depth": b"\x91" * 1000 + b"\xc0",
    "maps inside of maps": b"\x81\xa1a" * (MAX_DEPTH + 2) + b"\xc0",
}


@pytest.mark.parametrize("name", BOMBS)
def test_a_bomb_is_refused_and_takes_little_memory(name, monkeypatch):
    monkeypatch.setattr(unpacking, "MAX_ITEMS", 2**17)  # to trace a million takes seconds
    tracemalloc.start()
    try:
        with pytest.raises(REFUSALS):
            unpack(BOMBS[name], strict_map_key=False)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 40 * MIB


@pytest.mark.parametrize("depth", [1, MAX_DEPTH - 1, MAX_DEPTH])
def test_what_is_as_deep_and_has_as_many_items_as_allowed_comes_back(depth):
    value: object = None
    for _ in range(depth):
        value = [value, {}]

    assert unpack(msgpack.packb(value)) == value
    assert len(unpack(msgpack.packb([None] * (MAX_ITEMS - 1)))) == MAX_ITEMS - 1


@given(st.binary(max_size=300))
def test_any_bytes_are_unpacked_or_refused(data):
    try:
        found = unpack(data, strict_map_key=False)
    except REFUSALS:
        return
    assert found == msgpack.unpackb(data, strict_map_key=False) or found != found  # noqa: PLR0124 - not a number

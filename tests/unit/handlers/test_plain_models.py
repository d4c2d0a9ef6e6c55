"""Plain models: what is left out for them changes nothing, and a model with any rule of its own is none."""

from __future__ import annotations

import math
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import (
    AfterValidator,
    AliasChoices,
    BaseModel,
    ConfigDict,
    Field,
    PlainSerializer,
    PrivateAttr,
    StrictInt,
    computed_field,
    create_model,
    field_serializer,
    field_validator,
    model_serializer,
    model_validator,
)

from handlers import State
from handlers.codec import Codec, find_plain
from handlers.errors import CodecError


class Scalars(State):
    """All that a plain model may hold."""

    count: int = 0
    share: float = 0.0
    name: str = ""
    is_open: bool = False
    most: int | None = None
    note: str | None = None


SCALARS: Any = find_plain(Scalars)


class Counted(State):
    count: int = 0


class Validated(Counted):
    @field_validator("count")
    @classmethod
    def _even(cls, value: int) -> int:
        return value - value % 2


class ValidatedWhole(Counted):
    @model_validator(mode="after")
    def _check(self) -> ValidatedWhole:
        return self


class Serialized(Counted):
    @field_serializer("count")
    def _doubled(self, value: int) -> int:
        return 2 * value


class SerializedWhole(Counted):
    @model_serializer
    def _nothing(self) -> dict[str, Any]:
        return {}


class Computed(Counted):
    @computed_field  # type: ignore[prop-decorator] # pydantic's way
    @property
    def double(self) -> int:
        return 2 * self.count


class Initialised(Counted):
    def __init__(self, **given: Any) -> None:
        super().__init__(**given)


class PostInitialised(Counted):
    def model_post_init(self, _: Any, /) -> None:
        pass


class WithPrivateAttribute(Counted):
    _seen: list[int] = PrivateAttr(default_factory=list)


NOT_PLAIN: list[type[BaseModel]] = [
    Validated,
    ValidatedWhole,
    Serialized,
    SerializedWhole,
    Computed,
    Initialised,
    PostInitialised,
    WithPrivateAttribute,
    create_model("Stripped", __config__=ConfigDict(str_strip_whitespace=True), name=(str, "")),
    create_model("StrictModel", __config__=ConfigDict(strict=True), count=(int, 0)),
]


def state_of(annotation: Any, default: Any) -> type[State]:
    return create_model("Odd", __base__=State, value=(annotation, default))


@pytest.mark.parametrize(
    "plain", [Scalars, create_model("More", __base__=Scalars, more=(int, 1)), state_of(int, ...)]
)
def test_a_flat_model_of_scalars_is_plain(plain):
    assert find_plain(plain) is not None


@pytest.mark.parametrize("model_type", NOT_PLAIN)
def test_a_model_with_a_rule_of_its_own_is_not_plain(model_type):
    assert find_plain(model_type) is None


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (StrictInt, 0),
        (Annotated[int, Field(ge=0)], 0),
        (Annotated[int, AfterValidator(abs)], 0),
        (Annotated[int, PlainSerializer(abs)], 0),
        (int, Field(0, alias="n")),
        (int, Field(0, validation_alias=AliasChoices("n", "m"))),
        (int, Field(0, exclude=True)),
        (Annotated[str, Field(max_length=3)], ""),
        (Annotated[float, Field(allow_inf_nan=False)], 0.0),
        (int, Field(default_factory=int)),
        (bytes, b""),
        (Decimal, Decimal(0)),
        (UUID, UUID(int=0)),
        (Literal["a", "b"], "a"),
        (int | str, 0),
        (tuple[int, ...], ()),
        (frozenset[int], frozenset()),
        (Scalars, Scalars()),
        (Any, None),
    ],
    ids=str,
)
def test_a_field_that_is_not_a_bare_scalar_makes_a_model_not_plain(annotation, default):
    assert find_plain(state_of(annotation, default)) is None


ODD = [10**4299, 10**4300, -0.0, math.inf, 2**63, "\0", "\U0001f4d6", "\ud800", b"7", Decimal(1), (1,)]
odd_values = (
    st.integers() | st.floats() | st.text(st.characters()) | st.booleans() | st.none() | st.sampled_from(ODD)
)
names = st.sampled_from(sorted(Scalars.model_fields))


@given(st.dictionaries(names, odd_values), st.sampled_from(["copied", "constructed", "constructed in part"]))
def test_what_survives_comes_back_as_the_same_values_and_bytes(update, how):
    codec = Codec(Scalars)
    whole = codec.decode(codec.encode(Scalars()))
    if how == "copied":
        model = whole.model_copy(update=update)
    elif how == "constructed":
        model = Scalars.model_construct(_fields_set=set(Scalars.model_fields), **{**whole.__dict__, **update})
    else:
        model = Scalars.model_construct(**update)
    try:
        encoded = codec.write(model)
    except CodecError:
        return
    if not SCALARS.survives(model, encoded):
        return

    decoded, again = codec.canonical(model, encoded)

    assert again == encoded
    assert repr(decoded.__dict__) == repr(model.__dict__)
    assert [type(value) for value in decoded.__dict__.values()] == [*map(type, model.__dict__.values())]
    assert decoded.model_fields_set == model.model_fields_set


@pytest.mark.parametrize(
    ("fields", "survives"),
    [
        ({}, True),
        ({"most": -(2**70), "note": "é"}, True),
        ({"name": "x" * 4000}, False),
        ({"most": 10**4200}, False),
    ],
)
def test_a_state_survives_unless_its_text_is_so_long_that_pydantic_may_not_read_an_integer(fields, survives):
    codec = Codec(Scalars)
    whole = codec.decode(codec.encode(Scalars(**fields)))

    assert SCALARS.survives(whole, codec.write(whole)) == survives


class WithCache(Scalars):
    @cached_property
    def double(self) -> int:
        return 2 * self.count


@pytest.mark.parametrize(
    "change",
    [
        lambda state: state.model_fields_set.add("other"),
        lambda state: state.__dict__.update(count=1.0),
        lambda state: state.__dict__.update(count=True),
        lambda state: state.__dict__.update(other=1),
        lambda state: state.__dict__.pop("count"),
        lambda state: state.__dict__.update(count=state.__dict__.pop("count")),
        lambda state: object.__setattr__(state, "count", 7),
        lambda state: setattr(state, "_hidden", []),
        lambda state: state.double,
    ],
)
def test_each_change_of_a_state_is_seen_and_so_is_a_cached_property(change):
    codec = Codec(WithCache)
    state = codec.decode(codec.encode(WithCache(count=1)))
    values = list(state.__dict__.values())
    assert codec.plain
    assert codec.plain.is_unchanged(state, values)

    change(state)

    assert not codec.plain.is_unchanged(state, values)

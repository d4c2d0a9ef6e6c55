"""How models stand in JSON: by their aliases, in the order of their fields; unknown fields are ignored when read."""

import pytest
from pydantic import AliasChoices, ConfigDict, Field, ValidationError
from pydantic.alias_generators import to_camel

from handlers import Message
from handlers.codec import Codec, all_problems


class Rang(Message):
    tower_id: str = Field(alias="towerId")
    times: int = 1


NAMES = AliasChoices("tower", "steeple")


class RangForSome(Message):
    tower_id: str = Field(alias="towerId")
    listeners: frozenset[str] = Field(default=frozenset(), alias="heardBy")


def test_a_field_stands_under_its_alias():
    assert Codec(Rang).encode(Rang(towerId="east")) == b'{"towerId":"east","times":1}'


def test_a_field_stands_under_its_alias_in_a_model_with_sets():
    rang = RangForSome(towerId="east", heardBy=frozenset({"b", "a"}))

    assert Codec(RangForSome).encode(rang) == b'{"towerId":"east","heardBy":["a","b"]}'


@pytest.mark.parametrize(
    "model", [Rang(towerId="east", times=2), RangForSome(towerId="e", heardBy=frozenset("ab"))]
)
def test_a_model_with_aliases_comes_back(model):
    codec = Codec(type(model))

    assert codec.reread(codec.encode(model)) == model


def test_generated_aliases_come_back():
    class HeardFar(Message):
        model_config = ConfigDict(alias_generator=to_camel)

        tower_id: str = ""
        heard_by: frozenset[str] = frozenset()  # type: ignore[pydantic-alias]

    codec = Codec(HeardFar)
    model = HeardFar(towerId="east", heardBy=frozenset({"b", "a"}))

    assert codec.encode(model) == b'{"towerId":"east","heardBy":["a","b"]}'
    assert codec.reread(codec.encode(model)) == model


def test_one_of_several_names_that_are_read_is_written():
    class Renamed(Message):
        tower: str = Field(default="", validation_alias=NAMES)  # type: ignore[pydantic-alias]

    codec = Codec(Renamed)

    written = codec.encode(codec.decode('{"steeple":"east"}'))

    assert written == b'{"tower":"east"}'
    assert codec.decode(written).tower == "east"


class Peal(Message):
    times: tuple[int, ...]


def test_unknown_fields_are_ignored_when_a_message_is_read():
    assert Codec(Rang).decode('{"towerId":"east","colour":"red"}') == Rang(towerId="east")


def test_the_last_of_two_equal_keys_counts():
    assert Codec(Rang).decode('{"towerId":"east","towerId":"west"}') == Rang(towerId="west")


def test_all_problems_of_a_body_are_told_in_one_line():
    with pytest.raises(ValidationError) as invalid:
        Codec(Rang).decode('{"times":"many"}')

    assert all_problems(invalid.value) == (
        "towerId: Field required; times: Input should be a valid integer, unable to parse string as an integer"
    )


def test_of_very_many_problems_the_first_are_told():
    with pytest.raises(ValidationError) as invalid:
        Codec(Peal).decode(f'{{"times":[{",".join(["null"] * 23)}]}}')

    told = all_problems(invalid.value).split("; ")
    assert told[:2] == [f"times.{number}: Input should be a valid integer" for number in (0, 1)]
    assert (len(told), told[-1]) == (21, "and 3 more")


def test_what_is_no_json_is_told_in_one_line():
    with pytest.raises(ValidationError) as invalid:
        Codec(Rang).decode("{")

    assert all_problems(invalid.value).startswith("Invalid JSON: EOF while parsing")

"""An app refuses fields that could change after they were stored, or would not come back; old states are upcast."""

import time as clock
import uuid
from contextlib import nullcontext
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Optional
from uuid import UUID

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, computed_field, create_model

from handlers import App, AppError, CodecError, Context, Message, State
from handlers.message import StateCodec
from tests.unit.handlers.bell import Data, bell


class Pitch(Enum):
    LOW = "low"
    HIGH = "high"


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)


class Branch(Frozen):
    branches: tuple["Branch", ...] = ()


class Noted(Frozen):
    notes: list[str] = []


class Recording(Frozen):
    sound: bytes = b""


class Packed(Recording):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class Thawed(BaseModel):
    name: str = ""


class Careless(Frozen):
    at: float = Field(default_factory=clock.time)


Loudness = NewType("Loudness", int)


def state_with(annotation: Any, default: Any = None) -> type[State]:
    return create_model("Stored", __base__=State, field=(annotation, default))


FACTORIES: list[tuple[Any, Any]] = [
    (str, str), (int, int), (tuple[int, ...], tuple), (frozenset[str], frozenset), (Data, Data),
]  # fmt: skip


@pytest.mark.parametrize(
    ("annotation", "default"),
    [
        (str, ""),
        (int, 0),
        (float, 0.0),
        (bool, False),
        (bytes, b""),
        (UUID, UUID(int=0)),
        (datetime, datetime(2026, 1, 1)),  # noqa: DTZ001 - a user may have one
        (date, date(2026, 1, 1)),
        (time, time(1)),
        (timedelta, timedelta(1)),
        (Decimal, Decimal(1)),
        (Pitch, Pitch.LOW),
        (Literal["a", 1], "a"),
        (None, None),
        (str | None, None),
        (Optional[Frozen], None),  # noqa: UP045 - both spellings are taken
        (tuple[()], ()),
        (tuple[int, str], (1, "")),
        (tuple[tuple[Frozen, ...], ...], ()),
        (frozenset[Pitch], frozenset()),
        (Annotated[int, Field(ge=0)], 0),
        (Annotated[tuple[Annotated[str, Field(max_length=3)], ...], Field(max_length=2)], ()),
        (Loudness, Loudness(0)),
        (Branch, Branch()),
        (Packed, Packed()),
        *[(annotation, Field(default_factory=factory)) for annotation, factory in FACTORIES],
    ],
)
def test_immutable_types_and_pure_factories_are_taken(annotation, default):
    App(bell(state=state_with(annotation, default)))


TUPLE, PAIRS, ALLOWED = (
    r"use tuple\[\.\.\., \.\.\.\]",
    "use a tuple of frozen models",
    "allowed are str, int, float",
)


@pytest.mark.parametrize(
    ("annotation", "shown", "hint"),
    [
        (list[int], "list", TUPLE),
        (list, "list", TUPLE),
        (set[int], "set", r"use frozenset\[\.\.\.\]"),
        (dict[str, int], "dict", PAIRS),
        (Any, "Any", ALLOWED),
        (object, "object", ALLOWED),
        (tuple, "tuple", ALLOWED),
        (frozenset, "frozenset", ALLOWED),
        (tuple[list[int], ...], "list", TUPLE),
        (str | dict[str, str], "dict", PAIRS),
        (Annotated[list[int], Field(max_length=3)], "list", TUPLE),
        (tuple[Any, ...], "Any", ALLOWED),
    ],
)
def test_mutable_types_are_refused_in_states_and_messages_with_what_to_use_instead(annotation, shown, hint):
    message: Any = create_model("Rang", __base__=Message, tower=(str, ""), field=(annotation, None))
    sentence = rf"^\w+.field is of type {shown}\b.*, which is mutable or not supported: {hint}"

    for handler in (bell(state=state_with(annotation)), bell(message)):
        with pytest.raises(AppError, match=sentence):
            App(handler)


class Unfrozen(State, frozen=False):
    rings: int = 0


class Open(State, extra="allow"):
    rings: int = 0


class Private(State):
    _cache: int = PrivateAttr(default=0)


class Computed(State):  # it would be written and not read, and in another order by every process
    @computed_field  # type: ignore[prop-decorator]
    @property
    def different(self) -> frozenset[str]:
        return frozenset()


class Excluded(State):
    rings: int = Field(default=0, exclude=True)


class Unresolved(State):
    part: "Missing | None" = None  # type: ignore[name-defined] # noqa: F821


@pytest.mark.parametrize(
    ("state", "sentence"),
    [
        (state_with(Thawed, Thawed()), r"^Thawed is not frozen: set model_config = ConfigDict\(frozen=True\).$"),
        (state_with(tuple[Noted, ...], ()), r"^Noted.notes is of type list.*: use tuple\[..., ...\].$"),
        # Pydantic reads and writes bytes as UTF-8 unless it is told otherwise, in each model for itself.
        (state_with(Recording, Recording()), "^Recording.sound is bytes: add ser_json_bytes='base64' and val_j"),
        (Unfrozen, "^Unfrozen is not frozen"),
        (Open, "^Open allows extra fields: declare each field"),
        (Private, "^Private has the private attribute _cache, not stored: make it a field.$"),
        (Computed, "^Computed has the computed field different.*: make it a plain property.$"),
        (Excluded, "^Excluded.rings is excluded, so it would not be stored"),
        (Unresolved, "^Unresolved has an annotation that cannot be resolved: import its type at run time"),
        (state_with(Careless, Careless(at=0)), "^Careless.at has a default_factory, which may return another"),
    ],
)  # fmt: skip
def test_what_would_change_or_not_come_back_is_refused(state, sentence):
    with pytest.raises(AppError, match=sentence):
        App(bell(state=state))


@pytest.mark.parametrize(
    ("annotation", "factory"), [(UUID, uuid.uuid4), (float, clock.time), (int, lambda: 1)]
)
def test_a_factory_that_may_differ_is_refused_in_states_and_messages_and_when_a_message_is_published(
    annotation: Any, factory: Any
):
    default = Field(default_factory=factory)
    message: Any = create_model("Stored", __base__=Message, tower=(str, ...), field=(annotation, default))
    publishing = Context("Bell", "east", "m-1", 0)  # an app does not know which messages its handlers publish

    for refused in (
        lambda: App(bell(state=state_with(annotation, default))),
        lambda: App(bell(message)),
        lambda: publishing.publish(message.model_validate({"tower": "east"})),
    ):
        with pytest.raises(AppError, match=r"^Stored.field has a default_factory, which may return another"):
            refused()


@pytest.mark.parametrize(
    ("field", "is_taken"),
    [
        (Field(default=0, serialization_alias="ringCount"), False),
        (Field(default=0, validation_alias="ringCount"), False),
        (Field(default=0, validation_alias=AliasChoices("ringCount", "count")), False),
        (Field(default=0, alias="ringCount"), True),
        (Field(default=0, validation_alias=AliasChoices("field", "ringCount")), True),
        (Field(default=0, validation_alias=AliasChoices("old", "new"), serialization_alias="new"), True),
    ],
)
def test_a_field_is_read_under_the_name_that_it_is_written_under(field, is_taken):
    sentence = "^Stored.field is stored as '.*' and read by another name: give it one alias.$"
    with nullcontext() if is_taken else pytest.raises(AppError, match=sentence):
        App(bell(state=state_with(int, field)))


# A state that an older version of the code stored is converted to the current schema, step by step.


def rename_count(fields: dict) -> dict:
    return {"rings": fields["count"]}


def add_name(fields: dict) -> dict:
    return {**fields, "name": "unnamed"}


class Named(State, version=3, upcasters={1: rename_count, 2: add_name}):
    rings: int = 0
    name: str = ""


class Weighed(State, version=2, upcasters={1: lambda fields: {"weight": 5, "left": True, **fields}}):
    weight: float = 0.0


class Recent(State, version=4, upcasters={2: add_name, 3: add_name}):
    name: str = ""


@pytest.mark.parametrize(
    ("state", "version", "stored", "upcast"),
    [
        (Named, 1, b'{"count":7}', b'{"rings":7,"name":"unnamed"}'),
        (Named, 2, b'{"rings":7}', b'{"rings":7,"name":"unnamed"}'),
        (Named, 3, b'{"rings":7,"name":"Emmanuel"}', b'{"rings":7,"name":"Emmanuel"}'),
        (Weighed, 1, b"{}", b'{"weight":5.0}'),
    ],
)
def test_a_state_goes_through_every_upcaster_from_its_version_on(state, version, stored, upcast):
    assert StateCodec(state).upcast(stored, version) == upcast


@pytest.mark.parametrize(
    ("state", "version", "stored", "sentence"),
    [
        (
            Named,
            4,
            b"{}",
            "Named was stored in schema version 4; this code knows versions up to 3: deploy newer",
        ),
        (
            Recent,
            1,
            b"{}",
            "Recent was stored in schema version 1, and there is no upcaster from version 1: ",
        ),
        (Named, 1, b"{}", "The upcaster of Named from version 1 failed: KeyError: 'count'$"),
        (Named, 1, b'{"count": "many"}', "Named holds a value that its type does not allow: rings: "),
    ],
)
def test_a_state_that_cannot_be_upcast_is_refused(state, version, stored, sentence):
    with pytest.raises(CodecError, match=f"^{sentence}"):
        StateCodec(state).upcast(stored, version)


@pytest.mark.parametrize(
    ("version", "upcasters", "steps"),
    [
        (3, {1: add_name}, "2"),
        (4, {1: add_name, 3: add_name}, "2"),
        (2, {}, "1"),
        (2, {1: add_name, 2: add_name}, "2"),
        (1, {1: add_name}, "1"),
        (0, {}, "an int from 1"),
        (4, {2: add_name, 3: add_name}, None),  # the oldest upcasters may be dropped
    ],
)
def test_a_gap_between_schema_versions_is_refused(version, upcasters, steps):
    class Gapped(State, version=version, upcasters=upcasters):
        name: str = ""

    expected = rf"^Gapped has schema version {version}: .*\b{steps}\b"
    with pytest.raises(AppError, match=expected) if steps else nullcontext():
        App(bell(state=Gapped))

"""An app refuses what could change after it was stored, and what would not come back: by field, with what to do."""

from contextlib import nullcontext
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Optional
from uuid import UUID

import pytest
from pydantic import AliasChoices, BaseModel, ConfigDict, Field, PrivateAttr, computed_field

from handlers import App, AppError, Message, State
from tests.unit.handlers.bell import bell


class Pitch(Enum):
    LOW = "low"
    HIGH = "high"


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True)

    name: str = ""


class Branch(BaseModel):
    model_config = ConfigDict(frozen=True)

    branches: tuple["Branch", ...] = ()


class Noted(BaseModel):
    model_config = ConfigDict(frozen=True)

    notes: list[str] = []


class Recording(BaseModel):
    model_config = ConfigDict(frozen=True)

    sound: bytes = b""


class Packed(Recording):
    model_config = ConfigDict(ser_json_bytes="base64", val_json_bytes="base64")


class Thawed(BaseModel):
    name: str = ""


Loudness = NewType("Loudness", int)


def state_with(annotation: Any, default: Any = None) -> type[State]:
    class Data(State):
        field: annotation = default

    return Data


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
        (Frozen, Frozen()),
        (Branch, Branch()),
        (Packed, Packed()),
    ],
)
def test_immutable_types_are_taken(annotation, default):
    App(bell(state=state_with(annotation, default)))


@pytest.mark.parametrize(
    ("annotation", "shown", "hint"),
    [
        (list[int], "list", "use tuple[..., ...]"),
        (list, "list", "use tuple[..., ...]"),
        (set[int], "set", "use frozenset[...]"),
        (dict[str, int], "dict", "use a tuple of frozen models"),
        (Any, "Any", "allowed are str, int, float"),
        (object, "object", "allowed are str, int, float"),
        (tuple, "tuple", "allowed are str, int, float"),
        (frozenset, "frozenset", "allowed are str, int, float"),
        (tuple[list[int], ...], "list", "use tuple[..., ...]"),
        (str | dict[str, str], "dict", "use a tuple of frozen models"),
        (Annotated[list[int], Field(max_length=3)], "list", "use tuple[..., ...]"),
        (tuple[Any, ...], "Any", "allowed are str, int, float"),
    ],
)
def test_mutable_types_are_refused_with_what_to_use_instead(annotation, shown, hint):
    with pytest.raises(AppError) as refused:
        App(bell(state=state_with(annotation)))

    sentence = str(refused.value)
    assert sentence.startswith(f"Data.field is of type {shown}")
    assert "which is mutable or not supported: " in sentence
    assert hint in sentence


def test_mutable_types_are_refused_in_messages_and_nested_models_too():
    class Rang(Message):
        tower: str
        notes: list[str]

    for handler in (bell(Rang), bell(state=state_with(tuple[Noted, ...], ()))):
        with pytest.raises(AppError, match=r"^(Rang|Noted).notes is of type list.*: use tuple\[..., ...\].$"):
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
        (
            state_with(Thawed, Thawed()),
            r"^Thawed is not frozen: set model_config = ConfigDict\(frozen=True\).$",
        ),
        # Pydantic reads and writes bytes as UTF-8 unless it is told otherwise, in each model for itself.
        (
            state_with(Recording, Recording()),
            "^Recording.sound is bytes: add ser_json_bytes='base64' and val_j",
        ),
        (Unfrozen, "^Unfrozen is not frozen"),
        (Open, "^Open allows extra fields: declare each field"),
        (Private, "^Private has the private attribute _cache, not stored: make it a field.$"),
        (Computed, "^Computed has the computed field different.*: make it a plain property.$"),
        (Excluded, "^Excluded.rings is excluded, so it would not be stored"),
        (Unresolved, "^Unresolved has an annotation that cannot be resolved: import its type at run time"),
    ],
)
def test_what_would_change_or_not_come_back_is_refused(state, sentence):
    with pytest.raises(AppError, match=sentence):
        App(bell(state=state))


@pytest.mark.parametrize(
    ("field", "is_taken"),
    [
        (Field(default=0, serialization_alias="ringCount"), False),
        (Field(default=0, validation_alias="ringCount"), False),
        (Field(default=0, validation_alias=AliasChoices("ringCount", "count")), False),
        (Field(default=0, alias="ringCount"), True),
        (Field(default=0, validation_alias=AliasChoices("rings", "ringCount")), True),
        (Field(default=0, validation_alias=AliasChoices("old", "new"), serialization_alias="new"), True),
    ],
)
def test_a_field_is_read_under_the_name_that_it_is_written_under(field, is_taken):
    class Data(State):
        rings: int = field

    sentence = "^Data.rings is stored as '.*' and read by another name: give it one alias.$"
    with nullcontext() if is_taken else pytest.raises(AppError, match=sentence):
        App(bell(state=Data))

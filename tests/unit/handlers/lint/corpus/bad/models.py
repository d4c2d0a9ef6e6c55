"""What reading a message or a state runs: default factories, validators, properties and upcasters."""

import random
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID, uuid4

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, field_validator, model_validator

from handlers import Context, Handler, Message, State, handles


def _stamped(text: str) -> str:
    return f"{text} {time.time()}"  # expect: CM101


class Line(BaseModel):
    model_config = ConfigDict(frozen=True)

    number: int = Field(default_factory=lambda: random.randrange(9))  # expect: CM201


class Opened(Message):
    shop: str
    id: UUID = Field(default_factory=uuid4)  # expect: CM203


class Noted(Message):
    shop: str
    text: Annotated[str, AfterValidator(_stamped)] = ""


class Listed(Message):
    shop: str
    lines: tuple[Line, ...] = ()


class Checked(Message):
    shop: str
    place: int = 0

    @field_validator("place")
    @classmethod
    def _known(cls, place: int) -> int:
        return place if place else random.randrange(9)  # expect: CM201

    @model_validator(mode="after")
    def _timely(self):
        if datetime.now(UTC).year > 2000:  # expect: CM101
            return self
        raise ValueError


def _upcast(fields):
    return {**fields, "opened": time.time()}  # expect: CM101


class Shop(State, version=2, upcasters={1: _upcast}):
    names: frozenset[str] = frozenset()
    opened: float = 0.0

    @property
    def first(self) -> str:
        return next(iter(self.names), "")  # expect: CM702

    def with_name(self, name: str) -> "Shop":
        return self.model_copy(update={"names": self.names | {name}, "opened": time.time()})  # expect: CM101


@dataclass
class Note:
    text: str
    at: float = field(default_factory=time.time)  # expect: CM101


class DefaultFactory(Handler[Shop]):
    @handles(by="shop")
    def opened(self, state: Shop, message: Opened, context: Context) -> Shop:
        return state


class ValidatorInAnAnnotation(Handler[Shop]):
    @handles(by="shop")
    def noted(self, state: Shop, message: Noted, context: Context) -> Shop:
        return state


class NestedModel(Handler[Shop]):
    @handles(by="shop")
    def listed(self, state: Shop, message: Listed, context: Context) -> Shop:
        return state


class Validators(Handler[Shop]):
    @handles(by="shop")
    def checked(self, state: Shop, message: Checked, context: Context) -> Shop:
        return state


class PropertyOfTheState(Handler[Shop]):
    @handles(by="shop")
    def listed(self, state: Shop, message: Listed, context: Context) -> Shop:
        return state if state.first else Shop()


class MethodOfTheState(Handler[Shop]):
    @handles(by="shop")
    def listed(self, state: Shop, message: Listed, context: Context) -> Shop:
        return state.with_name("x")


class FactoryOfADataclass(Handler[Shop]):
    @handles(by="shop")
    def listed(self, state: Shop, message: Listed, context: Context) -> Shop:
        return state.model_copy(update={"opened": Note("x").at})

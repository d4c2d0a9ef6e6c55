"""Models with validators, properties and factories that depend on nothing else."""

from typing import Annotated
from uuid import UUID, uuid4

from pydantic import AfterValidator, Field, field_validator

from handlers import Context, Handler, Message, State, handles


class Opened(Message):
    shop: str
    tags: frozenset[str] = Field(default_factory=frozenset)
    text: Annotated[str, AfterValidator(str.strip)] = ""
    place: int = 0

    @field_validator("place")
    @classmethod
    def _known(cls, place: int) -> int:
        return abs(place)


class Receipt(Message):
    """Only sent, always with an id of the context's."""

    shop: str
    id: UUID


class Shop(State, version=2, upcasters={1: lambda fields: {**fields, "count": 0}}):
    names: frozenset[str] = frozenset()
    count: int = 0

    @property
    def ordered(self) -> tuple[str, ...]:
        return tuple(sorted(self.names))

    def add(self, name: str) -> "Shop":
        return self.model_copy(update={"names": self.names | {name}})


class Properties(Handler[Shop]):
    @handles(by="shop")
    def opened(self, state: Shop, message: Opened, context: Context) -> Shop:
        for name in state.ordered:
            context.publish(Receipt(shop=name, id=context.new_guid()))
        return state


class MethodsOfTheState(Handler[Shop]):
    @handles(by="shop")
    def opened(self, state: Shop, message: Opened, context: Context) -> Shop:
        return state.add(message.text)


class CapturedGuid(Handler[Shop]):
    @handles(by="shop")
    def opened(self, state: Shop, message: Opened, context: Context) -> Shop:
        guid = context.capture("guid", lambda: str(uuid4()))
        context.publish(Receipt(shop=message.shop, id=UUID(guid)))
        return state

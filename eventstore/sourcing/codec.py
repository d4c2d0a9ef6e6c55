"""Events as pydantic models: their fields become properties, and their type is told by name.

A field of a type that a table holds is a property of that type, so that it can be selected, and read by others. A
field of any other type, a list, a `Decimal`, another model, is a text in JSON.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from types import NoneType, UnionType
from typing import Any, Generic, Protocol, TypeVar, Union, get_args, get_origin
from uuid import UUID

from pydantic import BaseModel, TypeAdapter
from pydantic.fields import FieldInfo

from eventstore.errors import UnknownEventTypeError
from eventstore.events import EventData, RecordedEvent
from eventstore.port import Int64, Value
from eventstore.properties import RESERVED_NAMES

E = TypeVar("E")
M = TypeVar("M", bound=BaseModel)

TYPE = "Type"
"""The property with the name of an event's type."""

_HELD = frozenset({str, bool, int, float, datetime, UUID, bytes})
_INT32 = range(-(2**31), 2**31)


class Codec(Protocol[E]):
    """What turns the events of a program into events of a stream and back."""

    def encode(self, event: E, /) -> EventData:
        """Return an event to write."""

    def decode(self, event: RecordedEvent, /) -> E:
        """Return what was written. Raises what it likes when that cannot be read."""


class EventCodec(Generic[M]):
    """Turns models of some types into events to write, and recorded events into models.

    A type is stored under the name of its class; `aliases` are further names under which it is read, for a class that
    was renamed. A field that a recorded event lacks has its default, so fields with one can be added.
    """

    def __init__(self, *models: type[M], aliases: Mapping[str, type[M]] | None = None) -> None:
        names = [(model.__name__, model) for model in models] + [*(aliases or {}).items()]
        self._models = dict(names)
        if len(self._models) < len(names):
            raise ValueError("Two types of events have one name.")
        self._as_json = {model: _adapters(model) for model in self._models.values()}

    def encode(self, event: M) -> EventData:
        """Return an event to write. Raises `TypeError` for a model of another type."""
        model = type(event)
        if self._models.get(model.__name__) is not model:
            raise TypeError(f"The codec has no event of the type {model.__name__}.")
        properties: dict[str, Value | None] = {TYPE: model.__name__}
        for name in model.model_fields:
            value, adapter = getattr(event, name), self._as_json[model].get(name)
            if adapter is not None:
                value = adapter.dump_json(value).decode()
            elif type(value) is int and value not in _INT32:
                value = Int64(value)
            properties[name] = value
        return EventData(properties)

    def decode(self, event: RecordedEvent) -> M:
        """Return a recorded event as a model.

        Raises `UnknownEventTypeError`, and pydantic's `ValidationError` when the properties are not those of its type.
        """
        type_name = str(event.properties.get(TYPE))
        model = self._models.get(type_name)
        if model is None:
            raise UnknownEventTypeError(type_name, event.version)
        values: dict[str, Any] = {}
        for name, field in model.model_fields.items():
            value, adapter = event.properties.get(name), self._as_json[model].get(name)
            if value is not None:
                values[name] = value if adapter is None else adapter.validate_json(str(value))
            elif field.is_required() and _is_optional(field):
                values[name] = None
        return model.model_validate(values)


def _adapters(model: type[BaseModel]) -> dict[str, TypeAdapter[Any]]:
    """Return what reads and writes the fields that no table holds as they are. Raises `ValueError`."""
    adapters = {}
    for name, field in model.model_fields.items():
        what = f"The field {name!r} of {model.__name__}"
        if name == TYPE or name in RESERVED_NAMES:
            raise ValueError(f"{what} has a name that belongs to the store.")
        if field.validation_alias is not None:
            raise ValueError(f"{what} has an alias: events are stored under the names of their fields.")
        if _held_type(field) not in _HELD:
            adapters[name] = TypeAdapter(field.annotation or NoneType)
        elif _is_optional(field) and not field.is_required() and field.default is not None:
            raise ValueError(f"{what} has a default: None, which is not stored, would be read as that.")
    return adapters


def _is_optional(field: FieldInfo) -> bool:
    return NoneType in _alternatives(field)


def _held_type(field: FieldInfo) -> Any:  # noqa: ANN401 - whatever stands behind a field's name
    """Return the type of a field without the `None` of an optional one."""
    others = [each for each in _alternatives(field) if each is not NoneType]
    return others[0] if len(others) == 1 else None


def _alternatives(field: FieldInfo) -> tuple[Any, ...]:
    is_union = get_origin(field.annotation) in (Union, UnionType)
    return get_args(field.annotation) if is_union else (field.annotation,)

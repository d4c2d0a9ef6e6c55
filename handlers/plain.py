"""Plain models: flat ones of exact scalars, which the codec reads back as the very values that were written.

A state that a handler returns is encoded, decoded, and encoded once more, so that the next handler gets what a replay
will read, whatever validators and serializers the model has. For a plain model all of that gives the same values and
the same bytes, so it can be left out. Plain is decided by what pydantic has made of the class, its core schema, from
a list of what is known to be harmless: whatever is not on the list makes a model not plain.
"""

from __future__ import annotations

from collections.abc import Mapping
from operator import contains, is_
from types import NoneType
from typing import Any

from pydantic import BaseModel

_SCALARS: Mapping[str, type] = {"bool": bool, "float": float, "int": int, "str": str}
_HARMLESS_CONFIG = {
    "extra_fields_behavior",
    "hide_input_in_errors",
    "ser_json_bytes",
    "ser_json_inf_nan",
    "title",
    "val_json_bytes",
}
_HARMLESS = {"type", "cls", "config", "custom_init", "metadata", "ref", "root_model", "schema"}
_MAX_BYTES_WITH_INTEGERS = 4000
"""In a longer text an integer may have more than the 4,300 digits that pydantic reads."""
_MAX_REMEMBERED = 1000


class Plain:
    """What makes an instance of a plain model one that needs no second look."""

    __slots__ = ("_fields", "_max_bytes", "_names", "_shapes", "_types")

    def __init__(self, types: Mapping[str, frozenset[type]]) -> None:
        self._names = tuple(types)
        self._fields = set(types)
        self._types = list(types.values())
        self._shapes: set[tuple[object, ...]] = set()
        has_integers = any(int in kinds for kinds in types.values())
        self._max_bytes = _MAX_BYTES_WITH_INTEGERS if has_integers else None

    def survives(self, model: BaseModel, encoded: bytes) -> bool:
        """Say whether decoding the encoded model gives an equal one, whose encoding gives the same bytes.

        That is so when it has all its fields, in order and marked as set, and each value has exactly a type of its
        field: what a scalar's JSON is read back as.
        """
        fields = model.__dict__
        shape = (*fields, *map(type, fields.values()))
        return (
            (shape in self._shapes or self._allows(shape))
            and model.__pydantic_fields_set__ == self._fields
            and (self._max_bytes is None or len(encoded) <= self._max_bytes)
        )

    def _allows(self, shape: tuple[object, ...]) -> bool:
        """Say whether these are the fields, followed by a type of each. A shape is remembered: there are few."""
        names, types = shape[: len(self._names)], shape[len(self._names) :]
        if names != self._names or not all(map(contains, self._types, types)):
            return False
        if len(self._shapes) < _MAX_REMEMBERED:
            self._shapes.add(shape)
        return True

    def is_unchanged(self, model: BaseModel, values: list[Any]) -> bool:
        """Say whether a model that has survived still holds the very values that it held then.

        Scalars cannot change themselves, so nothing has to be encoded to see it.
        """
        fields = model.__dict__
        return (
            tuple(fields) == self._names
            and model.__pydantic_fields_set__ == self._fields
            and all(map(is_, values, fields.values()))
        )


def find_plain(model_type: type[BaseModel]) -> Plain | None:
    """Return what instances of a plain model are compared with, None for a model that is not plain."""
    schema: Any = model_type.__pydantic_core_schema__
    if not _is_plain_model(schema) or model_type.__private_attributes__:
        return None
    types = {name: _types(field) for name, field in schema["schema"]["fields"].items()}
    return None if None in types.values() else Plain(types)  # type: ignore[arg-type] # just compared


def _is_plain_model(schema: Any) -> bool:  # noqa: ANN401 - pydantic's schema
    return (
        schema["type"] == "model"
        and set(schema) <= _HARMLESS
        and not schema.get("custom_init")
        and not schema.get("root_model")
        and set(schema.get("config", ())) <= _HARMLESS_CONFIG
        and schema["schema"]["type"] == "model-fields"
        and set(schema["schema"]) <= {"computed_fields", "fields", "model_name", "type"}
        and not schema["schema"].get("computed_fields")
    )


def _types(field: Any) -> frozenset[type] | None:  # noqa: ANN401 - pydantic's schema
    """Return the types that a field's values have once they are decoded, None for a field with a rule of its own."""
    if not set(field) <= {"type", "schema", "metadata"}:
        return None
    inner = field["schema"]
    if inner["type"] == "default" and set(inner) == {"type", "schema", "default"}:
        inner = inner["schema"]
    optional: frozenset[type] = frozenset()
    if inner["type"] == "nullable" and set(inner) == {"type", "schema"}:
        optional, inner = frozenset({NoneType}), inner["schema"]
    if set(inner) != {"type"} or inner["type"] not in _SCALARS:
        return None
    return optional | {_SCALARS[inner["type"]]}

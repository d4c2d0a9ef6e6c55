"""States as values of Arrow: as JSON text, or as a struct with the fields of the state's model."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pydantic_core import from_json

from handlers import App, CodecError
from handlers.app import HandlerDefinition
from runtime.errors import StoredDataError, UsageError
from runtime.storage.damage import shown


class StateColumns(Protocol):
    """How the encoded states of one handler become values of a column."""

    type: pa.DataType

    def read(self, schema: int | None, states: Sequence[bytes | None]) -> Sequence[Any]:
        """Return the values of some states in one schema version."""


class _Json:
    """States as the JSON text that is stored, in the schema version in which it was stored."""

    type = pa.string()

    def read(self, schema: int | None, states: Sequence[bytes | None]) -> Sequence[Any]:  # noqa: ARG002 - in all alike
        return states


as_json: StateColumns = _Json()


class ModelColumns:
    """States as structs, upcast to the schema version of today's model.

    Numbers, texts, booleans, lists and models have types of their own; anything else is text, as JSON has it.
    """

    def __init__(self, handler: HandlerDefinition) -> None:
        self._codec = handler.codec
        self._name = handler.state_type.__name__
        schema = handler.state_type.model_json_schema(mode="serialization", by_alias=True)
        self._kind = _Schema(schema.get("$defs", {})).kind(schema)
        self.type: pa.DataType = self._kind.type
        if not pa.types.is_struct(self.type) or not self.type.num_fields:
            raise UsageError(f"{self._name} has no fields that could be columns: leave the app out.")

    def read(self, schema: int | None, states: Sequence[bytes | None]) -> Sequence[Any]:
        """Return the values of some states. Raises `StoredDataError` for one that the model does not understand."""
        values: list[Any] = []
        last: bytes | None = None
        for state in states:
            if values and state is last:
                values.append(values[-1])
            else:
                values.append(None if state is None or schema is None else self._value(schema, state))
            last = state
        return values

    def _value(self, schema: int, state: bytes) -> Any:  # noqa: ANN401 - a struct
        try:
            return self._kind.read(from_json(self._codec.upcast(state, schema)))
        except (CodecError, ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
            raise StoredDataError(f"A state cannot be read as {self._name}: {error}") from error


def model_of(app: App | None, handler: str | None) -> StateColumns:
    """Return how states are shown: as the model of one handler of an app, or without an app as JSON.

    Raises `UsageError` when it is not clear which handler is meant.
    """
    if app is None:
        return as_json
    if handler is None:
        raise UsageError("With an app, say which handler's states are meant: each has columns of its own.")
    if handler not in app.handlers:
        raise UsageError(f"The app has no handler {handler}: it has {', '.join(app.handlers)}.")
    return ModelColumns(app.handlers[handler])


class _Kind(NamedTuple):
    """A type, and what makes a value of it from JSON."""

    type: pa.DataType
    read: Callable[[Any], Any]


def _same(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    return value


def _integer(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return a value that is no real number, of which Arrow would take the whole part."""
    if isinstance(value, float):
        raise TypeError(f"{value} is no integer")
    return value


def _text(value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _real(value: Any) -> float | None:  # noqa: ANN401 - a JSON number, or the name of one that JSON has not
    return None if value is None else float(value)


_CALLED: Mapping[type, str] = {dict: "fields", list: "a list"}
_SIMPLE = {
    "integer": _Kind(pa.int64(), _integer),
    "number": _Kind(pa.float64(), _real),
    "boolean": _Kind(pa.bool_(), _same),
    "string": _Kind(pa.string(), _same),
}
_TEXT = _Kind(pa.string(), _text)


class _Schema:
    """The JSON schema of a model, whose types become those of Arrow."""

    def __init__(self, definitions: Mapping[str, Any]) -> None:
        self._definitions = definitions
        self._within: list[str] = []

    def kind(self, schema: Mapping[str, Any]) -> _Kind:
        """Return what a part of the schema is."""
        if "$ref" in schema:
            return self._of_model(schema["$ref"].rpartition("/")[2])
        if "anyOf" in schema:
            others = [each for each in schema["anyOf"] if each.get("type") != "null"]
            return self.kind(others[0]) if len(others) == 1 else _TEXT
        if schema.get("type") == "object" and "properties" in schema:
            return _struct({name: self.kind(each) for name, each in schema["properties"].items()})
        if schema.get("type") == "array" and "items" in schema and "prefixItems" not in schema:
            return _list(self.kind(schema["items"]))
        return _SIMPLE.get(str(schema.get("type")), _TEXT)

    def _of_model(self, name: str) -> _Kind:
        if name in self._within:
            return _TEXT  # a model that holds its like has no type of bounded size
        self._within.append(name)
        try:
            return self.kind(self._definitions[name])
        finally:
            self._within.pop()


def _struct(fields: Mapping[str, _Kind]) -> _Kind:
    integers = [name for name, kind in fields.items() if kind.read is _integer]

    def read(value: Any) -> Any:  # noqa: ANN401 - a JSON object
        if value is None:
            return None
        of_object = _expected(value, dict)
        return {name: kind.read(of_object.get(name)) for name, kind in fields.items()}

    def read_plain(value: Any) -> Any:  # noqa: ANN401 - a JSON object
        """Return the object: Arrow takes the fields that it needs out of it by itself."""
        if value is not None and float in map(type, _expected(value, dict).values()):
            for name in integers:
                _integer(value.get(name))
        return value

    is_plain = all(kind.read in (_same, _integer) for kind in fields.values())
    return _Kind(
        pa.struct([(name, kind.type) for name, kind in fields.items()]), read_plain if is_plain else read
    )


def _list(item: _Kind) -> _Kind:
    def read(value: Any) -> Any:  # noqa: ANN401 - a JSON array
        if value is None:
            return None
        of_array = _expected(value, list)
        return of_array if item.read is _same else [item.read(each) for each in of_array]

    return _Kind(pa.list_(item.type), read)


def _expected(value: Any, kind: type) -> Any:  # noqa: ANN401 - any JSON value
    if type(value) is not kind:
        raise TypeError(f"{shown(value)} stands where the model has {_CALLED[kind]}")
    return value

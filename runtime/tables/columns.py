"""The columns of the tables as which a store is read, and record batches of bounded size."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple, Protocol

import pyarrow as pa
from pydantic_core import from_json

from handlers import App, CodecError
from handlers.app import HandlerDefinition
from runtime.errors import StoredDataError, UsageError
from runtime.messages.envelope import IdKey, id_text
from runtime.versions.properties import shown

TEXT = pa.string()
TIME = pa.timestamp("us", tz="UTC")

MAX_ROWS = 10_000
MAX_BYTES = 8 * 2**20
"""When a record batch is full, by its rows and by the bytes of its states."""

Columns = Mapping[str, pa.DataType]

Makers = Mapping[str, Callable[[Sequence[Any]], pa.Array]]
"""What makes the arrays of some columns from values of another form."""

_NONE: Makers = MappingProxyType({})

_UNFIT = (pa.ArrowException, OverflowError, TypeError)
"""What Arrow raises for a value that is not of the type of its column."""


def chosen(columns: Columns, names: Sequence[str] | None) -> dict[str, pa.DataType]:
    """Return the columns that are asked for, all for None. Raises `UsageError` for one that is not there."""
    if names is None:
        return dict(columns)
    unknown = sorted(set(names) - set(columns))
    if unknown:
        raise UsageError(f"There is no column {unknown[0]}: the columns are {', '.join(columns)}.")
    return {name: columns[name] for name in names}


def to_batch(
    columns: Columns, values: Mapping[str, Sequence[Any]], count: int, makers: Makers = _NONE
) -> pa.RecordBatch:
    """Return some rows, given column by column; times are in microseconds since 1970 UTC.

    Raises `UsageError` for a state that the columns of its model cannot hold.
    """
    if not columns:
        return pa.RecordBatch.from_struct_array(pa.array([{}] * count, pa.struct([])))
    arrays = [
        makers[name](values[name]) if name in makers else _array(name, type_, values)
        for name, type_ in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(columns.items())))


def _array(name: str, type_: pa.DataType, values: Mapping[str, Sequence[Any]]) -> pa.Array:
    if type_ == TIME:
        return pa.array(values[name], pa.int64()).cast(TIME)
    try:
        return pa.array(values[name], type_)
    except _UNFIT as error:
        raise UsageError(_unfit(name, type_, values)) from error


def _unfit(name: str, type_: pa.DataType, values: Mapping[str, Sequence[Any]]) -> str:
    """Say which value a column cannot hold: an integer of a model may have more than 64 bits."""
    for position, value in enumerate(values[name]):
        try:
            pa.scalar(value, type_)
        except _UNFIT as error:
            parts = [values[each][position] for each in ("handler", "business_id") if each in values]
            of = f" of {'-'.join(parts)}" if parts else ""
            return f"A state{of} cannot be columns: {error}. Leave the app out, and states are JSON."
    return f"The column {name} cannot be made."


class Buffer:
    """Collects rows column by column; `take` gives a record batch."""

    def __init__(self, columns: Columns, makers: Makers = _NONE) -> None:
        self.columns = columns
        self._makers = makers
        self.rows = 0
        self.bytes = 0
        self._values: dict[str, list[Any]] = {name: [] for name in columns}

    @property
    def is_full(self) -> bool:
        """Whether it is time to take what there is."""
        return self.rows >= MAX_ROWS or self.bytes >= MAX_BYTES

    def add(self, values: Mapping[str, Sequence[Any]], count: int, size: int) -> None:
        """Add rows whose states take so many bytes."""
        for name, known in self._values.items():
            known.extend(values[name])
        self.rows += count
        self.bytes += size

    def take(self) -> pa.RecordBatch:
        """Return what was added since the last time."""
        batch = to_batch(self.columns, self._values, self.rows, self._makers)
        self.rows = self.bytes = 0
        self._values = {name: [] for name in self.columns}
        return batch


# The texts of many message ids at once: that of a UUID has 36 characters, so that each has its place in one
# buffer.

_DIGITS, _LENGTH = 32, 36
_PLACES = [place for place in range(_LENGTH) if place not in {8, 13, 18, 23}]
"""Where the digits of a UUID stand in its text. Hyphens are between them."""


def id_texts(keys: Sequence[IdKey | None]) -> pa.Array:
    """Return the canonical texts of keys; of no key none."""
    if not all(type(key) is bytes for key in keys):
        return pa.array([None if key is None else id_text(key) for key in keys], pa.string())
    digits = b"".join(keys).hex().encode()  # type: ignore[arg-type] # just checked
    text = bytearray(b"-" * (_LENGTH * len(keys)))
    for digit, place in enumerate(_PLACES):
        text[place::_LENGTH] = digits[digit::_DIGITS]
    ends = pa.array(range(0, len(text) + 1, _LENGTH), pa.int32())
    return pa.StringArray.from_buffers(len(keys), ends.buffers()[1], pa.py_buffer(bytes(text)))


# States as values of Arrow: as JSON text, or as a struct with the fields of the state's model.


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

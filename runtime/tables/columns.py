"""Columns of Arrow tables, and record batches of bounded size."""

import json
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pydantic_core import from_json

from handlers import App, CodecError
from handlers.app import HandlerDefinition
from runtime.errors import StoredDataError, UsageError
from runtime.messages.envelope import IdKey, id_text
from runtime.versions.properties import UNREADABLE, shown

TEXT = pa.string()
TIME = pa.timestamp("us", tz="UTC")

Columns = Mapping[str, pa.DataType]

_UNFIT = (pa.ArrowException, OverflowError, TypeError)
"""Raised by Arrow for a value that does not have the type of its column."""


def chosen(columns: Columns, names: Sequence[str] | None) -> dict[str, pa.DataType]:
    """Return the columns with these names. None selects all columns. Raises `UsageError` for an unknown name."""
    if names is None:
        return dict(columns)
    unknown = sorted(set(names) - set(columns))
    if unknown:
        raise UsageError(f"There is no column {unknown[0]}. Choose from {', '.join(columns)}.")
    return {name: columns[name] for name in names}


class Buffer:
    """Collects rows for a record batch, by column. Times are in microseconds since 1970 UTC.

    `ids` is the name of the column of message ids, or None. Ids are added as `IdKey`, and are text in the record batch.
    """

    MAX_ROWS = 10_000
    MAX_BYTES = 8 * 2**20  # of states

    def __init__(self, columns: Columns, ids: str | None = None) -> None:
        self.columns = columns
        self.rows = 0
        self._ids = ids
        self._bytes = 0
        self._values: dict[str, list[Any]] = {name: [] for name in columns}

    @property
    def is_full(self) -> bool:
        """Whether the record batch is full."""
        return self.rows >= self.MAX_ROWS or self._bytes >= self.MAX_BYTES

    def add(self, values: Mapping[str, Sequence[Any]], count: int, size: int) -> None:
        """Add `count` rows, given by column. Their states have `size` bytes in total."""
        for name, column in self._values.items():
            column.extend(values[name])
        self.rows += count
        self._bytes += size

    def take(self) -> pa.RecordBatch:
        """Return the record batch and empty the buffer. Raises `UsageError` for a state that does not fit a column."""
        if self.columns:
            arrays = [self._array(name, type_) for name, type_ in self.columns.items()]
            batch = pa.RecordBatch.from_arrays(arrays, schema=pa.schema(list(self.columns.items())))
        else:
            batch = pa.RecordBatch.from_struct_array(pa.array([{}] * self.rows, pa.struct([])))
        self.rows = self._bytes = 0
        self._values = {name: [] for name in self.columns}
        return batch

    def _array(self, name: str, type_: pa.DataType) -> pa.Array:
        values = self._values[name]
        if name == self._ids:
            return id_texts(values)
        if type_ == TIME:
            return pa.array(values, pa.int64()).cast(TIME)
        try:
            return pa.array(values, type_)
        except _UNFIT as error:
            # For example, an integer of a model may have more than 64 bits.
            raise UsageError(
                f"A state{self._first_unfit(name, type_)} does not fit its columns: {error}. Omit the app to read "
                f"states as JSON."
            ) from error

    def _first_unfit(self, name: str, type_: pa.DataType) -> str:
        for position, value in enumerate(self._values[name]):
            try:
                pa.scalar(value, type_)
            except _UNFIT:
                of = ("handler", "business_id")
                parts = [str(self._values[each][position]) for each in of if each in self._values]
                return f" of {'-'.join(parts)}" if parts else ""
        return ""


async def in_batches(
    columns: Columns, rows: AsyncIterator[tuple[Mapping[str, Any], int]]
) -> AsyncIterator[pa.RecordBatch]:
    """Collect rows into record batches of these columns. `rows` gives each row with the size of its states in bytes."""
    buffer = Buffer(columns)
    async for row, size in rows:
        buffer.add({name: [row[name]] for name in columns}, 1, size)
        if buffer.is_full:
            yield buffer.take()
    if buffer.rows:
        yield buffer.take()


_LENGTH, _HYPHENS = 36, {8, 13, 18, 23}  # of a UUID's text


def id_texts(keys: Sequence[IdKey | None]) -> pa.Array:
    """Return the texts of message ids as an Arrow array."""
    if not all(type(key) is bytes for key in keys):
        return pa.array([None if key is None else id_text(key) for key in keys], pa.string())
    # All keys are UUIDs. One slice assignment writes the same digit of all of them.
    digits = b"".join(keys).hex().encode()  # type: ignore[arg-type] # just checked
    text = bytearray(b"-" * (_LENGTH * len(keys)))
    positions = [position for position in range(_LENGTH) if position not in _HYPHENS]
    for digit, position in enumerate(positions):
        text[position::_LENGTH] = digits[digit :: len(positions)]
    ends = pa.array(range(0, len(text) + 1, _LENGTH), pa.int32())
    return pa.StringArray.from_buffers(len(keys), ends.buffers()[1], pa.py_buffer(bytes(text)))


class StateColumns:
    """Converts encoded states to the values of a column: here to JSON text, in `ModelColumns` to structs."""

    type: pa.DataType = TEXT

    def read(self, schema: int | None, states: Sequence[bytes | None]) -> Sequence[Any]:  # noqa: ARG002 - of models
        """Return the value of the column for each state of one schema version. `None` stays `None`."""
        return states


as_json = StateColumns()


class ModelColumns(StateColumns):
    """Converts states to structs of the current schema version. A field without an Arrow type becomes JSON text."""

    def __init__(self, handler: HandlerDefinition) -> None:
        self._codec = handler.codec
        self._name = handler.state_type.__name__
        schema = handler.state_type.model_json_schema(mode="serialization", by_alias=True)
        self._kind = _kind_of(schema, schema.get("$defs", {}))
        self.type = self._kind.type
        if not pa.types.is_struct(self.type) or not self.type.num_fields:
            raise UsageError(f"{self._name} has no fields that could be columns. Omit the app to read JSON.")

    def read(self, schema: int | None, states: Sequence[bytes | None]) -> Sequence[Any]:
        """Return the structs as dicts, as the base class does. Raises `StoredDataError` for an invalid state."""
        values: list[Any] = []
        last: bytes | None = None
        for state in states:
            if values and state is last:
                values.append(values[-1])
            elif state is None or schema is None:
                values.append(None)
            else:
                try:
                    values.append(self._kind.read(from_json(self._codec.upcast(state, schema))))
                except (CodecError, *UNREADABLE) as error:
                    raise StoredDataError(f"A state cannot be read as {self._name}: {error}") from error
            last = state
        return values


def model_of(app: App | None, handler: str | None) -> StateColumns:
    """Return a converter of states, or `as_json` without an app. Raises `UsageError` for an unknown `handler`."""
    if app is None:
        return as_json
    if handler is None:
        raise UsageError("An app needs a handler, because each handler's states have other columns.")
    if handler not in app.handlers:
        raise UsageError(f"The app has no handler {handler}. Choose from {', '.join(app.handlers)}.")
    return ModelColumns(app.handlers[handler])


class _Kind(NamedTuple):
    """An Arrow type, and the function that converts a JSON value to the type."""

    type: pa.DataType
    read: Callable[[Any], Any]


def _same(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    return value


def _integer(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """Return the value. Raises `TypeError` for a float, which Arrow would truncate."""
    if isinstance(value, float):
        raise TypeError(f"{value} is not an integer")
    return value


def _text(value: Any) -> str | None:  # noqa: ANN401 - any JSON value
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


_TEXT = _Kind(TEXT, _text)
_SIMPLE = {
    "integer": _Kind(pa.int64(), _integer),
    "number": _Kind(pa.float64(), lambda value: None if value is None else float(value)),
    "boolean": _Kind(pa.bool_(), _same),
    "string": _Kind(TEXT, _same),
}


def _kind_of(schema: Mapping[str, Any], models: Mapping[str, Any], within: Sequence[str] = ()) -> _Kind:
    """Return the kind of a part of a JSON schema. `within`: enclosing models. A model within itself becomes text."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        # Arrow has no recursive types.
        return _TEXT if name in within else _kind_of(models[name], models, [*within, name])
    if "anyOf" in schema:
        others = [each for each in schema["anyOf"] if each.get("type") != "null"]
        return _kind_of(others[0], models, within) if len(others) == 1 else _TEXT
    if schema.get("type") == "object" and "properties" in schema:
        fields = schema["properties"].items()
        return _struct({name: _kind_of(each, models, within) for name, each in fields})
    if schema.get("type") == "array" and "items" in schema and "prefixItems" not in schema:
        return _list(_kind_of(schema["items"], models, within))
    return _SIMPLE.get(str(schema.get("type")), _TEXT)


def _struct(fields: Mapping[str, _Kind]) -> _Kind:
    integers = [name for name, kind in fields.items() if kind.read is _integer]
    is_plain = all(kind.read in (_same, _integer) for kind in fields.values())

    def read(value: Any) -> Any:  # noqa: ANN401 - a JSON object
        if value is None:
            return None
        _check_kind(value, dict, "fields")
        if not is_plain:
            return {name: kind.read(value.get(name)) for name, kind in fields.items()}
        # Arrow itself selects the fields that it needs.
        if float in map(type, value.values()):
            for name in integers:
                _integer(value.get(name))
        return value

    return _Kind(pa.struct([(name, kind.type) for name, kind in fields.items()]), read)


def _list(item: _Kind) -> _Kind:
    def read(value: Any) -> Any:  # noqa: ANN401 - a JSON array
        if value is None:
            return None
        _check_kind(value, list, "a list")
        return value if item.read is _same else [item.read(each) for each in value]

    return _Kind(pa.list_(item.type), read)


def _check_kind(value: Any, kind: type, called: str) -> None:  # noqa: ANN401 - any JSON value
    if type(value) is not kind:
        raise TypeError(f"{shown(value)} is where the model has {called}")

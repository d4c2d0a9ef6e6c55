"""The codec of messages and states: models as JSON, with the same bytes on every machine.

Handlers get only states and messages that were decoded from bytes, even the first time. A replay from stored bytes
therefore gets equal states and messages. States are equal if their bytes are equal.
"""

import json
import re
import types
from collections.abc import Callable, Collection, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from operator import attrgetter, contains, is_
from types import NoneType
from typing import Annotated, Any, Generic, Literal, TypeGuard, TypeVar, Union, get_args, get_origin
from uuid import UUID

import msgpack
from pydantic import AliasChoices, BaseModel, ConfigDict, RootModel, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_json

from handlers.errors import AppError, CodecError

# A frozen model could be mutated through a list inside it, and a replay would get another input. So fields have
# immutable types at every level.
SCALARS = (str, int, float, bool, bytes, UUID, datetime, date, time, timedelta, Decimal, type(None))
_ALLOWED = (
    "str, int, float, bool, bytes, UUID, datetime, date, time, timedelta, Decimal, enums, Literal, None, "
    "tuple[...], frozenset[...] and frozen models"
)
PURE_FACTORIES = (tuple, frozenset, str, int, float, bool, bytes, Decimal, timedelta)
INSTEAD = {
    list: "tuple[..., ...]",
    set: "frozenset[...]",
    dict: "a tuple of frozen models, or of pairs: tuple[tuple[KEY, VALUE], ...]",
    bytearray: "bytes",
}


def check_model(model_type: type[BaseModel]) -> None:
    """Raise `AppError` if the model or a nested model is mutable, loses data in JSON, or has unstable defaults."""
    for model in _models(model_type, {}):
        name = model.__name__
        if not model.__pydantic_complete__ and not model.model_rebuild(raise_errors=False):
            raise AppError(f"{name} has an annotation that cannot be resolved: import its type at run time.")
        if not model.model_config.get("frozen"):
            raise AppError(f"{name} is not frozen: set model_config = ConfigDict(frozen=True).")
        if model.model_config.get("extra") == "allow":
            raise AppError(f"{name} allows extra fields: declare each field, so that its type is known.")
        if model.__private_attributes__:
            private = ", ".join(sorted(model.__private_attributes__))
            raise AppError(f"{name} has the private attribute {private}, not stored: make it a field.")
        if model.model_computed_fields:
            computed = ", ".join(sorted(model.model_computed_fields))
            raise AppError(f"{name} has the computed field {computed}, never read: make it a plain property.")
        for field_name, field in model.model_fields.items():
            _check_field(model, field_name, field)
    check_defaults(model_type)


def check_defaults(model_type: type[BaseModel]) -> None:
    """Raise `AppError` if a default_factory of the model, or of a nested model, may be nondeterministic."""
    for model in _models(model_type, {}):
        for name, field in model.model_fields.items():
            factory = field.default_factory
            is_model = isinstance(factory, type) and issubclass(factory, BaseModel)
            if factory is not None and factory not in PURE_FACTORIES and not is_model:
                raise AppError(
                    f"{model.__name__}.{name} has a default_factory, which may return another value in a replay: set a "
                    f"default, or let the handler set the field, as from context.now or context.new_guid()."
                )


def _check_field(model: type[BaseModel], name: str, field: FieldInfo) -> None:
    where, config = f"{model.__name__}.{name}", model.model_config
    for part in _parts(field.annotation):
        if not _is_allowed(part):
            shown = getattr(part, "__name__", None) or str(part)
            instead = INSTEAD.get(get_origin(part) or part)
            hint = f"use {instead}" if instead else f"allowed are {_ALLOWED}"
            raise AppError(f"{where} is of type {shown}, which is mutable or not supported: {hint}.")
    if field.exclude:
        raise AppError(f"{where} is excluded, so it would not be stored: remove `exclude`.")
    alias = field.validation_alias
    read: set[object] = set(alias.choices) if isinstance(alias, AliasChoices) else {alias or name}
    if config.get("populate_by_name") or config.get("validate_by_name"):
        read.add(name)
    written = field.serialization_alias or name
    if written not in read:
        raise AppError(f"{where} is stored as {written!r} and read by another name: give it one alias.")
    is_base64 = config.get("ser_json_bytes") == config.get("val_json_bytes") == "base64"
    if bytes in _parts(field.annotation) and not is_base64:
        add = "ser_json_bytes='base64' and val_json_bytes='base64'"
        raise AppError(f"{where} is bytes: add {add} to the model_config of {model.__name__}.")


def _is_allowed(part: Any) -> bool:  # noqa: ANN401 - a type expression
    origin = get_origin(part)
    if origin in (tuple, frozenset):
        return bool(get_args(part)) or part == tuple[()]
    if origin in (Literal, Union, types.UnionType, Annotated):
        return True
    return part in SCALARS or (isinstance(part, type) and issubclass(part, Enum | BaseModel))


def _parts(annotation: Any) -> Iterator[Any]:  # noqa: ANN401 - a type expression
    """Yield a type expression and all types inside it. Type aliases are resolved."""
    annotation = resolve_alias(annotation)
    if get_origin(annotation) is Annotated:
        yield from _parts(get_args(annotation)[0])
        return
    yield annotation
    if get_origin(annotation) is Literal:
        return
    for inner in get_args(annotation):
        if inner is not Ellipsis:
            yield from _parts(inner)


def _written_parts(annotation: Any, above: frozenset[Any]) -> Iterator[Any]:  # noqa: ANN401 - a type expression
    """Yield the types of `_parts`, and the types inside root models, which add no key in JSON.

    `above` are the enclosing root models, which are not entered again.
    """
    for part in _parts(annotation):
        yield part
        if isinstance(part, type) and issubclass(part, RootModel) and part not in above:
            yield from _written_parts(part.model_fields["root"].annotation, above | {part})


def resolve_alias(annotation: Any) -> Any:  # noqa: ANN401 - a type expression
    """Return the type behind `NewType` and `type X = ...`."""
    while True:
        if hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation


def _models(model_type: type[BaseModel], seen: dict[type[BaseModel], None]) -> dict[type[BaseModel], None]:
    if model_type not in seen:
        seen[model_type] = None
        for field in model_type.model_fields.values():
            for part in _parts(field.annotation):
                if isinstance(part, type) and get_origin(part) is None and issubclass(part, BaseModel):
                    _models(part, seen)
    return seen


# Plain models are flat, and their fields are scalars that decode to the encoded values.
#
# A returned state is encoded, decoded, and encoded again, so that the next handler gets the state that a replay reads.
# Plain models skip this, as values and bytes stay the same. A model is plain if its core schema is on an allowlist.

_SCALARS: Mapping[str, type] = {"bool": bool, "float": float, "int": int, "str": str}
_HARMLESS_CONFIG = {"extra_fields_behavior", "hide_input_in_errors", "ser_json_bytes", "ser_json_inf_nan", "title",
                    "val_json_bytes", "validate_by_alias", "validate_by_name"}  # fmt: skip
_MAX_BYTES_WITH_INTEGERS = 4000
"""Longer JSON may have an integer with more than the 4,300 digits that pydantic reads."""
_MAX_REMEMBERED = 1000


class Plain:
    """Tests, without decoding, whether the JSON of a plain model decodes to an equal model.

    The fields of a plain model are bool, int, float, str or None.
    """

    __slots__ = ("_fields", "_max_bytes", "_names", "_shapes", "_types")

    def __init__(self, types: Mapping[str, frozenset[type]]) -> None:
        self._names = tuple(types)
        self._fields = set(types)
        self._types = list(types.values())
        self._shapes: set[tuple[object, ...]] = set()
        has_integers = any(int in kinds for kinds in types.values())
        self._max_bytes = _MAX_BYTES_WITH_INTEGERS if has_integers else None

    def survives(self, model: BaseModel, encoded: bytes) -> bool:
        """Return whether `encoded`, the JSON of the model, decodes to an equal model with the same JSON."""
        # True if all fields are set, in order, and their values have exactly the types that JSON decodes to.
        fields = model.__dict__
        shape = (*fields, *map(type, fields.values()))
        return (
            (shape in self._shapes or self._allows(shape))
            and model.__pydantic_fields_set__ == self._fields
            and (self._max_bytes is None or len(encoded) <= self._max_bytes)
        )

    def _allows(self, shape: tuple[object, ...]) -> bool:
        names, types = shape[: len(self._names)], shape[len(self._names) :]
        if names != self._names or not all(map(contains, self._types, types)):
            return False
        # Bounded, in case a handler returns ever new shapes.
        if len(self._shapes) < _MAX_REMEMBERED:
            self._shapes.add(shape)
        return True

    def is_unchanged(self, model: BaseModel, values: list[Any]) -> bool:
        """Return whether a model that was decoded with the field values `values` still holds the same objects."""
        # Scalars are immutable, so identity suffices.
        fields = model.__dict__
        return (
            tuple(fields) == self._names
            and model.__pydantic_fields_set__ == self._fields
            and all(map(is_, values, fields.values()))
        )


def find_plain(model_type: type[BaseModel]) -> Plain | None:
    """Return the test for models of this type, or None if the type is not plain."""
    schema: Any = model_type.__pydantic_core_schema__
    is_plain = schema["type"] == "model" and not schema.get("root_model") and _only_checks(schema)
    types = {name: _types(field) for name, field in schema["schema"]["fields"].items()} if is_plain else {}
    return Plain(types) if is_plain and None not in types.values() else None  # type: ignore[arg-type] # just compared


def _types(field: Any) -> frozenset[type] | None:  # noqa: ANN401 - pydantic's schema
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


# Values that decode to themselves.
#
# Encoding may change a value silently. For example, a subclass loses its own fields, and of two models with the same
# fields, a union reads the first. No replay would notice. So decoded values are compared with the originals: always if
# pydantic does more to a type than validate it, otherwise only for values of types that may change.

_CERTAIN = {bool, bytes, date, float, int, str, timedelta, NoneType, UUID}
"""Types whose values decode to themselves if the model's configuration encodes all floats and bytes."""
_CHECKS = {"bool", "bytes", "date", "datetime", "decimal", "default", "definition-ref", "definitions",
           "enum", "float", "frozenset", "int", "literal", "model", "model-field", "model-fields", "none",
           "nullable", "str", "time", "timedelta", "tuple", "union", "uuid"}  # fmt: skip
_LIMITS = {"allow_inf_nan", "choices", "cls", "computed_fields", "config", "custom_init",
           "decimal_places", "default", "default_factory", "default_factory_takes_data", "definitions",
           "expected", "fields", "frozen", "ge", "generic_origin", "gt", "items_schema", "le", "lt",
           "max_digits", "max_length", "members", "metadata", "microseconds_precision", "min_length",
           "missing", "model_name", "multiple_of", "pattern", "ref", "root_model", "schema", "schema_ref",
           "serialization_alias", "strict", "sub_type", "type", "validation_alias", "variadic_item_index"}  # fmt: skip
"""Keys of a core schema that do not change values."""


def _only_checks(schema: Any) -> bool:  # noqa: ANN401 - pydantic's schema
    """Return whether pydantic only accepts or rejects values by this core schema, and never changes them."""
    inner = [schema[name] for name in ("schema", "items_schema") if isinstance(schema.get(name), dict)]
    match schema["type"]:
        case "model" if (
            schema.get("custom_init")
            or schema["cls"].__private_attributes__
            or not set(schema.get("config", ())) <= _HARMLESS_CONFIG
        ):
            return False
        case "model-fields":
            inner = [*schema["fields"].values()]
        case "tuple":
            inner = schema["items_schema"]
        case "definitions":
            inner += schema["definitions"]
        case "union":  # JSON distinguishes scalars
            types = {_SCALARS.get(choice["type"]) for choice in schema["choices"] if set(choice) == {"type"}}
            if len(types) < len(schema["choices"]) or None in types:
                return False
    return (
        schema["type"] in _CHECKS
        and set(schema) <= _LIMITS
        and not schema.get("computed_fields")
        and schema.get("validation_alias") == schema.get("serialization_alias")
        and all(map(_only_checks, inner))
    )


def _may_be_odd(part: Any, config: ConfigDict) -> bool:  # noqa: ANN401 - a type expression
    origin = get_origin(part)
    if origin is Literal:
        return not {*map(type, get_args(part))} <= {bool, int, str, NoneType}
    if part is float:
        return config.get("ser_json_inf_nan") != "constants"
    is_enum = isinstance(part, type) and issubclass(part, Enum)
    return part not in _CERTAIN and not is_enum and origin not in (tuple, frozenset, Union, types.UnionType)


def _find_odd(
    model_type: type[BaseModel], models: Collection[type[BaseModel]], parts: set[Any]
) -> dict[type, tuple[int, tuple[str, ...]]]:
    """Return, for each model, the number of its fields and the names of fields that may decode to other values.

    Returns {} if all fields may. `models` are `model_type` and its nested models. `parts` are their fields' types.
    """
    enums = [part for part in parts if isinstance(part, type) and issubclass(part, Enum)]
    if (
        not _only_checks(model_type.__pydantic_core_schema__)
        or any(issubclass(one, other) for one in models for other in models if one is not other)
        or not {type(member.value) for enum in enums for member in enum} <= {int, str}
        or (bytes in parts and any(model.model_config.get("ser_json_bytes") != "base64" for model in models))
    ):
        return {}

    def odd_fields(model: type[BaseModel]) -> Iterator[str]:
        for name, field in model.model_fields.items():
            if any(_may_be_odd(part, model.model_config) for part in _parts(field.annotation)):
                yield name

    return {model: (len(model.model_fields), tuple(odd_fields(model))) for model in models}


def _exact(value: Any) -> Any:  # noqa: ANN401 - any field value
    """Return a key to compare values: keys are equal only if a handler cannot distinguish the values."""
    match value:
        case BaseModel():
            return type(value), tuple((name, _exact(item)) for name, item in value.__dict__.items())
        case tuple():
            return tuple, tuple(map(_exact, value))
        case frozenset():
            return frozenset, frozenset(map(_exact, value))
        case float() | Decimal():
            return isinstance(value, float), str(value)  # distinguishes -0.0, and NaN equals itself
        case datetime() | time():
            zone = value.tzinfo
            # In other zones, a later time may have another offset.
            is_fixed = zone is None or zone.utcoffset(None) is not None
            return value.replace(tzinfo=None, fold=0), zone is None, value.utcoffset(), is_fixed
        case bool() | Enum():
            return type(value), value
    return next((kind for kind in SCALARS if isinstance(value, kind)), type(value)), value


JSON = ConfigDict(
    extra="ignore",
    ser_json_bytes="base64",
    val_json_bytes="base64",
    ser_json_inf_nan="constants",
    hide_input_in_errors=False,
)
"""The configuration of messages and states. Both add `frozen=True` themselves, where pydantic's mypy plugin sees it."""

_SHOWN = 20

M = TypeVar("M", bound=BaseModel)
_fields_of = attrgetter("__dict__")
_UNKNOWN = (0, ("all",))

_MAYBE_LONG = re.compile(r"[:,\[]\s*-?[0-9](?:[0-9.]{15}|[0-9.]*[eE][+-]?[0-9]{3})")


class _Number(float):
    """A JSON number with more digits than a float holds. `text` has all digits."""

    text: str

    @classmethod
    def of(cls, text: str) -> float:
        """Parse a JSON number. Return a float if the number loses no digits, otherwise a `_Number`."""
        number = cls(text)
        number.text = text
        try:
            return float(number) if Decimal(repr(float(number))) == Decimal(text) else number
        except ArithmeticError:
            return number  # beyond the range of Decimal


def _as_text(value: Any) -> Any:  # noqa: ANN401 - parsed JSON
    if isinstance(value, list):
        return [*map(_as_text, value)]
    return value.text if isinstance(value, _Number) else value


class Codec(Generic[M]):
    """Encodes and decodes models of one type. A call takes about a microsecond for a small model.

    `encode` returns JSON. Fields are in declared order, and sets are sorted by the bytes of their members. `encode`
    raises `CodecError` for unknown or missing fields, which `model_copy(update=...)` allows, and for a model that does
    not decode to itself. `decode` raises pydantic's `ValidationError`. `plain` is the test of `find_plain`, or None.
    `exact` writes the Decimals in a body as text with all digits; it is None if the type has no Decimals.
    """

    __slots__ = ("_decimals", "_fields", "_has_odd", "_odd", "_read", "_sorted", "decode", "encode", "exact",
                 "model_type", "plain", "serialize")  # fmt: skip

    def __init__(self, model_type: type[M]) -> None:
        self.model_type = model_type
        self._fields = len(model_type.model_fields)
        models = _models(model_type, {})
        fields = [field for model in models for field in model.model_fields.items()]
        parts = {part for _, field in fields for part in _parts(field.annotation)}
        # The order of a set differs between processes.
        self._sorted = any(frozenset in (part, get_origin(part)) for part in parts)
        self._decimals = {
            key
            for name, field in fields
            if Decimal in _written_parts(field.annotation, frozenset())
            for key in getattr(field.validation_alias or name, "choices", [field.validation_alias or name])
        }
        self.plain = find_plain(model_type)
        self._odd = _find_odd(model_type, models, parts)
        self._has_odd = self._odd.get(model_type, _UNKNOWN)[1] != ()
        self.encode: Callable[[M], bytes] = self._encode_and_compare if self._has_odd else self.write
        self._read: Callable[[bytes | str], M] = model_type.__pydantic_validator__.validate_json
        self.exact = self._with_all_digits if self._decimals else None
        self.decode = self._read_exactly if self._decimals else self._read
        self.serialize = model_type.__pydantic_serializer__.to_json

    def _with_all_digits(self, body: str | bytes) -> str | bytes:
        text = body if isinstance(body, str) else body.decode(errors="replace")
        if not _MAYBE_LONG.search(text):
            return body
        try:
            return json.dumps(json.loads(body, parse_float=_Number.of, object_pairs_hook=self._with_decimals))
        except (ValueError, RecursionError):
            return body  # pydantic reports the error

    def _with_decimals(self, pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        return {key: _as_text(value) if key in self._decimals else value for key, value in pairs}

    def _read_exactly(self, data: bytes | str) -> M:
        return self._read(self._with_all_digits(data))

    def _encode_and_compare(self, model: M) -> bytes:
        encoded = self.write(model)
        return encoded if self._comes_back(model) else self.canonical(model, encoded)[1]

    def _comes_back(self, value: Any) -> bool:  # noqa: ANN401 - any field value
        """Return True if a value is known to decode to an equal value. If False, the caller must decode and compare."""
        kind = type(value)
        if kind in _CERTAIN and kind is not float:
            return True
        if kind in self._odd:
            size, names = self._odd[kind]
            fields = value.__dict__
            return len(fields) == size and all(map(self._comes_back, map(fields.get, names)))
        if kind is tuple or kind is frozenset:
            kinds = set(map(type, value))
            size, names = self._odd.get(kinds.pop(), _UNKNOWN) if len(kinds) == 1 else _UNKNOWN
            if not names:
                return {*map(len, map(_fields_of, value))} == {size}
            return all(map(self._comes_back, value))
        if kind is datetime or kind is time:  # time zones may lose seconds, rules, or all
            if value.tzinfo is None:
                return True
            offset = value.tzinfo.utcoffset(None)
            return offset is not None and offset.seconds % 60 == offset.microseconds == 0
        if kind is float:
            return isfinite(value)
        return value.is_finite() if kind is Decimal else isinstance(value, Enum)

    def write(self, model: M) -> bytes:
        """Like `encode`, return JSON or raise `CodecError`, but do not check that the model decodes to itself."""
        if type(model) is not self.model_type:
            raise CodecError(f"Expected {self.model_type.__name__}, got {type(model).__name__}.")
        if len(model.__dict__) != self._fields:
            declared, present = set(self.model_type.model_fields), set(model.__dict__)
            strange, missing = ", ".join(sorted(present - declared)), ", ".join(sorted(declared - present))
            what = f"has no field {strange}" if strange else f"lacks {missing}"
            raise CodecError(f"{self.model_type.__name__} {what}.")
        try:
            return self.serialize(_ordered(model) if self._sorted else model, by_alias=True, warnings=False)
        except (PydanticSerializationError, TypeError, ValueError) as error:
            raise CodecError(f"{self._place_of_failure(model)} cannot be encoded: {error}") from error

    def reread(self, data: bytes) -> M:
        """Decode JSON that `encode` or `write` returned. Raises `CodecError` for an invalid value."""
        try:
            return self._read(data)
        except ValidationError as error:
            raise self._refusal(error) from error

    def canonical(self, model: M, encoded: bytes) -> tuple[M, bytes]:
        """Return the model that storage will return for `model`, and the bytes to store. `encoded` is from `write`.

        Values that were not validated are converted as pydantic would convert them, such as 1.0 in an int field, or a
        list instead of a tuple. Raises `CodecError` for an invalid value, and a model that does not decode to itself.
        """
        back = self.reread(encoded)
        if not self._has_odd or self._comes_back(model):
            return back, self.write(back)
        if _exact(model) == _exact(back):
            return back, encoded
        try:
            valid = self.model_type.model_validate(dict(model.__dict__), by_alias=False, by_name=True)
        except ValidationError as error:
            raise self._refusal(error) from error
        encoded = self.write(valid)
        back = self.reread(encoded)
        for name, value in valid.__dict__.items():
            if _exact(value) != _exact(back.__dict__[name]):
                where = f"{self.model_type.__name__}.{name}"
                raise CodecError(f"{where} would change when stored or sent: its type must survive JSON.")
        return back, encoded

    def _refusal(self, error: ValidationError) -> CodecError:
        name = self.model_type.__name__
        return CodecError(f"{name} holds a value that its type does not allow: {all_problems(error)}")

    def _place_of_failure(self, model: M) -> str:
        name = self.model_type.__name__
        for field in self.model_type.model_fields:
            try:
                _json(_ordered(getattr(model, field)))
            except (PydanticSerializationError, TypeError, ValueError):
                return f"{name}.{field}"
        return name


def all_problems(error: ValidationError) -> str:
    """Return the problems of a `ValidationError` on one line: the first 20, and the number of other problems."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = []
    for problem in problems[:_SHOWN]:
        where = ".".join(map(str, problem["loc"]))
        lines.append(f"{where}: {problem['msg']}" if where else problem["msg"])
    more = len(problems) - len(lines)
    return "; ".join([*lines, f"and {more} more"] if more else lines)


class _Ordered(frozenset[Any]):
    """A set that pydantic writes in the order of its members' JSON. Pydantic still chooses each member's serializer."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=_json))


def _ordered(value: Any) -> Any:  # noqa: ANN401 - any field value
    if type(value) in _CERTAIN:
        return value
    if isinstance(value, BaseModel):
        fields = {name: _ordered(item) for name, item in value.__dict__.items()}
        if all(map(is_, fields.values(), value.__dict__.values())):
            return value
        copied = value.__copy__()
        copied.__dict__.update(fields)
        return copied
    if isinstance(value, frozenset | set):
        return _Ordered(value if _CERTAIN.issuperset(map(type, value)) else map(_ordered, value))
    if type(value) in (tuple, list):
        items = [*map(_ordered, value)]
        return value if all(map(is_, items, value)) else type(value)(items)
    return value


def _json(value: Any) -> bytes:  # noqa: ANN401 - any field value
    return to_json(value, bytes_mode="base64", inf_nan_mode="constants")


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is a str without lone surrogates, which UTF-8 cannot encode."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# Untrusted msgpack is unpacked in bounded memory. An empty array takes one byte of msgpack and 56 of memory, and an
# array may announce more items than it has. So items are counted, and large data is skipped through before unpacking.

MAX_ITEMS = 2**20  # the maximum number of arrays, maps and their items
MAX_DEPTH = 200  # the maximum nesting, as pydantic's for JSON
_TRUSTED_BYTES = 4 * 2**10  # smaller data cannot announce enough items to be dangerous


def unpack(
    data: bytes,
    *,
    most: int | None = None,
    ext_hook: Callable[[int, bytes], Any] = msgpack.ExtType,
    unicode_errors: str | None = None,
    strict_map_key: bool = True,
) -> Any:  # noqa: ANN401 - any value that msgpack knows
    """Unpack untrusted msgpack in bounded memory. The options other than `most` are msgpack's.

    `most` limits the items of each array or map. Without `most`, data over 4 KiB is scanned first, because it may
    announce more items than it has. Raises `ValueError`, `TypeError` or an error of msgpack, such as `UnpackException`,
    for data that is invalid, has more than `MAX_ITEMS` items, or is nested deeper than `MAX_DEPTH`.
    """
    containers = items = 0

    def count(container: Any) -> Any:  # noqa: ANN401 - a list or a dict
        nonlocal containers, items
        containers += 1
        items += 1 + len(container)
        if items > MAX_ITEMS:
            raise ValueError(f"it holds more than {MAX_ITEMS} items")
        return container

    limit = min(MAX_ITEMS, len(data)) if most is None else most
    limits: dict[str, Any] = {"max_array_len": limit, "max_map_len": limit, "unicode_errors": unicode_errors}
    if len(data) > _TRUSTED_BYTES and most is None:
        unpacker = msgpack.Unpacker(max_buffer_size=len(data), **limits)
        unpacker.feed(data)
        unpacker.skip()
    unpacked = msgpack.unpackb(
        data, object_hook=count, list_hook=count, ext_hook=ext_hook, strict_map_key=strict_map_key, **limits
    )
    # Data with fewer containers cannot be nested so deeply.
    if containers > MAX_DEPTH and is_deeper(unpacked, MAX_DEPTH + 1):
        raise msgpack.StackError(f"it is nested deeper than {MAX_DEPTH} levels")
    return unpacked


def is_deeper(value: Any, depth: int) -> bool:  # noqa: ANN401 - what was unpacked
    """Return whether lists and dicts in an unpacked value are nested deeper than `depth`."""
    level: list[Any] = [[value]]
    for _ in range(depth + 1):
        level = [
            item
            for container in level
            for item in (container.values() if isinstance(container, dict) else container)
            if type(item) in (list, dict)
        ]
        if not level:
            return False
    return True

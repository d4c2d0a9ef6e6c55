"""The codec of messages and states: encodes models as JSON, to the same bytes on every machine.

Every state and message that a handler gets was decoded from bytes, also the first time, so that a replay from stored
bytes gets the same. Two states are equal when their bytes are.
"""

from __future__ import annotations

import re
import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from math import isfinite
from operator import attrgetter, contains, is_
from types import NoneType
from typing import Annotated, Any, Generic, Literal, TypeGuard, TypeVar, Union, get_args, get_origin
from uuid import UUID
from weakref import WeakKeyDictionary

import msgpack
from pydantic import AliasChoices, BaseModel, ConfigDict, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, TzInfo, to_json

from handlers.errors import AppError, CodecError

# A frozen model with a list in it could still be mutated through the list, and a replay would then get another input
# than the first run did. So the fields of messages and states have immutable types, all the way down.
SCALARS = (str, int, float, bool, bytes, UUID, datetime, date, time, timedelta, Decimal, type(None))
_ALLOWED = (
    "str, int, float, bool, bytes, UUID, datetime, date, time, timedelta, Decimal, enums, Literal, None, "
    "tuple[...], frozenset[...] and frozen models"
)
PURE_FACTORIES = (tuple, frozenset, str, int, float, bool, bytes, Decimal, timedelta)
INSTEAD = {
    list: "tuple[..., ...]",
    set: "frozenset[...]",
    dict: "a tuple of frozen models",
    bytearray: "bytes",
}


def check_model(model_type: type[BaseModel]) -> None:
    """Raise `AppError` when an instance of the model could be mutated, or hold data that is not stored."""
    for model in _models(model_type, {}):
        name = model.__name__
        if not model.__pydantic_complete__ and not model.model_rebuild(raise_errors=False):
            raise AppError(
                f"{name} has an annotation that cannot be resolved: import its type at run time, not under "
                f"TYPE_CHECKING."
            )
        if not model.model_config.get("frozen"):
            raise AppError(f"{name} is not frozen: set model_config = ConfigDict(frozen=True).")
        if model.model_config.get("extra") == "allow":
            raise AppError(f"{name} allows extra fields: declare each field, so that its type is known.")
        if model.__private_attributes__:
            private = ", ".join(sorted(model.__private_attributes__))
            raise AppError(
                f"{name} has the private attribute {private}, which is not stored: make it a field."
            )
        if model.model_computed_fields:
            computed = ", ".join(sorted(model.model_computed_fields))
            raise AppError(
                f"{name} has the computed field {computed}, which is stored and never read: make it a plain property."
            )
        for field_name, field in model.model_fields.items():
            _check_field(model, field_name, field)
    check_defaults(model_type)


def check_defaults(model_type: type[BaseModel]) -> None:
    """Raise `AppError` when a field of the model has a default_factory that may be nondeterministic."""
    for model in _models(model_type, {}):
        for name, field in model.model_fields.items():
            factory = field.default_factory
            is_model = isinstance(factory, type) and issubclass(factory, BaseModel)
            if factory is not None and factory not in PURE_FACTORIES and not is_model:
                raise AppError(
                    f"{model.__name__}.{name} has a default_factory, which may return another value in a replay: give "
                    f"it a default, or let the handler set it, for example with context.new_guid()."
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
        raise AppError(f"{where} is excluded, so it would not be stored: remove exclude.")
    alias = field.validation_alias
    read: set[object] = set(alias.choices) if isinstance(alias, AliasChoices) else {alias or name}
    if config.get("populate_by_name") or config.get("validate_by_name"):
        read.add(name)
    written = field.serialization_alias or name
    if written not in read:
        raise AppError(
            f"{where} is stored as {written!r} and read by another name: give it one alias for both."
        )
    is_base64 = config.get("ser_json_bytes") == config.get("val_json_bytes") == "base64"
    if bytes in _parts(field.annotation) and not is_base64:
        raise AppError(
            f"{where} is bytes: add ser_json_bytes='base64' and val_json_bytes='base64' to its model_config."
        )


def _is_allowed(part: Any) -> bool:  # noqa: ANN401 - a type expression
    origin = get_origin(part)
    if origin in (tuple, frozenset):
        return bool(get_args(part)) or part == tuple[()]
    if origin in (Literal, Union, types.UnionType, Annotated):
        return True
    return part in SCALARS or (isinstance(part, type) and issubclass(part, Enum | BaseModel))


def _parts(annotation: Any) -> Iterator[Any]:  # noqa: ANN401 - a type expression
    """Yield a type expression and those inside it, aliases and new types resolved."""
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


def resolve_alias(annotation: Any) -> Any:  # noqa: ANN401 - a type expression
    """Resolve `NewType` and `type X = ...` to the types that they name."""
    while True:
        if hasattr(annotation, "__supertype__"):
            annotation = annotation.__supertype__
        elif type(annotation).__name__ == "TypeAliasType":
            annotation = annotation.__value__
        else:
            return annotation


def _models(model_type: type[BaseModel], seen: dict[type[BaseModel], None]) -> dict[type[BaseModel], None]:
    """Return a model and those in its fields."""
    if model_type not in seen:
        seen[model_type] = None
        for field in model_type.model_fields.values():
            for part in _parts(field.annotation):
                if isinstance(part, type) and get_origin(part) is None and issubclass(part, BaseModel):
                    _models(part, seen)
    return seen


# Plain models: flat ones of exact scalars, which the codec reads back as the very values that were written.
#
# A state that a handler returns is encoded, decoded, and encoded once more, so that the next handler gets what a replay
# will read. For a plain model all of that gives the same values and bytes, so it is left out. A model is plain when all
# that pydantic has made of it, its core schema, is on a list of what is known to be harmless.

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
        """Return whether decoding the encoded model gives an equal one, whose encoding gives the same bytes.

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
        """Return whether these are the fields, followed by a type of each. A shape is remembered: there are few."""
        names, types = shape[: len(self._names)], shape[len(self._names) :]
        if names != self._names or not all(map(contains, self._types, types)):
            return False
        if len(self._shapes) < _MAX_REMEMBERED:
            self._shapes.add(shape)
        return True

    def is_unchanged(self, model: BaseModel, values: list[Any]) -> bool:
        """Return whether a model that has survived still holds the very values that it held then.

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
    is_plain = (
        schema["type"] == "model"
        and not model_type.__private_attributes__
        and set(schema) <= _HARMLESS
        and not schema.get("custom_init")
        and not schema.get("root_model")
        and set(schema.get("config", ())) <= _HARMLESS_CONFIG
        and schema["schema"]["type"] == "model-fields"
        and set(schema["schema"]) <= {"computed_fields", "fields", "model_name", "type"}
        and not schema["schema"].get("computed_fields")
    )
    types = {name: _types(field) for name, field in schema["schema"]["fields"].items()} if is_plain else {}
    return Plain(types) if is_plain and None not in types.values() else None  # type: ignore[arg-type] # just compared


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


# Looks: which values come back from their bytes as they were.
#
# The bytes do not tell that they changed a value: of two models with the same fields the first is read, a subclass
# loses its own fields, and all replays agree. So what is read back is compared with what was written, except for values
# of which a look tells that pydantic brings them back.

_Look = Callable[[Any], bool]
_LIMITS = {"allow_inf_nan", "cls", "custom_init", "decimal_places", "expected", "ge", "gt", "items_schema", "le", "lt",
           "max_digits", "max_length", "members", "metadata", "microseconds_precision", "min_length", "missing",
           "multiple_of", "pattern", "ref", "root_model", "strict", "sub_type", "type",
           "variadic_item_index"}  # fmt: skip
"""What a schema may demand of a value without changing it."""
_FIELD = {"metadata", "schema", "serialization_alias", "type", "validation_alias"}
_KEPT = {"bool", "date", "float", "int", "none", "str", "timedelta", "uuid"}


class _OddError(Exception):
    """Raised for a schema whose values have to be compared each time."""


_FLAT: WeakKeyDictionary[_Look, tuple[frozenset[type], frozenset[int]]] = WeakKeyDictionary()
"""What is looked at by a look at a model that looks at no field: its type, and how many fields there are."""


def _look_at_all(look: _Look) -> _Look:
    if look not in _FLAT:
        return lambda values: all(map(look, values))
    kinds, sizes = _FLAT[look]
    return lambda values: (
        kinds.issuperset(map(type, values)) and sizes.issuperset(map(len, map(_fields_of, values)))
    )


_fields_of = attrgetter("__dict__")


def _looks_of(schema: Any, definitions: Mapping[str, Any], known: dict[type, _Look]) -> _Look | None:  # noqa: ANN401, C901
    """Return a look at the models of a core schema, None when none is needed. Raises `_OddError`."""
    kind, config, content = schema["cls"], schema.get("config", {}), schema["schema"]
    if schema.get("root_model"):
        content = {"type": "model-fields", "fields": {"root": {"type": "model-field", "schema": content}}}
    if (
        set(schema) - _LIMITS - {"schema", "config"}
        or schema.get("custom_init")
        or kind.__private_attributes__
        or set(config) - _HARMLESS_CONFIG - {"strict", "validate_by_alias", "validate_by_name"}
        or content["type"] != "model-fields"
        or content.get("computed_fields")
    ):
        raise _OddError
    looks: list[tuple[str, _Look]] = []
    size = len(content["fields"])

    def look(model: Any) -> bool:  # noqa: ANN401
        fields = model.__dict__
        if type(model) is not kind or len(fields) != size:
            return False
        for name, look_at in looks:  # noqa: SIM110 - faster than all()
            if not look_at(fields[name]):
                return False
        return True

    known[kind] = look  # which may contain itself
    for name, field in content["fields"].items():
        if set(field) - _FIELD or field.get("validation_alias") != field.get("serialization_alias"):
            raise _OddError
        found = _look_at(field["schema"], config, definitions, known)
        if found is not None:
            looks.append((name, found))
    if not looks:
        _FLAT[look] = (frozenset({kind}), frozenset({size}))
    return look


def _look_at(  # noqa: C901, PLR0911, PLR0912 - a case for each kind of schema
    schema: Any,  # noqa: ANN401 - pydantic's schema
    config: Mapping[str, Any],
    definitions: Mapping[str, Any],
    known: dict[type, _Look],
) -> _Look | None:
    """Return a look at the values of a core schema, None when none is needed. Raises `_OddError`."""
    kind, keys = schema["type"], set(schema) - _LIMITS
    match kind:
        case "default" if keys <= {"schema", "default", "default_factory", "default_factory_takes_data"}:
            return _look_at(schema["schema"], config, definitions, known)
        case "definition-ref" if keys == {"schema_ref"}:
            return _look_at(definitions[schema["schema_ref"]], config, definitions, known)
        case "nullable" if keys == {"schema"}:
            inner = _look_at(schema["schema"], config, definitions, known)
            return None if inner is None else lambda value: value is None or inner(value)
        case "union" if keys == {"choices"} and config.get("ser_json_inf_nan") == "constants":
            types = {_SCALARS.get(choice["type"]) for choice in schema["choices"] if set(choice) == {"type"}}
            if len(types) == len(schema["choices"]) and None not in types:  # JSON tells these apart
                return lambda value: type(value) in types
        case "tuple" if not keys:
            looks = [_look_at(each, config, definitions, known) for each in schema["items_schema"]]
            if not any(looks):
                return None
            if len(looks) == 1 and "variadic_item_index" in schema:
                return _look_at_all(looks[0] or _never)
            if "variadic_item_index" not in schema:
                return lambda values: all(
                    look is None or look(value) for look, value in zip(looks, values, strict=False)
                )
        case "frozenset" if not keys:
            look = _look_at(schema["items_schema"], config, definitions, known)
            return look and _look_at_all(look)
        case "model":
            return known.get(schema["cls"]) or _looks_of(schema, definitions, known)
        case "enum" if not keys and {type(member.value) for member in schema["members"]} <= {int, str}:
            return None
        case "literal" if not keys and {*map(type, schema["expected"])} <= {*_SCALARS.values(), NoneType}:
            return None
        case "float" if config.get("ser_json_inf_nan") != "constants" and not keys:
            return lambda value: type(value) is float and isfinite(value)  # all others are written as null
        case "bytes" if config.get("ser_json_bytes") == config.get("val_json_bytes") == "base64" and not keys:
            return None
        case "decimal" if not keys:
            return lambda value: type(value) is Decimal and value.is_finite()
        case "datetime" | "time" if not keys:  # of another zone the name, seconds, or all may be lost
            type_ = datetime if kind == "datetime" else time
            return lambda value: (
                type(value) is type_ and (value.tzinfo is None or type(value.tzinfo) is TzInfo)
            )
        case _ if kind in _KEPT and not keys:
            return None
    raise _OddError


def find_look(model_type: type[BaseModel]) -> _Look | None:
    """Return a look at models of a type, None when none is needed: they come back as they were, or not at all."""
    schema: Any = model_type.__pydantic_core_schema__
    definitions = {each["ref"]: each for each in schema.get("definitions", ())}
    schema = schema["schema"] if schema["type"] == "definitions" else schema
    schema = definitions[schema["schema_ref"]] if schema["type"] == "definition-ref" else schema
    try:
        return _looks_of(schema, definitions, {}) if schema["type"] == "model" else _never
    except _OddError:
        return _never


def _never(_: object) -> bool:
    return False


def _change(given: Any, back: Any, where: str) -> str | None:  # noqa: ANN401 - any field value
    """Return what differs between a value and the one that came back, in words; None when they are the same."""
    if type(given) is not type(back):
        return f"{where} is a {type(given).__name__} and comes back as a {type(back).__name__}"
    parts: Iterable[tuple[str, Any, Any]] = ()
    match given:
        case BaseModel():
            if list(given.__dict__) != list(back.__dict__):
                return f"{where} comes back with other fields"
            parts = [
                (f"{where}.{name}", value, back.__dict__[name]) for name, value in given.__dict__.items()
            ]
        case tuple() | frozenset():
            is_same = len(given) == len(back)
            pairs = zip(given, back, strict=False)
            if type(given) is frozenset:
                pairs = zip(sorted(given, key=_sort_key), sorted(back, key=_sort_key), strict=False)
            parts = [(f"{where}[{number}]", *pair) for number, pair in enumerate(pairs)]
        case float() | Decimal():
            is_same = repr(given) == repr(back)
        case datetime() | time():
            naive, naive_back = (each.replace(tzinfo=None, fold=0) for each in (given, back))
            has_zone = (given.tzinfo is None, given.utcoffset()) == (back.tzinfo is None, back.utcoffset())
            is_same = has_zone and naive == naive_back
        case _:
            is_same = given == back
    changed = next(filter(None, (_change(*part[1:], part[0]) for part in parts)), None)
    return changed or (
        None if isinstance(given, BaseModel) or is_same else f"{where} comes back as another value"
    )


JSON = ConfigDict(
    extra="ignore",
    ser_json_bytes="base64",
    val_json_bytes="base64",
    ser_json_inf_nan="constants",
    hide_input_in_errors=False,
)
"""What messages and states have in common; they add `frozen=True` themselves, for pydantic's mypy plugin."""

_SHOWN = 20

M = TypeVar("M", bound=BaseModel)

_MAYBE_LONG = re.compile(r"[0-9.](?:[0-9.]{15}|[eE][+-]?[0-9]{3})")
_NUMBER = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?')


def _exact_number(token: re.Match[str]) -> str:
    """Return a number of JSON as a string if a float, which pydantic makes of it, would lose digits."""
    text = token[0]
    if text[0] == '"' or text.lstrip("-").isdigit() or Decimal(repr(float(text))) == Decimal(text):
        return text
    return f'"{text}"'


class Codec(Generic[M]):
    """Encode and decode models of one type. A call costs about a microsecond for a small model.

    `encode` returns the JSON of a model: fields in declared order, sets sorted by the bytes of their members. It raises
    `CodecError` for unknown or missing fields, which `model_copy(update=...)` lets pass, and for a model that would not
    come back as it was. `decode` returns the model for its JSON, and raises pydantic's `ValidationError`. `plain` tells
    which models need no second look, None when the type is not plain.
    """

    __slots__ = (
        "_fields",
        "_has_decimals",
        "_look",
        "_read",
        "_sorted",
        "decode",
        "encode",
        "model_type",
        "plain",
        "serialize",
    )

    def __init__(self, model_type: type[M]) -> None:
        self.model_type = model_type
        self._fields = len(model_type.model_fields)
        parts = {
            get_origin(part) or part
            for model in _models(model_type, {})
            for field in model.model_fields.values()
            for part in _parts(field.annotation)
        }
        self._sorted = frozenset in parts  # the order of a set differs between processes
        self._has_decimals = Decimal in parts
        self.plain = find_plain(model_type)
        look = None if self.plain is not None else find_look(model_type)
        self._look = look
        self.encode: Callable[[M], bytes] = self.write if look is None else self._encode_and_look
        self._read: Callable[[bytes | str], M] = model_type.__pydantic_validator__.validate_json
        self.decode = self._read_exactly if self._has_decimals else self._read
        self.serialize = model_type.__pydantic_serializer__.to_json

    def exact(self, body: bytes | str) -> bytes | str:
        """Return the JSON of a model that has decimals, with the numbers as text that have more digits than a float."""
        if not self._has_decimals:
            return body
        text = body if isinstance(body, str) else body.decode(errors="surrogateescape")
        return _NUMBER.sub(_exact_number, text) if _MAYBE_LONG.search(text) else body

    def _read_exactly(self, data: bytes | str) -> M:
        return self._read(self.exact(data))

    def _encode_and_look(self, model: M) -> bytes:
        encoded = self.write(model)
        return encoded if self._look(model) else self.canonical(model, encoded)[1]  # type: ignore[misc] # it has one

    def write(self, model: M) -> bytes:
        """Return the JSON of a model, whether or not it comes back as it was. Raises `CodecError`."""
        if type(model) is not self.model_type:
            raise CodecError(f"Expected {self.model_type.__name__}, got {type(model).__name__}.")
        if len(model.__dict__) != self._fields:
            strange = sorted(set(model.__dict__) - set(self.model_type.model_fields))
            missing = sorted(set(self.model_type.model_fields) - set(model.__dict__))
            what = f"has no field {', '.join(strange)}" if strange else f"lacks {', '.join(missing)}"
            raise CodecError(f"{self.model_type.__name__} {what}.")
        try:
            return self.serialize(_ordered(model) if self._sorted else model, by_alias=True, warnings=False)
        except (PydanticSerializationError, TypeError, ValueError) as error:
            raise CodecError(f"{self._place_of_failure(model)} cannot be encoded: {error}") from error

    def reread(self, data: bytes) -> M:
        """Decode what `encode` returned. Raises `CodecError` when it is not valid."""
        try:
            return self._read(data)
        except ValidationError as error:
            raise self._refusal(error) from error

    def canonical(self, model: M, encoded: bytes) -> tuple[M, bytes]:
        """Return a model, which `write` has encoded, as storage returns it, and the bytes to store.

        A value that was not validated counts as what pydantic would make of it: 1.0 in a field of type int, a list for
        a tuple, 0 for a Decimal. Raises `CodecError` for one that its field's type does not allow, and for a model that
        does not come back as it was.
        """
        back = self.reread(encoded)
        if self._look is None or self._look(model):
            return back, self.write(back)
        if _change(model, back, "") is None:
            return back, encoded
        name = self.model_type.__name__
        try:
            valid = self.model_type.model_validate(dict(model.__dict__), by_alias=False, by_name=True)
        except ValidationError as error:
            raise self._refusal(error) from error
        encoded = self.write(valid)
        back = self.reread(encoded)
        change = _change(valid, back, name)
        if change is not None:
            raise CodecError(
                f"{change}: a replay would get something else. Use a type that JSON brings back as it was."
            )
        return back, encoded

    def _refusal(self, error: ValidationError) -> CodecError:
        name = self.model_type.__name__
        return CodecError(f"{name} holds a value that its type does not allow: {all_problems(error)}")

    def _place_of_failure(self, model: M) -> str:
        """Return the first field that cannot be encoded, with the name of the model."""
        name = self.model_type.__name__
        for field in self.model_type.model_fields:
            try:
                _json(_ordered(getattr(model, field)))
            except (PydanticSerializationError, TypeError, ValueError):
                return f"{name}.{field}"
        return name


def all_problems(error: ValidationError) -> str:
    """Return the problems of a `ValidationError` on one line, without links; of very many the first ones."""
    problems = error.errors(include_url=False, include_context=False, include_input=False)
    lines = []
    for problem in problems[:_SHOWN]:
        where = ".".join(map(str, problem["loc"]))
        lines.append(f"{where}: {problem['msg']}" if where else problem["msg"])
    more = len(problems) - len(lines)
    return "; ".join([*lines, f"and {more} more"] if more else lines)


class _Ordered(frozenset[Any]):
    """A set that is written sorted by the JSON of its members, each by the serializer of its type."""

    def __iter__(self) -> Iterator[Any]:
        return iter(sorted(super().__iter__(), key=_json))


def _ordered(value: Any) -> Any:  # noqa: ANN401 - any field value
    """Return a value in which sets are written sorted."""
    if isinstance(value, BaseModel):
        fields = {name: _ordered(item) for name, item in value.__dict__.items()}
        if all(map(is_, fields.values(), value.__dict__.values())):
            return value
        copied = value.__copy__()
        copied.__dict__.update(fields)
        return copied
    if isinstance(value, frozenset):
        return _Ordered(map(_ordered, value))
    if type(value) in (tuple, list):
        items = [*map(_ordered, value)]
        return value if all(map(is_, items, value)) else type(value)(items)
    return value


def _sort_key(value: Any) -> bytes:  # noqa: ANN401 - any field value
    return _json(_ordered(value))


def _json(value: Any) -> bytes:  # noqa: ANN401 - any field value
    return to_json(value, bytes_mode="base64", inf_nan_mode="constants")


def is_text(value: object) -> TypeGuard[str]:
    """Return whether a value is a str that can be encoded as UTF-8: one with a lone surrogate cannot."""
    if not isinstance(value, str):
        return False
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


# Untrusted msgpack is unpacked in bounded memory. An empty array is one byte of msgpack and 56 of memory, and an array
# may announce more items than it has. So items are counted while they are unpacked, and larger data is looked through
# before any memory is set aside for it.

MAX_ITEMS = 2**20
"""How many arrays, maps and items of these may be in one piece of data."""

MAX_DEPTH = 200
"""How deep arrays and maps may be nested: what pydantic allows for JSON."""

_TRUSTED_BYTES = 4 * 2**10
"""Up to here the arrays that data announces are no danger, even if it has none of their items."""


def unpack(
    data: bytes,
    *,
    most: int | None = None,
    ext_hook: Callable[[int, bytes], Any] = msgpack.ExtType,
    unicode_errors: str | None = None,
    strict_map_key: bool = True,
) -> Any:  # noqa: ANN401 - any value that msgpack knows
    """Return what `msgpack.unpackb` does for trusted data. Raises `ValueError`, `TypeError` and what msgpack raises.

    `most` is how many items an array or map may have, of which there are few in data that says so: it is not looked
    through before.

    Raises `msgpack.StackError`, which is a `ValueError`, for what is nested too deeply.
    """
    budget = _Budget()
    limit = min(MAX_ITEMS, len(data)) if most is None else most
    if len(data) > _TRUSTED_BYTES and most is None:
        unpacker = msgpack.Unpacker(
            max_buffer_size=len(data), max_array_len=limit, max_map_len=limit, unicode_errors=unicode_errors
        )
        unpacker.feed(data)
        unpacker.skip()
    unpacked = msgpack.unpackb(
        data,
        object_hook=budget.count,
        list_hook=budget.count,
        max_array_len=limit,
        max_map_len=limit,
        ext_hook=ext_hook,
        unicode_errors=unicode_errors,
        strict_map_key=strict_map_key,
    )
    if budget.containers > MAX_DEPTH and is_deeper(unpacked, MAX_DEPTH + 1):
        message = f"it is nested deeper than {MAX_DEPTH} levels"
        raise msgpack.StackError(message)
    return unpacked


def is_deeper(value: Any, depth: int) -> bool:  # noqa: ANN401 - what was unpacked
    """Return whether lists and dicts are nested to a greater depth."""
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


class _Budget:
    """Counts what was unpacked."""

    __slots__ = ("_items", "containers")

    def __init__(self) -> None:
        self.containers = 0
        self._items = 0

    def count(self, container: Any) -> Any:  # noqa: ANN401 - a list or a dict
        self.containers += 1
        self._items += 1 + len(container)
        if self._items > MAX_ITEMS:
            message = f"it holds more than {MAX_ITEMS} items"
            raise ValueError(message)
        return container

"""The types that a field of a message or state may have: immutable ones, all the way down.

A frozen model with a list in it can still be mutated through the list, and a replay would then get another input
than the first run did.
"""

from __future__ import annotations

import types
from collections.abc import Iterator
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, Union, get_args, get_origin
from uuid import UUID

from pydantic import AliasChoices, BaseModel
from pydantic.fields import FieldInfo

from handlers.errors import AppError

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
    for model in _models(model_type, set()):
        _check_complete(model)
        _check_settings(model)
        for name, field in model.model_fields.items():
            where = f"{model.__name__}.{name}"
            _check_type(field.annotation, where)
            _check_storage(model, name, field, where)
    check_defaults(model_type)


def check_defaults(model_type: type[BaseModel]) -> None:
    """Raise `AppError` when a field of the model has a default_factory that may be nondeterministic."""
    for model in _models(model_type, set()):
        for name, field in model.model_fields.items():
            factory = field.default_factory
            if factory is None or factory in PURE_FACTORIES:
                continue
            if isinstance(factory, type) and issubclass(factory, BaseModel):
                continue
            raise AppError(
                f"{model.__name__}.{name} has a default_factory, which may return another value in a replay: give it a "
                f"default, or let the handler set it, for example with context.new_guid()."
            )


def holds_frozenset(model_type: type[BaseModel]) -> bool:
    """Return whether there is a set anywhere in the model: its order differs between processes."""
    return any(
        frozenset in (part, get_origin(part))
        for model in _models(model_type, set())
        for field in model.model_fields.values()
        for part in _parts(field.annotation)
    )


def _check_complete(model: type[BaseModel]) -> None:
    if not model.__pydantic_complete__ and not model.model_rebuild(raise_errors=False):
        raise AppError(
            f"{model.__name__} has an annotation that cannot be resolved: import its type at run time, not under "
            f"TYPE_CHECKING."
        )


def _check_settings(model: type[BaseModel]) -> None:
    name = model.__name__
    if not model.model_config.get("frozen"):
        raise AppError(f"{name} is not frozen: set model_config = ConfigDict(frozen=True).")
    if model.model_config.get("extra") == "allow":
        raise AppError(f"{name} allows extra fields: declare each field, so that its type is known.")
    if model.__private_attributes__:
        private = ", ".join(sorted(model.__private_attributes__))
        raise AppError(f"{name} has the private attribute {private}, which is not stored: make it a field.")
    if model.model_computed_fields:
        computed = ", ".join(sorted(model.model_computed_fields))
        raise AppError(
            f"{name} has the computed field {computed}, which is stored and never read: make it a plain property."
        )


def _check_type(annotation: Any, where: str) -> None:  # noqa: ANN401 - a type expression
    for part in _parts(annotation):
        if not _is_allowed(part):
            shown = getattr(part, "__name__", None) or str(part)
            instead = INSTEAD.get(get_origin(part) or part)
            hint = f"use {instead}" if instead else f"allowed are {_ALLOWED}"
            raise AppError(f"{where} is of type {shown}, which is mutable or not supported: {hint}.")


def _check_storage(model: type[BaseModel], name: str, field: FieldInfo, where: str) -> None:
    if field.exclude:
        raise AppError(f"{where} is excluded, so it would not be stored: remove exclude.")
    written = field.serialization_alias or name
    if written not in _names_read(model, name, field):
        raise AppError(
            f"{where} is stored as {written!r} and read by another name: give it one alias for both."
        )
    config = model.model_config
    if bytes in _parts(field.annotation) and not (
        config.get("ser_json_bytes") == config.get("val_json_bytes") == "base64"
    ):
        raise AppError(
            f"{where} is bytes: add ser_json_bytes='base64' and val_json_bytes='base64' to its model_config."
        )


def _names_read(model: type[BaseModel], name: str, field: FieldInfo) -> set[object]:
    alias = field.validation_alias
    names: set[object] = set(alias.choices) if isinstance(alias, AliasChoices) else {alias or name}
    by_name = model.model_config.get("populate_by_name") or model.model_config.get("validate_by_name")
    return names | {name} if by_name else names


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


def _models(model_type: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    if model_type in seen:
        return
    seen.add(model_type)
    yield model_type
    for field in model_type.model_fields.values():
        for part in _parts(field.annotation):
            if isinstance(part, type) and get_origin(part) is None and issubclass(part, BaseModel):
                yield from _models(part, seen)

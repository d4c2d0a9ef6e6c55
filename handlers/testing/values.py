"""Hypothesis strategies for field values: of each type that `App` allows, within the limits of the field."""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin
from uuid import UUID

from hypothesis import strategies as st
from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo

from handlers.fields import resolve_alias

M = TypeVar("M", bound=BaseModel)
Limits = Mapping[str, Any]
_Known = dict[type, st.SearchStrategy[Any]]

_LIMITS = ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern", "max_digits", "decimal_places")
_FIRST, _LAST = datetime(1900, 1, 1), datetime(2200, 1, 1)  # noqa: DTZ001 - as Hypothesis takes them
_DAYS = timedelta(10_000)
_MORE = 3
"""Members or letters beyond the minimum: enough to differ in order, few enough for models with many fields."""


def models(model: type[M]) -> st.SearchStrategy[M]:
    """Return a strategy for instances of a model that its validators accept."""
    return _model(model, {})


def _model(model: type[BaseModel], known: _Known) -> st.SearchStrategy[Any]:
    if model not in known:
        known[model] = st.deferred(lambda: strategy)  # a model may contain itself
        fields = {
            _name_read(name, field): _values(field.annotation, field.metadata, known)
            for name, field in model.model_fields.items()
        }
        strategy = (
            st.fixed_dictionaries(fields)
            .map(partial(_validated, model))
            .filter(lambda made: made is not None)
        )
    return known[model]


def _validated(model: type[BaseModel], values: dict[str, Any]) -> BaseModel | None:
    try:
        return model.model_validate(values)
    except ValidationError:
        return None


def _name_read(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = next((choice for choice in alias.choices if isinstance(choice, str)), None)
    return alias if isinstance(alias, str) else name


def _values(annotation: Any, metadata: Iterable[Any], known: _Known) -> st.SearchStrategy[Any]:  # noqa: ANN401 - a type
    """Return a strategy for the values of a type expression."""
    annotation = resolve_alias(annotation)
    inner, origin = get_args(annotation), get_origin(annotation)
    if origin is Annotated:
        return _values(inner[0], (*inner[1:], *metadata), known)
    if origin in (Union, types.UnionType):
        return st.one_of(*(_values(each, metadata, known) for each in inner))
    if origin is Literal:
        return st.sampled_from(inner)
    if origin in (tuple, frozenset):
        return _collections(origin, inner, dict(_limits(metadata)), known)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model(annotation, known)
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return st.sampled_from(annotation)
    return _PLAIN[annotation](dict(_limits(metadata)))


def _collections(
    origin: Any,  # noqa: ANN401 - a type
    inner: tuple[Any, ...],
    limits: Limits,
    known: _Known,
) -> st.SearchStrategy[Any]:
    if origin is frozenset:
        return st.frozensets(_values(inner[0], (), known), **_sizes(limits))
    if inner[-1:] == (Ellipsis,):
        return st.lists(_values(inner[0], (), known), **_sizes(limits)).map(tuple)
    return st.tuples(*(_values(each, (), known) for each in inner))


def _floats(limits: Limits) -> st.SearchStrategy[float]:
    excluded: dict[str, Any] = {"exclude_min": "gt" in limits, "exclude_max": "lt" in limits}
    return st.floats(*_range(limits), allow_nan=False, allow_infinity=False, **excluded)


def _decimals(limits: Limits) -> st.SearchStrategy[Decimal]:
    places = limits.get("decimal_places")
    most = None if "max_digits" not in limits else Decimal(10) ** (limits["max_digits"] - (places or 0)) - 1
    least = None if most is None else -most
    return st.decimals(*_range(limits, least, most), allow_nan=False, allow_infinity=False, places=places)


_PLAIN: Mapping[Any, Callable[[Limits], st.SearchStrategy[Any]]] = {
    str: lambda limits: (
        st.from_regex(limits["pattern"]) if "pattern" in limits else st.text(**_sizes(limits))
    ),
    bytes: lambda limits: st.binary(**_sizes(limits)),
    bool: lambda _: st.booleans(),
    int: lambda limits: st.integers(*_range(limits)),
    float: _floats,
    Decimal: _decimals,
    UUID: lambda _: st.uuids(),
    datetime: lambda _: st.datetimes(_FIRST, _LAST, timezones=st.sampled_from([None, UTC])),
    date: lambda limits: st.dates(*_range(limits, _FIRST.date(), _LAST.date())),
    time: lambda _: st.times(),
    timedelta: lambda limits: st.timedeltas(*_range(limits, -_DAYS, _DAYS)),
    type(None): lambda _: st.none(),
    None: lambda _: st.none(),
}


def _range(limits: Limits, first: Any = None, last: Any = None) -> tuple[Any, Any]:  # noqa: ANN401 - numbers or times
    """Return the least and greatest value; exclusive limits are left to the model's validation."""
    return limits.get("ge", limits.get("gt", first)), limits.get("le", limits.get("lt", last))


def _sizes(limits: Limits) -> dict[str, Any]:
    least = limits.get("min_length", 0)
    return {"min_size": least, "max_size": min(limits.get("max_length", least + _MORE), least + _MORE)}


def _limits(metadata: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    for item in metadata:
        if isinstance(item, FieldInfo):
            yield from _limits(item.metadata)
        else:
            yield from (
                (name, getattr(item, name)) for name in _LIMITS if getattr(item, name, None) is not None
            )

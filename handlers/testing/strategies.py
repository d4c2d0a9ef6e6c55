"""Hypothesis strategies for scenarios, each of which is a few messages for one business object, as in a log."""

import json
import types
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Annotated, Any, Union, get_args, get_origin

import hypothesis
from hypothesis import strategies as st
from pydantic import AliasChoices, BaseModel, ValidationError
from pydantic.fields import FieldInfo

from handlers.app import App, HandlerDefinition
from handlers.codec import resolve_alias
from handlers.context import message_codec
from handlers.errors import SpecError
from handlers.message import Message, message_name

Strategy = st.SearchStrategy[Any]
_Known = dict[type, Strategy]
_Limits = Mapping[str, Any]

_LIMITS = ("ge", "gt", "le", "lt", "min_length", "max_length", "pattern", "max_digits", "decimal_places")
_FIRST, _LAST = datetime(1900, 1, 1), datetime(2200, 1, 1)  # noqa: DTZ001 - as Hypothesis takes them
_DAYS = timedelta(10_000)
_MORE = 3  # members or characters above the minimum: enough to differ in order, few for large models
_MOST_MESSAGES = 6


def scenarios(
    app: App, examples: int, seed: int, given: Mapping[type[Message], Strategy]
) -> list[tuple[str, str, tuple[tuple[str, str], ...]]]:
    """Generate up to `examples` scenarios for the handlers of an app. The same seed generates the same scenarios.

    A scenario is a handler's name, a business id, and messages as pairs of type name and JSON body. `given` has the
    user's strategies for message types. Raises `SpecError` if no valid messages are generated.
    """
    generated: list[tuple[str, str, tuple[tuple[str, str], ...]]] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        phases=[hypothesis.Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.one_of(*(_messages(handler, given) for handler in app.handlers.values())))
    def keep(drawn: tuple[HandlerDefinition, list[Message]]) -> None:
        handler, messages = drawn
        route = handler.routes[message_name(type(messages[0]))]
        value: Any = json.loads(message_codec(type(messages[0])).write(messages[0]))
        for step in route.wire_path:
            value = value[step]
        business_id = route.business_id(messages[0])
        hypothesis.assume(business_id)
        bodies = [_addressed(handler, message, value, business_id) for message in messages]
        names = [message_name(type(message)) for message in messages]
        generated.append((handler.name, business_id, tuple(zip(names, bodies, strict=True))))

    with suppress(hypothesis.errors.Unsatisfiable):
        keep()
    if not generated:
        advice = "pass check_determinism(..., strategies={SomeMessage: ...}) for messages with validators"
        raise SpecError(f"No valid messages were generated: {advice}.")
    return generated


def _messages(handler: HandlerDefinition, given: Mapping[type[Message], Strategy]) -> Strategy:
    kinds = sorted({route.message_type for route in handler.routes.values()}, key=message_name)
    each = st.one_of(*(given[kind] if kind in given else _model(kind, {}) for kind in kinds))
    return st.tuples(st.just(handler), st.lists(each, min_size=1, max_size=_MOST_MESSAGES))


def _addressed(handler: HandlerDefinition, message: Message, value: Any, business_id: str) -> str:  # noqa: ANN401
    route, codec = handler.routes[message_name(type(message))], message_codec(type(message))
    body = part = json.loads(codec.write(message))
    for step in route.wire_path[:-1]:
        part = part[step]
    part[route.wire_path[-1]] = value
    text = json.dumps(body)
    try:
        named = route.business_id(codec.decode(text))
    except ValidationError:
        hypothesis.reject()
    hypothesis.assume(named == business_id)
    return text


# Values of the types that `App` allows, within the limits of the field.


def _model(model: type[BaseModel], known: _Known) -> Strategy:
    def validated(values: dict[str, Any]) -> BaseModel | None:
        try:
            return model.model_validate(values)
        except ValidationError:
            return None

    if model not in known:
        known[model] = st.deferred(lambda: strategy)  # a model may contain itself
        fields = {
            _name_read(name, field): _values(field.annotation, field.metadata, known)
            for name, field in model.model_fields.items()
        }
        strategy = st.fixed_dictionaries(fields).map(validated).filter(lambda made: made is not None)
    return known[model]


def _name_read(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    if isinstance(alias, AliasChoices):
        alias = next((choice for choice in alias.choices if isinstance(choice, str)), None)
    return alias if isinstance(alias, str) else name


def _values(annotation: Any, metadata: Iterable[Any], known: _Known) -> Strategy:  # noqa: ANN401 - a type
    annotation = resolve_alias(annotation)
    inner, origin = get_args(annotation), get_origin(annotation)
    if origin is Annotated:
        return _values(inner[0], (*inner[1:], *metadata), known)
    if origin in (Union, types.UnionType):
        return st.one_of(*(_values(each, metadata, known) for each in inner))
    if origin in (tuple, frozenset):
        members = [_values(each, (), known) for each in inner if each is not Ellipsis]
        if origin is tuple and len(members) == len(inner):
            return st.tuples(*members)
        make = st.frozensets if origin is frozenset else st.lists
        return make(members[0], **_sizes(_limits(metadata))).map(origin)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return _model(annotation, known)
    limited = _LIMITED.get(annotation)
    return limited(_limits(metadata)) if limited else st.from_type(annotation)


def _limits(metadata: Iterable[Any]) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    for item in metadata:
        if isinstance(item, FieldInfo):
            limits |= _limits(item.metadata)
        limits |= {name: getattr(item, name) for name in _LIMITS if getattr(item, name, None) is not None}
    return limits


def _sizes(limits: _Limits) -> dict[str, Any]:
    least = limits.get("min_length", 0)
    return {"min_size": least, "max_size": min(limits.get("max_length", least + _MORE), least + _MORE)}


def _range(limits: _Limits, first: Any = None, last: Any = None) -> tuple[Any, Any]:  # noqa: ANN401 - numbers or times
    return limits.get("ge", limits.get("gt", first)), limits.get("le", limits.get("lt", last))


def _texts(limits: _Limits) -> Strategy:
    return st.from_regex(limits["pattern"]) if "pattern" in limits else st.text(**_sizes(limits))


def _decimals(limits: _Limits) -> Strategy:
    places = limits.get("decimal_places")
    most = None if "max_digits" not in limits else Decimal(10) ** (limits["max_digits"] - (places or 0)) - 1
    least = None if most is None else -most
    return st.decimals(*_range(limits, least, most), allow_nan=False, allow_infinity=False, places=places)


_LIMITED: Mapping[Any, Callable[[_Limits], Strategy]] = {
    str: _texts,
    bytes: lambda limits: st.binary(**_sizes(limits)),
    int: lambda limits: st.integers(*_range(limits)),
    float: lambda limits: st.floats(*_range(limits), allow_nan=False, allow_infinity=False),
    Decimal: _decimals,
    datetime: lambda _: st.datetimes(_FIRST, _LAST, timezones=st.sampled_from([None, UTC])),
    date: lambda limits: st.dates(*_range(limits, _FIRST.date(), _LAST.date())),
    timedelta: lambda limits: st.timedeltas(*_range(limits, -_DAYS, _DAYS)),
}
"""The strategies of types that have limits. For other types, Hypothesis has one."""

"""Hypothesis strategies for scenarios: a few messages for one business object, as in a log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

import hypothesis
from hypothesis import strategies as st
from pydantic import ValidationError

from handlers.app import App, HandlerDefinition
from handlers.context import message_codec
from handlers.errors import SpecError
from handlers.message import Message, message_name
from handlers.testing.scenario import Scenario
from handlers.testing.values import models

Strategies = Mapping[type[Message], st.SearchStrategy[Any]]

_LONGEST = 6


def scenarios(app: App, examples: int, seed: int, given: Strategies) -> list[Scenario]:
    """Return as many scenarios for the handlers of an app; the same seed returns the same ones."""
    found: list[Scenario] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        phases=[hypothesis.Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(st.one_of(*(_scenarios_of(handler, given) for handler in app.handlers.values())))
    def keep(scenario: Scenario) -> None:
        found.append(scenario)

    with suppress(hypothesis.errors.Unsatisfiable):
        keep()
    if not found:
        raise SpecError(
            "No valid messages were generated: pass check_determinism(..., strategies={SomeMessage: ...}) for the "
            "message types whose validators check more than the limits of their fields."
        )
    return found


def _scenarios_of(handler: HandlerDefinition, given: Strategies) -> st.SearchStrategy[Scenario]:
    kinds = {route.message_type for route in handler.routes.values()}
    messages = [given[kind] if kind in given else models(kind) for kind in sorted(kinds, key=message_name)]
    return st.lists(st.one_of(*messages), min_size=1, max_size=_LONGEST).map(
        lambda found: _scenario(handler, found)
    )


def _scenario(handler: HandlerDefinition, messages: list[Message]) -> Scenario:
    """Return the scenario of messages, all with the business id of the first."""
    route = handler.routes[message_name(type(messages[0]))]
    body = json.loads(message_codec(route.message_type).encode(messages[0]))
    for step in route.wire_path:
        body = body[step]
    business_id = route.business_id(messages[0])
    hypothesis.assume(business_id)
    told = tuple(
        (message_name(type(each)), _addressed(handler, each, body, business_id)) for each in messages
    )
    return Scenario(handler.name, business_id, told)


def _addressed(handler: HandlerDefinition, message: Message, value: Any, business_id: str) -> str:  # noqa: ANN401
    """Return the body of a message with another business id; reject the example when it is not valid."""
    route = handler.routes[message_name(type(message))]
    body = json.loads(message_codec(route.message_type).encode(message))
    part = body
    for step in route.wire_path[:-1]:
        part = part[step]
    part[route.wire_path[-1]] = value
    text = json.dumps(body)
    try:
        named = route.business_id(message_codec(route.message_type).decode(text))
    except ValidationError:
        hypothesis.reject()
    hypothesis.assume(named == business_id)
    return text

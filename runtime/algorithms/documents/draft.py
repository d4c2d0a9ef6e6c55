"""Drafts: what an attempt with documents is going to commit, before it registers and prepares anything. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import NamedTuple

from handlers.app import HandlerDefinition
from runtime.algorithms.documents.effects import MAX_BYTES, Effect
from runtime.algorithms.outbox.entity import Entity
from runtime.algorithms.outbox.invoking import if_it_fits, refused
from runtime.messages.deliveries import Prepared
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome, Output, Reason

DOCUMENT = "document"
"""The header in which a message names its document."""

DIGEST = "document-sha256"
"""The header with the SHA-256 of the document, in hexadecimal digits."""

Render = Callable[[Output], bytes | None]
"""Makes the document of an output, None for an output without one. Need not make the same one twice."""


class Draft(NamedTuple):
    """The entity that a message changed, whose outputs name their documents, and the documents."""

    changed: Entity
    documents: Sequence[tuple[Effect, bytes]]


def drafted(
    handler: HandlerDefinition, changed: Entity, message: Prepared, attempt: str, render: Render
) -> Draft | Outcome:
    """Render the documents of a message's outputs, under names of an attempt; or return the dead letter."""
    try:
        contents = _rendered(render, changed.outbox[message.key].to_publish)
    except Exception as error:  # noqa: BLE001 - it is the user's, and may raise anything
        return refused(handler, message, Reason.HANDLER_ERROR, f"{type(error).__name__}: {error}")
    largest = max(map(len, contents.values()), default=0)
    if largest > MAX_BYTES:
        problem = f"A document has {largest} bytes; up to {MAX_BYTES} can be stored."
        return refused(handler, message, Reason.STATE_TOO_LARGE, problem)
    documents = {
        index: (Effect(changed.key, attempt, number), content)
        for number, (index, content) in enumerate(contents.items())
    }
    announced = if_it_fits(handler, _announcing(changed, message.key, documents), message)
    return announced if isinstance(announced, Outcome) else Draft(announced, tuple(documents.values()))


def _rendered(render: Render, outputs: Sequence[Output]) -> dict[int, bytes]:
    """Return the documents of outputs by the outputs' numbers."""
    contents = {index: render(output) for index, output in enumerate(outputs)}
    return {index: content for index, content in contents.items() if content is not None}


def _announcing(entity: Entity, message_id: IdKey, documents: Mapping[int, tuple[Effect, bytes]]) -> Entity:
    """Return an entity in which the outputs of a message name their documents."""
    if not documents:
        return entity
    entry = entity.outbox[message_id]
    outputs = tuple(
        output._replace(headers={**output.headers, **_headers(*documents[index])})
        if index in documents
        else output
        for index, output in enumerate(entry.to_publish)
    )
    return entity.with_entry(message_id, replace(entry, outputs=outputs))


def _headers(effect: Effect, content: bytes) -> dict[str, str]:
    return {DOCUMENT: effect.name, DIGEST: sha256(content).hexdigest()}

"""Mistakes of token-based de-duplication."""

from __future__ import annotations

from copy import copy
from functools import partial
from typing import Any

import pytest

from runtime.algorithms.outbox.stores import EntryTokens, TokenStore, token_of
from runtime.algorithms.outbox.variants import TokenBased, _committed
from tests.model.mistakes.mistake import Mistake
from tests.model.mistakes.outboxes import store_whatever_is_there
from tests.model.scenarios.tokens import tokens
from tests.model.world import Bounds


def _first_draft(patch: pytest.MonkeyPatch) -> None:
    """Create the tokens of the outputs, under the same ids, whenever a message comes."""

    async def make_ready(self: Any, entity: Any, attempts: Any) -> Any:
        for message_id in attempts:
            entry = entity.outbox[message_id]
            await self.tokens.create(entry.tokens.incoming, entry.tokens.of_attempt("same"))
        return _committed(dict.fromkeys(attempts, "same"), entity)

    patch.setattr(TokenBased, "make_ready", make_ready)


def _same_ids(patch: pytest.MonkeyPatch) -> None:
    begin: Any = TokenBased.__init__

    def begin_with_one_id(self: Any, *given: Any, **named: Any) -> None:
        begin(self, *given, **{**named, "new_id": lambda: "same"})

    patch.setattr(TokenBased, "__init__", begin_with_one_id)


def _no_checkpoint(patch: pytest.MonkeyPatch) -> None:
    async def make_ready(self: Any, entity: Any, attempts: Any) -> Any:
        for message_id, attempt in attempts.items():
            entry = entity.outbox[message_id]
            await self.tokens.create(entry.tokens.incoming, entry.tokens.of_attempt(attempt))
        return _committed(attempts, entity)

    patch.setattr(TokenBased, "make_ready", make_ready)


def _token_before_entity(patch: pytest.MonkeyPatch) -> None:
    attempt: Any = TokenBased.attempt

    async def attempt_late(self: Any, business_id: str, deliveries: Any, *more: Any) -> Any:
        early = copy(self)
        early.tokens = copy(self.tokens)
        found = await self.tokens.exists(token_of(deliveries[0].envelope, self.handler.name))
        early.tokens.exists = partial(_told, found)
        return await attempt(early, business_id, deliveries, *more)

    patch.setattr(TokenBased, "attempt", attempt_late)


async def _told(found: bool, _: object) -> bool:
    return found


def _not_registered(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(EntryTokens, "registered", lambda self, _: self)


def _created_whenever(patch: pytest.MonkeyPatch) -> None:
    async def create(self: Any, _: Any, created: Any) -> None:
        await self.issue(created)

    patch.setattr(TokenStore, "create", create)


def _never_deleted(patch: pytest.MonkeyPatch) -> None:
    async def delete(*_: object) -> None:
        """Leave it."""

    patch.setattr(TokenStore, "delete", delete)


def _deleted_before_published(patch: pytest.MonkeyPatch) -> None:
    make_ready: Any = TokenBased.make_ready

    async def make_ready_and_delete(self: Any, entity: Any, attempts: Any) -> Any:
        ready = await make_ready(self, entity, attempts)
        for message_id in attempts:
            await self.tokens.delete(entity.outbox[message_id].tokens.incoming)
        return ready

    patch.setattr(TokenBased, "make_ready", make_ready_and_delete)


_CALM, _CRASH = Bounds(), Bounds(1, 1)
_ONE, _TWICE = tokens("x"), tokens("x", copies=2)

MISTAKES = (
    Mistake("tokens: created again, one worker and a crash", _first_draft, _ONE, _CRASH, "ReceivedOnce"),
    Mistake("tokens: created again, two copies", _first_draft, _TWICE, _CALM, "ReceivedOnce"),
    Mistake("tokens: each attempt has the same ids", _same_ids, _TWICE, _CALM, "ReceivedOnce"),
    Mistake("tokens: no checkpoint", _no_checkpoint, _ONE, _CRASH, "ConsistentOutput"),
    Mistake(
        "tokens: asked before the entity is loaded",
        _token_before_entity,
        _TWICE,
        _CALM,
        "AtMostOneStateChange",
    ),
    Mistake("tokens: attempts are not registered", _not_registered, _ONE, _CRASH, "NoGarbage"),
    Mistake("tokens: created though the message is finished", _created_whenever, _TWICE, _CALM, "NoGarbage"),
    Mistake("tokens: never deleted", _never_deleted, _ONE, Bounds(1), "NoGarbage"),
    Mistake(
        "tokens: deleted before the outputs are published",
        _deleted_before_published,
        _ONE,
        _CRASH,
        "DoneWhenAcknowledged",
    ),
    Mistake(
        "tokens: the entity is stored without checking the ETag",
        store_whatever_is_there,
        tokens("x", "y"),
        _CALM,
        "NoLostUpdate",
    ),
)

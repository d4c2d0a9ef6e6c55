"""What other partitions than its own hold of a business object: it is read, and deleted only as it was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventstore import Row
from runtime.algorithms.outbox.tokens import FoundToken, TokenStore
from runtime.cleanup.business_object import BusinessObject, Tables
from runtime.cleanup.policies import Policies, Policy, Scope
from runtime.clock import Clock
from runtime.publishing.erasing import delete_letters, letters_of


class Parts(NamedTuple):
    """Tokens, rules, and dead letters of publications, each with its ETag."""

    tokens: Sequence[FoundToken]
    policy: Policy
    letters: Sequence[Row]

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to delete."""
        return not (self.tokens or self.policy.rules or self.letters)


class Elsewhere:
    """The other partitions of some tables."""

    def __init__(self, tables: Tables, clock: Clock) -> None:
        self._states = tables.states
        self._tokens = TokenStore(tables.token_store)
        self._policies = Policies(tables.states, clock)

    async def read(self, found: BusinessObject, scope: Scope) -> Parts:
        """Return what there is of an object.

        A request for each token, one for its policy, and one for each 1,000 letters of all objects.
        """
        return Parts(
            await self._tokens.find(found.tokens),
            await self._policies.get(scope),
            await letters_of(self._states, scope.handler or "", scope.business_id or ""),
        )

    async def delete(self, parts: Parts) -> None:
        """Delete it as it was read; a hold stays. A request for each but letters, and one for each 100 of these.

        Raises `RowError` when somebody has written, or deleted, some of it since.
        """
        for token in parts.tokens:
            await self._tokens.delete(*token)
        if parts.tokens:
            await self._tokens.flush()
        await self._policies.remove_rules_of(parts.policy)
        await delete_letters(self._states, parts.letters)

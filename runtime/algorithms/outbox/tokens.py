"""Tokens: a message may be processed only while its token exists.

A token belongs to a chain: the messages that one message from outside has led to. The tokens of a chain stand in one
partition, so that new ones can be created on the condition that the token of their parent, the message that publishes
them, still exists. An attempt that wants to create tokens when another has finished the message is refused, however
late it is.

A message that goes to several handlers has one token name, and a token for each of them.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from eventstore import ConcurrencyConflictError, Operation, RowExistsError, RowNotFoundError, Table, pages
from eventstore.limits import MAX_OPERATIONS
from runtime.messages.envelope import Envelope

HEADER = "token"
"""The header in which a message carries the name of its token."""

PARTITION = "tokens."
_LAST_PARTITION = f"{PARTITION}~"
"""Begins the partition keys of chains. No entity's key is like it: a handler's name has no full stop."""

USED = "Used"
"""The property of a token for whose message others were created."""

FIRST = "first"
CHAIN_LENGTH = 32
_NAME = re.compile("[A-Za-z0-9-]{1,64}/[A-Za-z0-9-]{1,64}")


class Token(NamedTuple):
    """A token for one handler. Chain and id together are its name, which the message carries."""

    chain: str
    id: str
    handler: str

    @classmethod
    def named(cls, name: str, handler: str) -> Token:
        """Return the token of a handler that has this name."""
        chain, _, id_ = name.rpartition("/")
        return cls(chain, id_, handler)

    @property
    def name(self) -> str:
        """The text that the message carries."""
        return f"{self.chain}/{self.id}"

    @property
    def row_key(self) -> str:
        """The key of its row."""
        return f"{self.id}-{self.handler}"


class TokenStore:
    """The tokens of messages that were sent and not yet processed: a row for each. Reads must be strongly consistent.

    Costs one request for each call.
    """

    def __init__(self, table: Table) -> None:
        self.table = table

    async def exists(self, token: Token) -> bool:
        """Say whether a token exists."""
        return await self.table.get(PARTITION + token.chain, token.row_key) is not None

    async def issue(self, tokens: Sequence[Token]) -> bool:
        """Create tokens for a message from outside, all or none; say whether they are new. Durable on return."""
        is_new = await self.add(tokens)
        await self.flush()
        return is_new

    async def add(self, tokens: Sequence[Token]) -> bool:
        """Create tokens as `issue` does; they are durable from `flush` on."""
        inserts = [Operation.insert(token.row_key, {}) for token in tokens]
        try:
            await self.table.transact(PARTITION + tokens[0].chain, inserts)
        except RowExistsError:
            return False
        return True

    async def create(self, parent: Token, tokens: Sequence[Token]) -> None:
        """Create tokens of the parent's chain while the parent exists; they are durable from `flush` on.

        Costs one request for each 99 tokens. Raises `ConcurrencyConflictError` when the parent is gone. After a failure
        some tokens may exist all the same, or come into being later, but none once the parent is deleted.
        """
        step = MAX_OPERATIONS - 1
        for at in range(0, len(tokens), step):
            inserts = [Operation.insert(token.row_key, {}) for token in tokens[at : at + step]]
            still_there = Operation.merge(parent.row_key, {USED: True})
            try:
                await self.table.transact(PARTITION + parent.chain, [still_there, *inserts])
            except (RowNotFoundError, RowExistsError) as error:
                raise ConcurrencyConflictError(parent.name, str(error)) from error

    async def delete(self, token: Token) -> None:
        """Delete a token, if it exists; durable from `flush` on."""
        try:
            await self.table.transact(PARTITION + token.chain, [Operation.delete(token.row_key)])
        except RowNotFoundError:
            return

    async def flush(self) -> None:
        """Return when all that was created and deleted before, by anybody, survives a power cut."""
        await self.table.barrier()

    async def count(self) -> int:
        """Return how many tokens exist. Costs one request for each 1,000."""
        found = pages(partial(self.table.scan, None, PARTITION, _LAST_PARTITION, select=[]))
        return sum([len(page.rows) async for page in found])


async def issue(store: TokenStore, message: Envelope, handlers: Collection[str]) -> Envelope:
    """Return a message from outside with the name of its token, after creating one for each handler that takes it.

    Send the message only after this has returned. After a failure issue and send again: the same message gets the same
    token, and while one of its tokens exists it gets no other. Never issue for a message that was processed: it would
    be processed again, also when the request of a call that failed takes effect that late. Costs one request.
    """
    tokens = first_tokens(message.message_id, handlers)
    if tokens:
        await store.issue(tokens)
    return message._replace(headers=with_token(message.headers or {}, first_name(message.message_id)))


def first_tokens(message_id: str, handlers: Collection[str]) -> list[Token]:
    """Return the tokens of a message from outside, one for each handler that takes it."""
    return [Token.named(first_name(message_id), handler) for handler in handlers]


def first_name(message_id: str) -> str:
    """Return the name of the token of a message from outside: its chain begins with it."""
    return f"{sha256(message_id.encode()).hexdigest()[:CHAIN_LENGTH]}/{FIRST}"


def token_of(message: Envelope, handler: str) -> Token | None:
    """Return the token that a message carries for a handler, None when it carries none or another message's first.

    The tokens of outputs cannot be foreseen, as their attempt draws them; those of messages from outside can.
    """
    name = (message.headers or {}).get(HEADER)
    if not name or not _NAME.fullmatch(name):
        return None
    token = Token.named(name, handler)
    is_anothers = token.id == FIRST and name != first_name(message.message_id)
    return None if is_anothers else token


def with_token(headers: Mapping[str, str], name: str) -> dict[str, str]:
    """Return headers with the name of a token in them."""
    return {**headers, HEADER: name}

"""Rows stored apart from entities: the deduplication store and the tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from eventstore import Operation, Row, Table, pages
from eventstore.errors import ConcurrencyConflictError, RowError, RowExistsError, RowNotFoundError
from eventstore.limits import MAX_OPERATIONS
from eventstore.port import ANY_ETAG
from runtime.clock import Clock, system_clock, to_datetime, to_microseconds
from runtime.messages.envelope import FIRST, LAST, Envelope, IdKey, row_key
from runtime.messages.outcome import Output
from runtime.versions.properties import expect, reading_row, rows_between, time


class DeduplicationStore:
    """The fingerprints of processed messages, by entity key and message id: one row for each message.

    The store may be in another account or region than the entities, but its reads must be strongly consistent. Azure
    Table Storage guarantees such reads in its primary region, Cosmos DB only if configured.
    """

    def __init__(self, table: Table, clock: Clock = system_clock) -> None:
        self.table = table
        self._clock = clock

    async def find(self, entity: str, message_id: IdKey) -> bytes | None:
        """Return the fingerprint of a message, or `None` if the message was not processed. Costs one request."""
        row = await self.table.get(entity, row_key(message_id))
        return None if row is None else _fingerprint(row)

    async def add(self, entity: str, fingerprints: Mapping[IdKey, bytes]) -> None:
        """Add or replace the fingerprints of messages, durably. Costs one request for every 100 messages."""
        added_at = to_datetime(self._clock())
        rows = [
            Operation.insert_or_replace(row_key(key), {"Fingerprint": fingerprint, "AddedAt": added_at})
            for key, fingerprint in fingerprints.items()
        ]
        for at in range(0, len(rows), MAX_OPERATIONS):
            await self.table.transact(entity, rows[at : at + MAX_OPERATIONS])
        await self.table.barrier()

    async def remove(self, entity: str, message_ids: Iterable[IdKey]) -> None:
        """Delete the fingerprints of messages, if they exist. Costs one request per message."""
        for message_id in message_ids:
            await self._forget(entity, [Operation.delete(row_key(message_id))])

    async def evict(self, entity: str, latest: int, *, dry_run: bool = False) -> int:
        """Delete the fingerprints of an entity that were added at `latest` or before. Return their number.

        `latest` is in microseconds since 1970 UTC. If `dry_run` is set, count the fingerprints but delete nothing.
        Fingerprints that are added again meanwhile are kept.
        """
        rows = rows_between(self.table, entity, FIRST, LAST, ["AddedAt"])
        old = [Operation.delete(row.row_key, row.etag) async for row in rows if _added_at(row) <= latest]
        if dry_run:
            return len(old)
        starts = range(0, len(old), MAX_OPERATIONS)
        return sum([await self._forget(entity, old[at : at + MAX_OPERATIONS]) for at in starts])

    async def _forget(self, entity: str, deletions: Sequence[Operation]) -> int:
        """Delete rows in one transaction or, if it is refused, one by one. Return the number of deleted rows."""
        try:
            await self.table.transact(entity, deletions)
        except RowError:
            one_by_one = [[each] for each in deletions] if len(deletions) > 1 else []
            return sum([await self._forget(entity, each) for each in one_by_one])
        return len(deletions)


def check_processed(row: Row) -> None:
    """Raise `StoredDataError` if a row of the deduplication store is corrupt."""
    _fingerprint(row)
    _added_at(row)


def _fingerprint(row: Row) -> bytes:
    with reading_row("The processed message", row):
        return bytes(expect(row.properties["Fingerprint"], bytes))


def _added_at(row: Row) -> int:
    with reading_row("The processed message", row):
        return to_microseconds(time(row.properties, "AddedAt"))


# A chain is the set of messages that one message from outside leads to. Its tokens share a partition, so that one
# transaction can create tokens on condition that the token of their parent message exists. If several handlers take a
# message, its token has one name and a row for each handler.

HEADER = "token"  # the header that holds a token's name
PARTITION = "tokens."  # begins the partition keys of chains. No handler's name has a full stop.

USED = "Used"  # the property that marks a token as the parent of others
FIRST_IN_CHAIN = "first"
CHAIN_LENGTH = 32
_NAME = re.compile("[A-Za-z0-9-]{1,64}/[A-Za-z0-9-]{1,64}")


class Token(NamedTuple):
    """Permission for one handler to process a message once. The message carries the token's name, `chain/id`."""

    chain: str
    id: str
    handler: str

    @classmethod
    def named(cls, name: str, handler: str) -> Token:
        chain, _, id_ = name.rpartition("/")
        return cls(chain, id_, handler)

    @property
    def name(self) -> str:
        return f"{self.chain}/{self.id}"

    @property
    def row_key(self) -> str:
        return f"{self.id}-{self.handler}"


class TokenStore:
    """The tokens of unprocessed messages. A call costs one request unless noted. Reads must be strongly consistent."""

    def __init__(self, table: Table) -> None:
        self.table = table

    async def exists(self, token: Token) -> bool:
        return await self.table.get(PARTITION + token.chain, token.row_key) is not None

    async def issue(self, tokens: Sequence[Token]) -> bool:
        """Durably create all tokens of a message from outside. If any of them exists, create none and return False."""
        is_new = await self.add(tokens)
        await self.flush()
        return is_new

    async def add(self, tokens: Sequence[Token]) -> bool:
        """Create tokens as `issue` does. The tokens are durable only after `flush`."""
        inserts = [Operation.insert(token.row_key, {}) for token in tokens]
        try:
            await self.table.transact(PARTITION + tokens[0].chain, inserts)
        except RowExistsError:
            return False
        return True

    async def create(self, parent: Token, tokens: Sequence[Token]) -> None:
        """Create tokens in the chain of `parent`, durable only after `flush`. Costs one request for every 99 tokens.

        Raises `ConcurrencyConflictError` if `parent` no longer exists, or if one of `tokens` already exists.
        """
        step = MAX_OPERATIONS - 1
        for at in range(0, len(tokens), step):
            inserts = [Operation.insert(token.row_key, {}) for token in tokens[at : at + step]]
            # Writing the parent makes the transaction fail if another process deleted it.
            still_there = Operation.merge(parent.row_key, {USED: True})
            try:
                await self.table.transact(PARTITION + parent.chain, [still_there, *inserts])
            except (RowNotFoundError, RowExistsError) as error:
                raise ConcurrencyConflictError(parent.name, str(error)) from error

    async def find(self, tokens: Sequence[Token]) -> list[tuple[Token, str]]:
        """Return the tokens that exist, in the given order, with their ETags. Costs one request per token."""
        rows = [(token, await self.table.get(PARTITION + token.chain, token.row_key)) for token in tokens]
        return [(token, row.etag) for token, row in rows if row is not None]

    async def delete(self, token: Token, etag: str = ANY_ETAG) -> None:
        """Delete a token if it exists. Durable only after `flush`. Raises `RowChangedError` on an ETag mismatch."""
        try:
            await self.table.transact(PARTITION + token.chain, [Operation.delete(token.row_key, etag)])
        except RowNotFoundError:
            return

    async def flush(self) -> None:
        """Make all earlier changes durable, including those of other processes."""
        await self.table.barrier()

    async def count(self) -> int:
        """Return the number of tokens. Costs one request for every 1,000 tokens."""
        found = pages(partial(self.table.scan, None, PARTITION, f"{PARTITION}~", select=[]))
        return sum([len(page.rows) async for page in found])


async def issue(store: TokenStore, message: Envelope, handlers: Collection[str]) -> Envelope:
    """Create the tokens of a message from outside, one per handler. Return the message with the name of its tokens.

    Send the message only afterwards. If sending fails, issue and send again: the message gets the same tokens. Never
    issue tokens for a processed message, because it would be processed again. Costs one request.
    """
    tokens = first_tokens(message.message_id, handlers)
    if tokens:
        await store.issue(tokens)
    return message._replace(headers=with_token(message.headers or {}, first_name(message.message_id)))


def first_tokens(message_id: str, handlers: Collection[str]) -> list[Token]:
    """Return the tokens of a message from outside, one per handler."""
    return [Token.named(first_name(message_id), handler) for handler in handlers]


def first_name(message_id: str) -> str:
    """Return the name of the tokens of a message from outside: a digest of the message id, then `/first`."""
    return f"{sha256(message_id.encode()).hexdigest()[:CHAIN_LENGTH]}/{FIRST_IN_CHAIN}"


def token_of(message: Envelope, handler: str) -> Token | None:
    """Return the token that a message names for a handler. None if it names no token, or one of another message."""
    name = (message.headers or {}).get(HEADER)
    if not name or not _NAME.fullmatch(name):
        return None
    token = Token.named(name, handler)
    is_anothers = token.id == FIRST_IN_CHAIN and name != first_name(message.message_id)
    return None if is_anothers else token


def with_token(headers: Mapping[str, str], name: str) -> dict[str, str]:
    return {**headers, HEADER: name}


NEWEST = 3
"""How many of the newest attempts at a message may commit. Older ones are superseded."""


class EntryTokens(NamedTuple):
    """The tokens of one outbox entry: the incoming token, and those that attempts create for the outputs."""

    incoming: Token  # the token of the message itself
    recipients: tuple[tuple[str, ...], ...]  # the handlers of each output
    attempts: tuple[str, ...] = ()  # the attempts that may have created tokens for the outputs
    committed: str | None = None  # the attempt whose tokens the outputs carry

    @classmethod
    def read(
        cls,
        incoming: Iterable[str],
        recipients: Iterable[Iterable[str]],
        attempts: Iterable[str],
        committed: str | None,
    ) -> EntryTokens:
        """Decode the tokens from their stored fields, in which tuples are lists."""
        return cls(Token(*incoming), tuple(map(tuple, recipients)), tuple(attempts), committed)

    @property
    def are_decided(self) -> bool:
        """Whether an attempt is committed, or no output needs a token."""
        return self.committed is not None or not any(self.recipients)

    def registered(self, attempt: str) -> EntryTokens:
        """Return these tokens with one more attempt. Return them unchanged if no output needs a token."""
        return self._replace(attempts=(*self.attempts, attempt)) if any(self.recipients) else self

    def decided(self, attempt: str) -> EntryTokens:
        """Return these tokens with a committed attempt. Return them unchanged if the attempt is superseded."""
        return self._replace(committed=attempt) if attempt in self.attempts[-NEWEST:] else self

    def of_attempt(self, attempt: str) -> list[Token]:
        return [
            Token(self.incoming.chain, f"{attempt}-{index}", handler)
            for index, handlers in enumerate(self.recipients)
            for handler in handlers
        ]

    def garbage(self) -> list[Token]:
        """Return the tokens of lost attempts: all but the committed one or, before the commit, but the newest."""
        lost = self.attempts if self.are_decided else self.attempts[:-NEWEST]
        return [token for attempt in lost if attempt != self.committed for token in self.of_attempt(attempt)]

    def put_into(self, outputs: Sequence[Output]) -> tuple[Output, ...]:
        found = []
        for index, output in enumerate(outputs):
            name = f"{self.incoming.chain}/{self.committed or ''}-{index}"
            headers = with_token(output.headers, name) if self.recipients[index] else output.headers
            found.append(output._replace(headers=headers))
        return tuple(found)

"""The rows beside entities: the de-duplication store and the tokens."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from typing import NamedTuple

from eventstore import (
    ConcurrencyConflictError,
    Operation,
    Row,
    RowExistsError,
    RowNotFoundError,
    Table,
    pages,
)
from eventstore.limits import MAX_OPERATIONS
from eventstore.port import ANY_ETAG
from runtime.clock import Clock, system_clock, to_datetime, to_microseconds
from runtime.messages.envelope import FIRST, LAST, Envelope, IdKey, row_key
from runtime.messages.outcome import Output
from runtime.versions.properties import expect, reading_row, time


class DeduplicationStore:
    """The fingerprints of processed messages, by the key of their entity and their id: one row for each message.

    Its table may be in another account or region than the entities. Reads must be strongly consistent: once `add` has
    returned, every `find` sees the message, wherever it is called. Azure Table Storage reads so in its primary region,
    Cosmos DB only when it is configured to.
    """

    def __init__(self, table: Table, clock: Clock = system_clock) -> None:
        self.table = table
        self._clock = clock

    async def find(self, entity: str, message_id: IdKey) -> bytes | None:
        """Return the fingerprint of a message that was processed, None when it was not. Costs one request."""
        row = await self.table.get(entity, row_key(message_id))
        return None if row is None else _fingerprint(row)

    async def add(self, entity: str, fingerprints: Mapping[IdKey, bytes]) -> None:
        """Add messages by their ids; return when that is durable. Adding them again changes nothing but their age.

        Costs one request for each 100 messages.
        """
        added_at = to_datetime(self._clock())
        rows = [
            Operation.insert_or_replace(row_key(key), {"Fingerprint": fingerprint, "AddedAt": added_at})
            for key, fingerprint in fingerprints.items()
        ]
        for at in range(0, len(rows), MAX_OPERATIONS):
            await self.table.transact(entity, rows[at : at + MAX_OPERATIONS])
        await self.table.barrier()

    async def remove(self, entity: str, message_ids: Iterable[IdKey]) -> None:
        """Forget messages of an entity, as far as they are there. Costs one request for each."""
        for message_id in message_ids:
            await self._forget(entity, [row_key(message_id)])

    async def evict(self, entity: str, latest: int, *, dry_run: bool = False) -> int:
        """Forget the messages of an entity that were added at a time, in microseconds, or before. Return how many.

        With `dry_run` none is forgotten. Costs one request for each 1,000 messages, and one for each 100 forgotten.
        """
        forgotten = 0
        async for page in pages(partial(self.table.query, entity, FIRST, LAST, select=["AddedAt"])):
            old = [row.row_key for row in page.rows if _added_at(row) <= latest]
            for at in range(0, len(old), MAX_OPERATIONS):
                some = old[at : at + MAX_OPERATIONS]
                forgotten += len(some) if dry_run else await self._forget(entity, some)
        return forgotten

    async def _forget(self, entity: str, row_keys: list[str]) -> int:
        """Delete rows in one transaction; none of them when somebody else has deleted one."""
        try:
            await self.table.transact(entity, [Operation.delete(key) for key in row_keys])
        except RowNotFoundError:
            return 0
        return len(row_keys)


def check_processed(row: Row) -> None:
    """Raise `StoredDataError` for the row of a processed message that cannot be read."""
    _fingerprint(row)
    _added_at(row)


def _fingerprint(row: Row) -> bytes:
    with reading_row("The processed message", row):
        return bytes(expect(row.properties["Fingerprint"], bytes))


def _added_at(row: Row) -> int:
    with reading_row("The processed message", row):
        return to_microseconds(time(row.properties, "AddedAt"))


# A token belongs to a chain: the messages that one message from outside has led to. The tokens of a chain are in one
# partition, so that new ones can be created on the condition that the token of their parent, the message that publishes
# them, still exists. A message that goes to several handlers has one token name, and a token for each of them.

HEADER = "token"
"""The header in which a message carries the name of its token."""

PARTITION = "tokens."
_LAST_PARTITION = f"{PARTITION}~"
"""Begins the partition keys of chains. No entity's key is like it: a handler's name has no full stop."""

USED = "Used"
"""The property of a token for whose message others were created."""

FIRST_IN_CHAIN = "first"
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


class FoundToken(NamedTuple):
    """A token as it was read."""

    token: Token
    etag: str


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

    async def find(self, tokens: Sequence[Token]) -> list[FoundToken]:
        """Return those tokens that exist, in order. One request for each."""
        rows = [(token, await self.table.get(PARTITION + token.chain, token.row_key)) for token in tokens]
        return [FoundToken(token, row.etag) for token, row in rows if row is not None]

    async def delete(self, token: Token, etag: str = ANY_ETAG) -> None:
        """Delete a token, if it exists; durable from `flush` on.

        Raises `RowChangedError` when it was read with an ETag and somebody has written it since.
        """
        try:
            await self.table.transact(PARTITION + token.chain, [Operation.delete(token.row_key, etag)])
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
    return f"{sha256(message_id.encode()).hexdigest()[:CHAIN_LENGTH]}/{FIRST_IN_CHAIN}"


def token_of(message: Envelope, handler: str) -> Token | None:
    """Return the token that a message carries for a handler, None when it carries none or another message's first.

    The tokens of outputs cannot be foreseen, as their attempt draws them; those of messages from outside can.
    """
    name = (message.headers or {}).get(HEADER)
    if not name or not _NAME.fullmatch(name):
        return None
    token = Token.named(name, handler)
    is_anothers = token.id == FIRST_IN_CHAIN and name != first_name(message.message_id)
    return None if is_anothers else token


def with_token(headers: Mapping[str, str], name: str) -> dict[str, str]:
    """Return headers with the name of a token in them."""
    return {**headers, HEADER: name}


class EntryTokens(NamedTuple):
    """The tokens of one entry.

    `incoming` is the one that the message came with; `recipients` are the handlers of each output. `attempts` are the
    ids under which tokens of the outputs may have been created, `committed` is the one that counts.
    """

    incoming: Token
    recipients: tuple[tuple[str, ...], ...]
    attempts: tuple[str, ...] = ()
    committed: str | None = None

    @classmethod
    def read(
        cls,
        incoming: Iterable[str],
        recipients: Iterable[Iterable[str]],
        attempts: Iterable[str],
        committed: str | None,
    ) -> EntryTokens:
        """Return what was stored, where tuples became lists."""
        return cls(Token(*incoming), tuple(map(tuple, recipients)), tuple(attempts), committed)

    @property
    def are_decided(self) -> bool:
        """Whether it is decided which tokens the outputs carry, or they need none."""
        return self.committed is not None or not any(self.recipients)

    def registered(self, attempt: str) -> EntryTokens:
        """Return them with one more attempt."""
        return self._replace(attempts=(*self.attempts, attempt)) if any(self.recipients) else self

    def of_attempt(self, attempt: str) -> list[Token]:
        """Return the tokens of all outputs, under the ids of an attempt."""
        return [
            Token(self.incoming.chain, f"{attempt}-{index}", handler)
            for index, handlers in enumerate(self.recipients)
            for handler in handlers
        ]

    def garbage(self) -> list[Token]:
        """Return the tokens that attempts may have created and that do not count."""
        lost = [attempt for attempt in self.attempts if attempt != self.committed]
        return [token for attempt in lost for token in self.of_attempt(attempt)]

    def put_into(self, outputs: Sequence[Output]) -> tuple[Output, ...]:
        """Return outputs that carry the names of their tokens."""
        found = []
        for index, output in enumerate(outputs):
            name = f"{self.incoming.chain}/{self.committed or ''}-{index}"
            headers = with_token(output.headers, name) if self.recipients[index] else output.headers
            found.append(output._replace(headers=headers))
        return tuple(found)

"""Side effects other than messages, such as documents: prepared where nobody sees them, then published or deleted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import NamedTuple, Protocol

from eventstore import (
    Operation,
    PayloadTooLargeError,
    Row,
    RowChangedError,
    RowExistsError,
    RowNotFoundError,
    Table,
    Value,
    pages,
)
from runtime.errors import StoredDataError
from runtime.storage.chunks import CHUNK, chunk_names, join, split
from runtime.storage.damage import expect, reading_row
from runtime.storage.properties import number, text

EFFECT = "EFFECT"
"""The row key of an effect, alone in its partition."""

PARTITION = "effects."
LAST_PARTITION = f"{PARTITION}~"
"""Begin, and end, the partition keys of effects."""

_CONTENT = chunk_names("Content", 14)
MAX_BYTES = len(_CONTENT) * CHUNK
"""The largest content that a row of a table holds beside what describes it."""


class Effect(NamedTuple):
    """The place of one effect: the key of the entity that it belongs to, the attempt that made it, and its number."""

    owner: str
    attempt: str
    number: int

    @property
    def name(self) -> str:
        """The name by which it is announced. No two attempts make effects of one name."""
        return f"{self.attempt}-{self.number}"


class Effects(Protocol):
    """A store of effects. Reads must be strongly consistent."""

    async def prepare(self, effect: Effect, content: bytes) -> None:
        """Store an effect durably, visible to nobody. Raises `PayloadTooLargeError` before anything is sent."""

    async def publish(self, name: str) -> None:
        """Make a prepared effect visible for good. Repeating it changes nothing."""

    async def delete(self, effect: Effect) -> None:
        """Delete an effect, if it exists and is not published."""

    def unpublished(self) -> AsyncIterator[Effect]:
        """Give the effects that are prepared and not published."""


class TableEffects(Effects):
    """Effects in a table: a row for each, up to 896 KiB. Costs one request for each call, two to delete."""

    def __init__(self, table: Table) -> None:
        self._table = table

    async def prepare(self, effect: Effect, content: bytes) -> None:
        """Store an effect durably, visible to nobody."""
        if len(content) > MAX_BYTES:
            raise PayloadTooLargeError(f"An effect has {len(content):,} bytes; it can have {MAX_BYTES:,}.")
        properties: dict[str, Value] = {
            "Owner": effect.owner,
            "Attempt": effect.attempt,
            "Number": effect.number,
            "Published": False,
        }
        split(properties, _CONTENT, content)
        with suppress(RowExistsError):
            await self._table.transact(PARTITION + effect.name, [Operation.insert(EFFECT, properties)])
        await self._table.barrier()

    async def publish(self, name: str) -> None:
        """Make a prepared effect visible. Raises `RowNotFoundError` when it was never prepared."""
        await self._table.transact(PARTITION + name, [Operation.merge(EFFECT, {"Published": True})])
        await self._table.barrier()

    async def delete(self, effect: Effect) -> None:
        """Delete an effect, if it is there and not published."""
        row = await self._table.get(PARTITION + effect.name, EFFECT)
        if row is None or _is_published(row):
            return
        try:
            await self._table.transact(PARTITION + effect.name, [Operation.delete(EFFECT, row.etag)])
        except (RowChangedError, RowNotFoundError):
            return

    async def unpublished(self) -> AsyncIterator[Effect]:
        """Give the effects that are prepared and not published. Costs one request for each 1,000 effects."""
        select = ["Owner", "Attempt", "Number", "Published"]
        async for page in pages(partial(self._table.scan, EFFECT, PARTITION, select=select)):
            for row in page.rows:
                if not _is_published(row):
                    yield _effect(row)

    async def read(self, name: str) -> bytes | None:
        """Return the content of a published effect by its announced name, None when there is none."""
        row = await self._table.get(PARTITION + name, EFFECT)
        if row is None or not _is_published(row):
            return None
        return _content(row)


def unpublished_effect(row: Row) -> Effect | None:
    """Return the effect that a row holds, None when it is published. Raises `StoredDataError`."""
    return None if _is_published(row) else _effect(row)


def owner_of(row: Row) -> str:
    """Return the key of the entity that an effect belongs to. Raises `StoredDataError`."""
    with reading_row("The document", row):
        return text(row.properties, "Owner")


def check_effect(row: Row) -> None:
    """Raise `StoredDataError` for the row of an effect that cannot be read, or stands elsewhere than it says."""
    _is_published(row)
    _content(row)
    name = _effect(row).name
    if row.partition_key != PARTITION + name:
        raise StoredDataError(
            f"The document {name} stands under another name.", row.row_key, row.partition_key
        )


def _content(row: Row) -> bytes:
    with reading_row("The document", row):
        return bytes(expect(join(row.properties, _CONTENT), bytes))


def _effect(row: Row) -> Effect:
    properties = row.properties
    with reading_row("The document", row):
        return Effect(text(properties, "Owner"), text(properties, "Attempt"), number(properties, "Number"))


def _is_published(row: Row) -> bool:
    with reading_row("The document", row):
        return bool(expect(row.properties["Published"], bool))

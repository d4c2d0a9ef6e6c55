"""Where keys of the last hop are kept, by its url: in a table of any store, or in Redis."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from eventstore import connect
from runtime.errors import MissingExtraError
from runtime.publishing.keys import Keys, TableKeys
from runtime.storage.damage import placed

_REDIS = ("redis://", "rediss://", "unix://")


async def weaknesses(url: str, table: str) -> list[str]:
    """Return sentences on what the store of keys may forget, as far as it tells: none of a table."""
    if not url.startswith(_REDIS):
        return []
    async with open_keys(url, table) as keys:
        return await keys.weaknesses() if hasattr(keys, "weaknesses") else []


async def unended(url: str, table: str) -> list[tuple[str, str]]:
    """Return customer and message of each sealed key that says no end; see `Keys.unended`."""
    async with open_keys(url, table) as keys:
        return [each async for each in keys.unended()]


@asynccontextmanager
async def open_keys(url: str, table: str) -> AsyncIterator[Keys]:
    """Open the keys behind the url of a store, in a table of this name, or in Redis under names that begin so.

    Raises `UsageError` when no Redis answers, `MissingExtraError` without redis-py, and `StoreUrlError`.
    """
    if url.startswith(_REDIS):
        try:
            from runtime.publishing.redis_keys import open_redis  # noqa: PLC0415 - its extra
        except ModuleNotFoundError as error:
            message = f"Keys in Redis need {error.name}: pip install 'consistent-messaging[publish]'."
            raise MissingExtraError(message) from error
        async with open_redis(url, table) as keys:
            yield keys
        return
    async with connect(url) as store:
        opened = await store.table(table)
        with placed(opened):
            yield TableKeys(opened)

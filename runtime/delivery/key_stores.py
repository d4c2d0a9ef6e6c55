"""Where keys of deliveries are kept: in a table of any store, or in Redis."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from eventstore import connect
from runtime.algorithms.last_hop.keys import DeliveryKeys, Keys
from runtime.errors import MissingExtraError
from runtime.storage.damage import placed

DEFAULT_TABLE = "deliveries"

_REDIS = ("redis://", "rediss://", "unix://")


async def weaknesses(keys: Keys) -> list[str]:
    """Return sentences on what the store of keys may forget, as far as it tells: none of a table."""
    return await keys.weaknesses() if hasattr(keys, "weaknesses") else []


@asynccontextmanager
async def open_keys(url: str, table: str = DEFAULT_TABLE) -> AsyncIterator[Keys]:
    """Open the keys behind a url, in a table of this name, which is made, or in Redis under names that begin so.

    The url is that of a store, `redis://[USER:PASSWORD@]HOST:PORT/DATABASE`, `rediss://` with TLS, `unix://PATH`, or
    `env:NAME` for an environment variable with one of them. Raises `UsageError` when no Redis answers,
    `MissingExtraError` without redis-py, and `StoreUrlError`.
    """
    named = os.environ.get(url.removeprefix("env:"), "") if url.startswith("env:") else url
    if named.startswith(_REDIS):
        try:
            from runtime.delivery.redis_keys import open_redis  # noqa: PLC0415 - loaded when asked for
        except ModuleNotFoundError as error:
            raise MissingExtraError(
                f"Keys in Redis need {error.name}: pip install 'consistent-messaging[publish]'."
            ) from error
        async with open_redis(named, table) as keys:
            yield keys
        return
    async with connect(named or url) as store:
        opened = await store.table(table)
        with placed(opened):
            yield DeliveryKeys(opened)

"""The store as commands use it without Spark: open it, do one thing, close it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from eventstore import Store, Table, connect
from runtime.cli.failures import NotPossibleError

T = TypeVar("T")

_FILE = "sqlite:///"


def on_table(store_url: str, table_name: str, work: Callable[[Table], Awaitable[T]]) -> T:
    """Open a table that should be there already, and return what the work on it gives.

    Raises `NotPossibleError` when there is no such SQLite file, instead of making an empty one. A table that is not
    in the store is made, as a table service tells no difference between that and one without rows.
    """
    store = connect(store_url)
    check_file(store)
    return asyncio.run(_work(store, table_name, work))


def check_file(store: Store) -> None:
    """Raise `NotPossibleError` when the store is an SQLite file that is not there."""
    if not store.url.startswith(_FILE):
        return
    file = Path(store.url.removeprefix(_FILE)).absolute()
    if not file.exists():
        raise NotPossibleError(f"There is no store at {file}: a batch (`consistent run`) makes one.")


def check_table(store_url: str, table_name: str) -> None:
    """Raise `TableNotFoundError` when a table is not there, and make neither it nor its store."""
    store = connect(store_url)
    check_file(store)
    asyncio.run(_check_table(store, table_name))


async def _check_table(store: Store, table_name: str) -> None:
    async with store:
        await store.table(table_name, make=False)


async def _work(store: Store, table_name: str, work: Callable[[Table], Awaitable[T]]) -> T:
    async with store:
        return await work(await store.table(table_name))

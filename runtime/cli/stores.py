"""The store as commands use it without Spark: open it, do one thing, close it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from eventstore import Store, Table, TableNotFoundError, connect
from eventstore.backends.naming import table_name as check_name
from runtime.cli.failures import NotPossibleError
from runtime.storage.damage import placed

T = TypeVar("T")

_FILE = "sqlite:///"


def on_table(store_url: str, table_name: str, work: Callable[[Table], Awaitable[T]]) -> T:
    """Open a table that is there already, and return what the work on it gives.

    Raises `NotPossibleError` when there is no such SQLite file, and `TableNotFoundError` when there is no such table.
    """
    store = connect(store_url)
    check_file(store)
    return asyncio.run(_work(store, table_name, work))


def check_file(store: Store) -> None:
    """Raise `NotPossibleError` when the store is an SQLite file that is not there."""
    file = _missing_file(store)
    if file is not None:
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
        table = await store.table(table_name, make=False)
        with placed(table):
            return await work(table)


def begin_on(store_url: str, table_name: str, work: Callable[[Table], Awaitable[object]]) -> bool:
    """Do some work on a table if it is there, and return whether it is; makes neither it nor its store.

    Raises `TableNameError` for a name that no table can have.
    """
    store = connect(store_url)
    check_name(table_name)
    if _missing_file(store) is not None:
        return False
    try:
        asyncio.run(_work(store, table_name, work))
    except TableNotFoundError:
        return False
    return True


def _missing_file(store: Store) -> Path | None:
    """Return the file of an SQLite store that is not there, else None."""
    file = Path(store.url.removeprefix(_FILE)).absolute()
    return file if store.url.startswith(_FILE) and not file.exists() else None

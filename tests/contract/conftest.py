"""One suite for all backends: each test runs on memory, SQLite, PostgreSQL and Azurite.

On Azurite and PostgreSQL `make test` runs what shows that they keep the contract of the port, and how streams are
written and cut.
What is built on the port is the same code on each backend: on servers it is for `make test-all`.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, TypeVar

import pytest

from eventstore import EventStoreError, Operation, Page, Partition, Row, Store, Table, connect
from eventstore import port as backoff
from tests.support.names import new_name

HERE = Path(__file__).parent
T = TypeVar("T")
Run = Callable[[Coroutine[Any, Any, T]], T]
Refuses = Callable[..., AbstractContextManager[pytest.ExceptionInfo[BaseException]]]

QUICK_ON_SERVERS = {
    "test_a_store_that_blocks",
    "test_cutting",
    "test_limits_of_the_emulator",
    "test_queries",
    "test_reading",
    "test_rows",
    "test_shared_access_signatures",
    "test_transactions",
    "test_writing",
}


@pytest.hookimpl(tryfirst=True)  # before tests are deselected by their marks
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if item.path.parent == HERE and item.path.stem not in QUICK_ON_SERVERS:
            spec = getattr(item, "callspec", None)
            if spec is not None and {"azurite", "postgresql"} & {*map(str, spec.params.values())}:
                item.add_marker(pytest.mark.thorough)


@pytest.fixture(params=["memory", "sqlite", "azurite", "postgresql"])
def store_url(request, tmp_path):
    if request.param == "memory":
        return f"memory:{new_name()}"
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return request.getfixturevalue(f"{request.param}_url")


@pytest.fixture
def run() -> Iterator[Run[Any]]:
    """Run a coroutine in the event loop of the test."""
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def store(store_url, run) -> Iterator[Store]:
    store = connect(store_url)
    yield store
    run(store.close())


@pytest.fixture
def table_name() -> str:
    """Give a name that no other test uses."""
    return new_name()


@pytest.fixture
def table(store, run: Run[Table], table_name) -> Table:
    return run(store.table(table_name))


@pytest.fixture
def partition(table) -> Partition:
    return Partition(table, "orders-7")


@pytest.fixture
def transact(table, run) -> Callable[[list[Operation]], tuple[str, ...]]:
    """Carry out a transaction on the partition."""

    def transact(operations: list[Operation]) -> tuple[str, ...]:
        etags: tuple[str, ...] = run(table.transact("orders-7", operations))
        return etags

    return transact


@pytest.fixture
def contents(table, run: Run[Page]) -> Callable[..., tuple[Row, ...]]:
    """Read all rows of a partition, ETags included."""

    def read(partition_key: str = "orders-7") -> tuple[Row, ...]:
        page = run(table.query(partition_key, "", "\uffff"))
        assert page.continuation is None
        return page.rows

    return read


@pytest.fixture
def refuses(contents) -> Refuses:
    """Expect an error that leaves the partition exactly as it was."""

    @contextmanager
    def expect(error: type[BaseException] = EventStoreError, *, match: str | None = None):
        before = contents()
        with pytest.raises(error, match=match) as raised:
            yield raised
        assert contents() == before

    return expect


@pytest.fixture
def pauses(monkeypatch) -> list[float]:
    """Collect the pauses before other attempts instead of waiting for them."""
    waited: list[float] = []

    async def note(seconds: float) -> None:
        waited.append(seconds)

    monkeypatch.setattr(backoff, "sleep_beside", lambda *_tables: note)
    return waited

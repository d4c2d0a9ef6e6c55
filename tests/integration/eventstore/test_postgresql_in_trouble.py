"""Rows that are locked, servers that hang or are replaced, event loops that are blocked, a pooler in between."""

import asyncio
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import groupby
from pathlib import Path

import psycopg
import psycopg.sql
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore import (
    ConcurrencyConflictError,
    EventData,
    ExpectedVersion,
    Operation,
    Partition,
    StoreUnavailableError,
    Stream,
    connect,
)
from eventstore.backends import postgres
from eventstore.backends.postgres import PostgresStore, PostgresTable
from eventstore.port import pages, pause
from tests.support.lossy_proxy import Fault
from tests.support.names import new_name
from tests.support.postgresql import PostgresProxy, administer, pgbouncer, standby, until
from tests.support.servers import postgresql_server

IMPATIENT = "?options=-clock_timeout%3D200ms"


@pytest.fixture
def name() -> str:
    return new_name()


async def open_table(store: PostgresStore, name: str) -> PostgresTable:
    table = await store.table(name)
    assert isinstance(table, PostgresTable)
    return table


def store_of(url: str) -> PostgresStore:
    store = connect(url)
    assert isinstance(store, PostgresStore)
    return store


@contextmanager
def locked(url: str, statement: str) -> Iterator[None]:
    """Keep locked what a statement locks."""
    with psycopg.connect(url) as other:
        other.execute(statement.encode())
        yield


def test_a_row_that_stays_locked_is_unavailable_and_the_writes_beside_it_are_not(postgresql_url, name):
    async def work() -> list[object]:
        async with store_of(postgresql_url + IMPATIENT) as store:
            table = await open_table(store, name)
            for n in range(3):
                await table.transact(f"p{n}", [Operation.insert("r", {})])
            lock = f"SELECT FROM {name.lower()} WHERE \"partition\" = 'p1' FOR UPDATE"
            with locked(postgresql_url, lock):
                change = Operation.replace("r", {"N": 1})
                calls = [table.transact(f"p{n}", [change]) for n in range(3)]
                found = await asyncio.gather(*calls, return_exceptions=True)
                await table.get("p1", "r")
            await table.transact("p1", [change])
            return list(found)

    first, refused, last = asyncio.run(work())

    assert isinstance(first, tuple)
    assert isinstance(last, tuple)
    assert isinstance(refused, StoreUnavailableError)
    assert "locked" in str(refused)
    assert not refused.outcome_unknown


def test_a_table_that_stays_locked_is_unavailable(postgresql_url, name, monkeypatch):
    monkeypatch.setattr(postgres, "_ATTEMPTS", 2)

    async def work() -> None:
        async with store_of(postgresql_url + IMPATIENT) as store:
            table = await open_table(store, name)
            with locked(postgresql_url, f"LOCK TABLE {name.lower()}"):
                for call in (table.get("p", "r"), table.transact("p", [Operation.insert("r", {})])):
                    with pytest.raises(StoreUnavailableError, match="locked"):
                        await call

    asyncio.run(work())


def test_an_event_loop_that_is_blocked_is_no_server_that_does_not_answer(postgresql_url, name, monkeypatch):
    monkeypatch.setattr(postgres, "_ANSWER_SECONDS", 2)

    async def work() -> None:
        async with store_of(postgresql_url) as store:
            table = await open_table(store, name)
            several = [Operation.insert(row, {}) for row in "abc"]
            for call in (table.get("p", "r"), table.transact("p", several), table.query("p", "", "~")):
                waiting = asyncio.ensure_future(call)
                for _ in range(3):  # until it is sent
                    await asyncio.sleep(0)
                time.sleep(2.5)  # noqa: ASYNC251 - that is the point
                await waiting

    asyncio.run(work())


def test_a_server_that_does_not_answer_in_time_is_unavailable(postgresql_url, monkeypatch):
    monkeypatch.setattr(postgres, "_ANSWER_SECONDS", 0.3)

    async def work() -> None:
        async with store_of(postgresql_url) as store:
            with pytest.raises(StoreUnavailableError, match=r"did not answer in 0\.3 seconds"):
                await store.session().fetch(psycopg.sql.SQL("SELECT pg_sleep(60)"), ())

    asyncio.run(work())


WRITES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=24)
FAULTS = st.lists(st.none() | st.sampled_from(Fault), max_size=40)


@settings(max_examples=min(settings().max_examples, 30), deadline=None)
@given(writes=WRITES, faults=FAULTS, at_once=st.integers(1, 16))
def test_whatever_answers_are_lost_each_message_takes_effect_once(postgresql_url, writes, faults, at_once):
    name = new_name()

    async def deliver(table: PostgresTable, message: int, key: str, events: int) -> None:
        """Write as a consumer does to which a message is redelivered until it is done."""
        partition, failures = Partition(table, key), 0
        new = [EventData({"Message": message}, id=f"{message}-{n}") for n in range(events)]
        while True:
            try:
                await Stream.write(partition, *new, expected_version=ExpectedVersion.ANY, idempotent=True)
            except (StoreUnavailableError, ConcurrencyConflictError):
                failures += 1
                await pause(table, failures)
            else:
                return

    async def work() -> dict[str, list[object]]:
        proxy = PostgresProxy(postgresql_url)
        async with proxy.running(), store_of(proxy.url) as store:
            table = await open_table(store, name)
            proxy.faults = list(faults)
            gate = asyncio.Semaphore(at_once)

            async def one(message: int, key: str, events: int) -> None:
                async with gate:
                    await deliver(table, message, key, events)

            await asyncio.gather(*[one(n, *each) for n, each in enumerate(writes)])
            slices = {key: await Stream.try_read(Partition(table, key)) for key in "abc"}
        for each in filter(None, slices.values()):
            assert [event.version for event in each.events] == list(range(1, each.stream.version + 1))
        return {
            key: [event.properties["Message"] for event in found.events] if found else []
            for key, found in slices.items()
        }

    found = asyncio.run(work())

    for key, messages in found.items():
        expected = [n for n, (of, events) in enumerate(writes) if of == key for _ in range(events)]
        assert sorted(messages, key=str) == sorted(expected, key=str)
        assert [n for n, _ in groupby(messages)] == list(dict.fromkeys(messages))  # each as a whole


def _freeze(data: Path, sent: int) -> None:
    postmaster = int((data / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    for pid in (postmaster, *map(int, children)):
        with suppress(ProcessLookupError):
            os.kill(pid, sent)


@pytest.mark.thorough
def test_a_server_that_hangs_leaves_the_outcome_unknown_and_then_goes_on(name, monkeypatch):
    monkeypatch.setattr(postgres, "_ANSWER_SECONDS", 1)

    async def work(data: Path, url: str) -> None:
        async with store_of(f"{url}?connect_timeout=2") as store:
            table = await open_table(store, name)
            several = [Operation.insert(row, {}) for row in "ab"]
            _freeze(data, signal.SIGSTOP)
            try:
                with pytest.raises(StoreUnavailableError) as raised:
                    await table.transact("p", several)
                assert raised.value.outcome_unknown
                with pytest.raises(StoreUnavailableError):
                    await table.get("p", "a")
            finally:
                _freeze(data, signal.SIGCONT)
            await table.transact("p", [Operation.insert("c", {})])
            # What was sent is carried out as a whole or not at all.
            assert [row.row_key for row in (await table.query("p", "", "~")).rows] in (["a", "b", "c"], ["c"])

    with postgresql_server() as server:
        asyncio.run(work(server.folder / "data", server.url))


async def _written_beside(url: str, name: str, disturb: Callable[[], None]) -> tuple[set[str], set[str]]:
    """Have 16 writers at work while a server is disturbed; return what was acknowledged, and what is there."""
    acknowledged: set[str] = set()
    are_under_way, is_over = asyncio.Event(), asyncio.Event()

    async def write(table: PostgresTable, writer: int) -> None:
        after = 0
        for number in range(10_000):
            key = f"{writer}-{number}"
            with suppress(StoreUnavailableError):
                rows = [Operation.insert(f"{key}-{row}", {"N": number}) for row in "ab"]
                await table.transact(f"p{writer}", rows)
                acknowledged.add(key)
                if len(acknowledged) == 100:
                    are_under_way.set()
                after += is_over.is_set()
            if after == 5:
                return
            await asyncio.sleep(0.01)

    async with store_of(url) as store:
        table = await open_table(store, name)
        writers = [asyncio.ensure_future(write(table, number)) for number in range(16)]
        await are_under_way.wait()
        await asyncio.to_thread(disturb)
        is_over.set()
        await asyncio.gather(*writers)
        rows = [row.row_key async for page in pages(partial(table.scan, None)) for row in page.rows]
    found = {row.rpartition("-")[0] for row in rows}
    assert sorted(rows) == sorted(
        f"{key}-{row}" for key in found for row in "ab"
    )  # each transaction as a whole
    return acknowledged, found


def _check_that_nothing_is_lost(acknowledged: set[str], found: set[str], disturbances: int) -> None:
    assert acknowledged <= found
    # Of each writer at most one answer was lost each time.
    assert len(found) <= len(acknowledged) + 16 * disturbances


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_writers_go_on_beside_a_server_that_restarts_and_nothing_is_lost(name, mode):
    with postgresql_server() as server:

        def restart() -> None:
            for _ in range(3):
                server.control("pg_ctl", "restart", "-w", "-m", mode, "-l", str(server.folder / "log"))

        _check_that_nothing_is_lost(*asyncio.run(_written_beside(server.url, name, restart)), 3)


@pytest.mark.thorough
def test_after_a_failover_all_that_was_acknowledged_is_on_the_new_server(name):
    with postgresql_server() as primary, standby(primary) as other:
        host, second = primary.url.removesuffix("/postgres"), other.url.partition("@")[2]

        def fail_over() -> None:
            primary.control("pg_ctl", "stop", "-m", "immediate")
            other.control("pg_ctl", "promote", "-w")
            until(other.url, "SELECT NOT pg_is_in_recovery()")
            administer(other.url, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")

        try:
            found = asyncio.run(_written_beside(f"{host},{second}", name, fail_over))
        finally:
            with suppress(ChildProcessError):  # it is stopped at the end
                primary.control("pg_ctl", "start", "-w", "-l", str(primary.folder / "log"))
        _check_that_nothing_is_lost(*found, 2)


def test_a_server_that_only_reads_has_carried_nothing_out(name):
    with postgresql_server() as server:

        async def work() -> None:
            async with store_of(server.url) as store:
                table = await open_table(store, name)
                role = "ALTER ROLE postgres SET default_transaction_read_only = on"
                administer(server.url, role)
                with pytest.raises(StoreUnavailableError) as raised:
                    await store_of(f"{server.url}?target_session_attrs=any").table(f"{name}b")
                assert not raised.value.outcome_unknown
                await table.transact("p", [Operation.insert("r", {})])

        asyncio.run(work())


@pytest.mark.thorough
def test_behind_pgbouncer_in_transaction_mode_all_is_as_without_it(
    postgresql_url, name, tmp_path, monkeypatch
):
    monkeypatch.setattr(postgres, "_SET_LOCAL", "SET LOCAL lock_timeout = '200ms'")

    async def work(url: str) -> None:
        async with store_of(url) as store, store_of(url) as other:
            tables = [await open_table(each, name) for each in (store, other)]

            async def write(table: PostgresTable, writer: int) -> None:
                for number in range(20):
                    rows = [Operation.insert(f"{writer}-{number}-{row}", {"N": number}) for row in range(3)]
                    await table.transact(f"p{writer % 4}", rows)
                    await table.transact(f"p{writer % 4}", [Operation.merge(rows[0].row_key, {"M": writer})])

            await asyncio.gather(*[write(tables[n % 2], n) for n in range(16)])
            rows = [row async for page in pages(partial(tables[0].scan, None)) for row in page.rows]
            assert len(rows) == 16 * 20 * 3
            assert sum("M" in row.properties for row in rows) == 16 * 20
            lock = locked(postgresql_url, f"SELECT FROM {name.lower()} FOR UPDATE")
            with lock, pytest.raises(StoreUnavailableError, match="locked"):
                await tables[0].transact("p0", [Operation.delete("0-0-0")])
            await tables[0].transact("p0", [Operation.delete("0-0-0")])

    with pgbouncer(postgresql_url, tmp_path) as url:
        asyncio.run(work(url))
        # No setting is left on a connection that another client may get.
        assert administer(url, "SHOW lock_timeout") == [("0",)]

"""What the contract suite cannot ask of PostgreSQL: servers that fail, roles that may not, writers side by side."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import psycopg
import psycopg.sql
import pytest

from eventstore import (
    ConcurrencyConflictError,
    EventData,
    InvalidKeyError,
    Operation,
    Partition,
    RowChangedError,
    RowExistsError,
    StoreUnavailableError,
    StoreUrlError,
    Stream,
    TableNotFoundError,
    connect,
)
from eventstore.backends.postgres import FORMAT, PostgresStore, PostgresTable
from eventstore.port import pages, pause
from tests.support.names import new_name
from tests.support.postgresql import administer


@pytest.fixture
def name() -> str:
    return new_name()


@asynccontextmanager
async def opened(url: str, name: str) -> AsyncIterator[PostgresTable]:
    async with connect(url) as store:
        table = await store.table(name)
        assert isinstance(table, PostgresTable)
        yield table


async def _append(table: PostgresTable, events: int) -> int:
    """Append events one by one to one stream, whoever else does; return how often somebody else was faster."""
    lost, done = 0, 0
    while done < events:
        partition = Partition(table, "shared")
        stream = await Stream.try_open(partition) or Stream(partition)
        try:
            await Stream.write(stream, EventData({"By": os.getpid()}))
            done += 1
        except ConcurrencyConflictError:
            lost += 1
            await pause(table, lost)
    return lost


def _write(url: str, name: str, writers: int, events: int) -> int:
    async def work() -> int:
        async with opened(url, name) as table:
            return sum(await asyncio.gather(*[_append(table, events) for _ in range(writers)]))

    return asyncio.run(work())


def test_transactions_that_wait_share_a_commit_and_a_refused_one_is_refused_alone(postgresql_url, name):
    async def work() -> list[object]:
        async with opened(postgresql_url, name) as table:
            await table.transact("p7", [Operation.insert("r", {})])
            inserts = [table.transact(f"p{n}", [Operation.insert("r", {"N": n})]) for n in range(40)]
            return list(await asyncio.gather(*inserts, return_exceptions=True))

    results = asyncio.run(work())

    assert [n for n, each in enumerate(results) if isinstance(each, RowExistsError)] == [7]
    assert sum(isinstance(each, tuple) for each in results) == 39
    asyncio.run(_fill(postgresql_url, f"{name}b", 40))
    ((count,),) = administer(postgresql_url, f'SELECT count(DISTINCT xmin::text) FROM "{name.lower()}b"')
    assert int(str(count)) <= 3


async def _fill(url: str, name: str, rows: int) -> None:
    async with opened(url, name) as table:
        await asyncio.gather(
            *[table.transact(f"p{n}", [Operation.insert("r", {"N": n})]) for n in range(rows)]
        )


def test_transactions_in_opposite_orders_do_not_stop_each_other(postgresql_url, name):
    forth = [Operation.insert_or_replace(row, {"N": 1}) for row in "abcdefgh"]

    async def work() -> None:
        async with opened(postgresql_url, name) as one, opened(postgresql_url, name) as other:
            for _ in range(20):
                await asyncio.gather(one.transact("p", forth), other.transact("p", forth[::-1]))

    asyncio.run(work())


def test_merges_of_several_writers_keep_all(postgresql_url, name):
    async def work() -> int:
        async with opened(postgresql_url, name) as one, opened(postgresql_url, name) as other:
            await one.transact("p", [Operation.insert("r", {})])
            merges = [
                table.transact("p", [Operation.merge("r", {f"{side}{n}": n})])
                for side, table in (("A", one), ("B", other))
                for n in range(4)
            ]
            await asyncio.gather(*merges)
            row = await one.get("p", "r")
            assert row is not None
            with pytest.raises(RowChangedError):
                await one.transact("p", [Operation.merge("r", {"C": 1}, "12")])
            return len(row.properties)

    assert asyncio.run(work()) == 8


@pytest.mark.parametrize(("more", "prepared"), [("", 0), ("?prepare=true", 1)])
def test_statements_are_prepared_if_the_url_says_so(postgresql_url, name, more, prepared):
    # A pooler may give a name that one client has prepared to another one's statement.
    async def work() -> int:
        async with opened(postgresql_url + more, name) as table:
            for n in range(9):
                await table.transact("p", [Operation.insert_or_replace("r", {"N": n})])
            text = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT%%'"
            ((count,),) = await table._store.session().fetch(psycopg.sql.SQL(text), ())
            return int(count)

    assert asyncio.run(work()) == prepared


def test_an_error_of_one_transaction_is_no_error_of_those_that_share_its_commit(postgresql_url, name):
    async def work() -> list[object]:
        async with connect(postgresql_url) as store:
            gone, table = await store.table(f"{name}gone"), await store.table(name)
            administer(postgresql_url, f"DROP TABLE {name.lower()}gone")
            tables = [table, gone, table, table]
            calls = [each.transact(f"p{n}", [Operation.insert("r", {})]) for n, each in enumerate(tables)]
            return list(await asyncio.gather(*calls, return_exceptions=True))

    found = asyncio.run(work())
    assert [type(each) for each in found] == [tuple, TableNotFoundError, tuple, tuple]


def test_a_write_that_is_cancelled_before_it_is_sent_is_not_carried_out(postgresql_url, name):
    async def work() -> list[str]:
        async with opened(postgresql_url, name) as table:
            calls = [asyncio.ensure_future(table.transact("p", [Operation.insert(row, {})])) for row in "abc"]
            await asyncio.sleep(0)
            calls[2].cancel()
            await asyncio.gather(*calls, return_exceptions=True)
            return [row.row_key for row in (await table.query("p", "", "~")).rows]

    assert asyncio.run(work()) == ["a", "b"]


def test_pages_of_large_rows_end_at_a_size(postgresql_url, name):
    async def work() -> list[int]:
        async with opened(postgresql_url, name) as table:
            for n in range(20):
                data = {f"Data{part}": os.urandom(60_000) for part in range(8)}
                await table.transact("p", [Operation.insert(f"{n:02}", data)])
            read = [partial(table.query, "p", "", "~"), partial(table.query, "p", "", "~", select=["Data7"])]
            return [len(page.rows) for each in read async for page in pages(each)]

    sizes = asyncio.run(work())
    assert sum(sizes) == 40
    assert max(sizes) <= 9


def test_deleted_rows_that_cannot_be_erased_are_told(postgresql_url, name):
    role = f"role_{name.lower()}"
    administer(postgresql_url, f"CREATE ROLE {role} LOGIN")

    async def work() -> None:
        async with opened(postgresql_url, name) as table:
            await table.transact("p", [Operation.insert("r", {})])
            administer(postgresql_url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name.lower()} TO {role}")
            async with opened(postgresql_url.replace("postgres@", f"{role}@"), name) as of_role:
                with pytest.raises(StoreUnavailableError, match="owner"):
                    await of_role.scrub()
            with psycopg.connect(postgresql_url) as reader:
                reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
                reader.execute("SELECT 1 FROM pg_class LIMIT 1")
                await table.transact("p", [Operation.delete("r")])
                with pytest.raises(StoreUnavailableError, match="1 of them"):
                    await table.scrub()
            await table.scrub()

    asyncio.run(work())


def test_a_role_that_may_not_make_tables_is_told_what_its_owner_runs(postgresql_url, name):
    role = f"role_{name.lower()}"
    administer(postgresql_url, f"CREATE ROLE {role} LOGIN", "REVOKE CREATE ON SCHEMA public FROM public")
    as_role = postgresql_url.replace("postgres@", f"{role}@")

    async def refused() -> str:
        async with connect(as_role) as store:
            with pytest.raises(StoreUrlError) as raised:
                await store.table(name)
            return str(raised.value)

    ddl = asyncio.run(refused()).partition("run: ")[2]
    administer(
        postgresql_url,
        *ddl.rstrip(";").split("; "),
        f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name.lower()} TO {role}",
    )

    assert _write(as_role, name, 1, 2) == 0


@pytest.mark.parametrize(
    ("change", "error", "told"),
    [
        (lambda url: url.removesuffix("postgres") + "nowhere", StoreUrlError, "nowhere"),
        (lambda url: url.replace("postgres@", "stranger:hidden@"), StoreUrlError, "stranger"),
        (lambda url: f"{url}?options=-csynchronous_commit%3Doff", StoreUrlError, "synchronous_commit"),
        (lambda url: f"{url}?schema=missing", StoreUrlError, "missing"),
        (lambda url: f"{url}?options=-c%20colour%3Dred", StoreUrlError, "colour"),
        (lambda url: "postgresql://me:hidden/hidden@host/db", StoreUrlError, "%2F"),
        (lambda url: "postgresql://me:hidd@hidden@host/db", StoreUrlError, "%40"),
        (lambda url: f"{url}?colour=red", StoreUrlError, "form"),
        (lambda url: "postgresql://me:hidden@127.0.0.1:1/db", StoreUnavailableError, "127.0.0.1:1/db"),
    ],
)
def test_a_url_that_does_not_work_is_told_without_its_password(postgresql_url, name, change, error, told):
    async def work() -> None:
        async with connect(change(postgresql_url)) as store:
            await store.table(name)

    with pytest.raises(error) as raised:
        asyncio.run(work())
    assert told in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_a_table_that_is_none_of_a_store_and_a_database_of_another_encoding_are_refused(postgresql_url, name):
    latin = f"latin{name.lower()}"
    administer(
        postgresql_url,
        f"CREATE TABLE {name.lower()} (id int)",
        f"CREATE DATABASE {latin} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    )

    async def refused(url: str) -> str:
        async with connect(url) as store:
            with pytest.raises(StoreUrlError) as raised:
                await store.table(name)
            return str(raised.value)

    assert "does not belong to a store" in asyncio.run(refused(postgresql_url))
    assert "LATIN1" in asyncio.run(refused(postgresql_url.removesuffix("postgres") + latin))


def test_keys_are_compared_bytewise_and_ranges_are_read_by_the_index(postgresql_url, name):
    async def statements() -> list[tuple[Any, tuple[object, ...]]]:
        async with opened(postgresql_url, name) as table:
            for number in range(40):
                rows = [Operation.insert(f"{row:02}", {"N": row}) for row in range(50)]
                await table.transact(f"p{number:02}", rows)
            sql = table._sql
            return [
                (sql.get, ("p07", "07")),
                (sql.some, ("p07", ["07", "08"])),
                (sql.pages["query"], ("p07", "07", "08")),
                (sql.project, (["p07", "p09"], ["07", "07"], ["08", "08"])),
                (sql.pages["scan_all"], ("p07", "p07", "07")),
                (sql.projections["scan_all"], ("p07", "p07", "07")),
            ]

    found = asyncio.run(statements())
    administer(postgresql_url, f"ANALYZE {name.lower()}")
    with psycopg.connect(postgresql_url) as connection:
        for sql, parameters in found:
            explain = psycopg.sql.SQL("EXPLAIN ") + sql
            plan = "\n".join(line for (line,) in connection.execute(explain, parameters))
            assert "Index Cond: " in plan
            assert "Seq Scan" not in plan

    collations = administer(
        postgresql_url,
        "SELECT DISTINCT c.collname FROM pg_attribute AS a JOIN pg_collation AS c ON c.oid = a.attcollation "
        f"WHERE a.attrelid IN ('{name.lower()}'::regclass, '{name.lower()}_pkey'::regclass)",
    )
    assert collations == [("C",)]


def test_a_table_may_be_partitioned_by_hash_of_its_key(postgresql_url, name):
    table_ = name.lower()
    keys = '"partition" text COLLATE "C", "row" text COLLATE "C", PRIMARY KEY ("partition", "row")'
    columns = f'{keys}, etag bigint, "time" bigint, small bytea, large bytea'
    administer(
        postgresql_url,
        f'CREATE TABLE {table_} ({columns}) PARTITION BY HASH ("partition")',
        f"COMMENT ON TABLE {table_} IS '{FORMAT}'",
        *(
            f"CREATE TABLE {table_}_{part} PARTITION OF {table_} FOR VALUES WITH (MODULUS 2, REMAINDER {part}) "
            "WITH (fillfactor = 80)"
            for part in range(2)
        ),
    )

    assert _write(postgresql_url, name, 1, 3) == 0

    async def read() -> tuple[int, list[str]]:
        async with opened(postgresql_url, name) as table:
            for number in range(8):
                await table.transact(f"p{number}", [Operation.insert_or_replace("r", {"N": number})])
            with pytest.raises(StoreUnavailableError):
                await table.scrub()
            keys = [row.partition_key for row in (await table.scan("r")).rows]
            return (await Stream.open(Partition(table, "shared"))).version, keys

    assert asyncio.run(read()) == (3, [f"p{number}" for number in range(8)])


def test_keys_that_are_too_long_for_the_index_are_refused_in_one_sentence(postgresql_url, name):
    letters = "".join(chr(0x4E00 + (37 * number) % 20_000) for number in range(1024))

    async def work() -> None:
        async with opened(postgresql_url, name) as table:
            with pytest.raises(InvalidKeyError, match=r"2,704 bytes for both keys"):
                await table.transact(letters[:512], [Operation.insert(letters[512:], {})])
            await table.transact(letters[:300], [Operation.insert(letters[512:812], {})])

    asyncio.run(work())


def test_schemas_are_stores_of_their_own(postgresql_url, name):
    schema = f"s{name.lower()}"
    administer(postgresql_url, f"CREATE SCHEMA {schema}")

    async def work() -> None:
        async with opened(f"{postgresql_url}?schema={schema}", name) as table:
            await table.transact("p", [Operation.insert("r", {})])
        async with connect(postgresql_url) as store:
            with pytest.raises(TableNotFoundError):
                await store.table(name, make=False)

    asyncio.run(work())


def test_loops_one_after_another_and_a_child_use_one_store(postgresql_url, name):
    store = connect(postgresql_url)
    assert isinstance(store, PostgresStore)

    async def insert(row: str) -> None:
        table = await store.table(name)
        await table.transact("p", [Operation.insert(row, {})])

    asyncio.run(insert("first"))
    with asyncio.Runner() as runner:
        runner.run(insert("second"))
        child = os.fork()
        if not child:
            code = 1
            try:
                asyncio.run(insert("child"))
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        runner.run(insert("third"))

    async def count() -> int:
        async with store:
            return len((await (await store.table(name)).query("p", "", "~")).rows)

    assert asyncio.run(count()) == 4

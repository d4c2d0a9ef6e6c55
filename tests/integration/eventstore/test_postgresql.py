"""What the contract suite cannot ask of PostgreSQL: roles that may not, writers side by side, servers that fail."""

import asyncio
import os
import signal
import time
from collections.abc import Iterator
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
    pages,
)
from eventstore.backends import postgres
from eventstore.backends.postgres import FORMAT
from eventstore.port import pause
from tests.support.lossy_proxy import Fault
from tests.support.names import new_name
from tests.support.postgresql import PostgresProxy, administer, pgbouncer, standby, until
from tests.support.servers import postgresql_server
from tests.support.streams import collect

INSERT = [Operation.insert("r", {})]


@pytest.fixture
def name():
    return new_name()


@pytest.fixture
def run():
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def opened(run, name):
    """Open the table in a database that has another URL."""
    stores = []

    def opened(url, name=name):
        stores.append(connect(url))
        return run(stores[-1].table(name))

    yield opened
    for store in stores:
        run(store.close())


@pytest.fixture
def table(opened, postgresql_url):
    return opened(postgresql_url)


@pytest.fixture
def role(postgresql_url, name):
    """Give a role that may not make tables, and the URL with which it connects."""
    role = f"role_{name.lower()}"
    administer(postgresql_url, f"CREATE ROLE {role} LOGIN", "REVOKE CREATE ON SCHEMA public FROM public")
    return role, postgresql_url.replace("postgres@", f"{role}@")


async def at_once(calls):
    return await asyncio.gather(*calls, return_exceptions=True)


async def fetch(table, statement):
    return await table._store.session().fetch(psycopg.sql.SQL(statement), ())


def rows_of(run, table, partition_key="p"):
    return [row.row_key for row in run(table.query(partition_key, "", "~")).rows]


# Transactions side by side.


def test_transactions_that_wait_share_a_commit_and_a_refused_one_is_refused_alone(
    run, table, postgresql_url, name
):
    run(table.transact("p7", INSERT))
    gone = run(table._store.table(f"{name}gone"))
    administer(postgresql_url, f"DROP TABLE {name.lower()}gone")
    tables = [gone if n == 9 else table for n in range(40)]

    results = run(at_once([each.transact(f"p{n}", INSERT) for n, each in enumerate(tables)]))

    refused = {n: type(each) for n, each in enumerate(results) if not isinstance(each, tuple)}
    assert refused == {7: RowExistsError, 9: TableNotFoundError}
    run(at_once([table.transact(f"q{n}", INSERT) for n in range(40)]))
    count = f"SELECT count(DISTINCT xmin::text) FROM {name.lower()} WHERE \"partition\" LIKE 'q%'"
    ((commits,),) = administer(postgresql_url, count)
    assert int(str(commits)) <= 3


def test_transactions_in_opposite_orders_do_not_stop_each_other(run, opened, postgresql_url):
    forth = [Operation.insert_or_replace(row, {"N": 1}) for row in "abcdefgh"]
    one, other = opened(postgresql_url), opened(postgresql_url)

    for _ in range(20):
        results = run(at_once([one.transact("p", forth), other.transact("p", forth[::-1])]))
        assert [type(each) for each in results] == [tuple, tuple]


def test_merges_of_several_writers_keep_all(run, opened, postgresql_url):
    one, other = opened(postgresql_url), opened(postgresql_url)
    run(one.transact("p", INSERT))

    run(
        at_once(
            table.transact("p", [Operation.merge("r", {f"{side}{n}": n})])
            for side, table in (("A", one), ("B", other))
            for n in range(4)
        )
    )

    assert len(run(one.get("p", "r")).properties) == 8
    with pytest.raises(RowChangedError):
        run(one.transact("p", [Operation.merge("r", {"C": 1}, "12")]))


@pytest.mark.parametrize(("more", "prepared"), [("", 0), ("?prepare=true", 1)])
def test_statements_are_prepared_if_the_url_says_so(run, opened, postgresql_url, more, prepared):
    # A pooler may give a name that one client has prepared to another one's statement.
    table = opened(postgresql_url + more)
    for n in range(9):
        run(table.transact("p", [Operation.insert_or_replace("r", {"N": n})]))

    count = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE 'INSERT%%'"
    assert run(fetch(table, count)) == [(prepared,)]


def test_a_write_that_is_cancelled_before_it_is_sent_is_not_carried_out(run, table):
    async def work():
        calls = [asyncio.ensure_future(table.transact("p", [Operation.insert(row, {})])) for row in "abc"]
        await asyncio.sleep(0)
        calls[2].cancel()
        await at_once(calls)

    run(work())

    assert rows_of(run, table) == ["a", "b"]


def test_pages_of_large_rows_end_at_a_size(run, table):
    for n in range(20):
        data = {f"Data{part}": os.urandom(60_000) for part in range(8)}
        run(table.transact("p", [Operation.insert(f"{n:02}", data)]))

    for select in (None, ["Data7"]):
        found = run(collect(pages(partial(table.query, "p", "", "~", select=select))))
        sizes = [len(page.rows) for page in found]
        assert sum(sizes) == 20
        assert max(sizes) <= 9


# Roles, URLs and tables.


def test_deleted_rows_that_cannot_be_erased_are_told(run, opened, table, role, postgresql_url, name):
    run(table.transact("p", INSERT))
    administer(postgresql_url, f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name.lower()} TO {role[0]}")
    with pytest.raises(StoreUnavailableError, match="owner"):
        run(opened(role[1]).scrub())

    with psycopg.connect(postgresql_url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT 1 FROM pg_class LIMIT 1")
        run(table.transact("p", [Operation.delete("r")]))
        with pytest.raises(StoreUnavailableError, match="1 of them"):
            run(table.scrub())
    run(table.scrub())


def test_a_role_that_may_not_make_tables_is_told_what_its_owner_runs(run, opened, role, postgresql_url, name):
    with pytest.raises(StoreUrlError) as raised:
        opened(role[1])

    ddl = str(raised.value).partition("run: ")[2]
    grant = f"GRANT SELECT, INSERT, UPDATE, DELETE ON {name.lower()} TO {role[0]}"
    administer(postgresql_url, *ddl.rstrip(";").split("; "), grant)
    table = opened(role[1])
    run(table.transact("p", INSERT))
    assert rows_of(run, table) == ["r"]


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
def test_a_url_that_does_not_work_is_told_without_its_password(opened, postgresql_url, change, error, told):
    with pytest.raises(error) as raised:
        opened(change(postgresql_url))
    assert told in str(raised.value)
    assert "hidden" not in str(raised.value)


def test_a_table_that_is_none_of_a_store_and_a_database_of_another_encoding_are_refused(
    opened, postgresql_url, name
):
    latin = f"latin{name.lower()}"
    administer(
        postgresql_url,
        f"CREATE TABLE {name.lower()} (id int)",
        f"CREATE DATABASE {latin} ENCODING 'LATIN1' TEMPLATE template0 LC_COLLATE 'C' LC_CTYPE 'C'",
    )

    with pytest.raises(StoreUrlError, match="does not belong to a store"):
        opened(postgresql_url)
    with pytest.raises(StoreUrlError, match="LATIN1"):
        opened(postgresql_url.removesuffix("postgres") + latin)


def test_keys_are_compared_bytewise_and_ranges_are_read_by_the_index(run, table, postgresql_url, name):
    for number in range(40):
        rows = [Operation.insert(f"{row:02}", {"N": row}) for row in range(50)]
        run(table.transact(f"p{number:02}", rows))
    administer(postgresql_url, f"ANALYZE {name.lower()}")
    sql = table._sql
    with psycopg.connect(postgresql_url) as connection:
        for statement, parameters in (
            (sql.get, ("p07", "07")),
            (sql.some, ("p07", ["07", "08"])),
            (sql.pages["query"], ("p07", "07", "08")),
            (sql.project, (["p07", "p09"], ["07", "07"], ["08", "08"])),
            (sql.pages["scan_all"], ("p07", "p07", "07")),
            (sql.projections["scan_all"], ("p07", "p07", "07")),
        ):
            explain = psycopg.sql.SQL("EXPLAIN ") + statement
            plan = "\n".join(line for (line,) in connection.execute(explain, parameters))
            assert "Index Cond: " in plan
            assert "Seq Scan" not in plan

    collations = administer(
        postgresql_url,
        "SELECT DISTINCT c.collname FROM pg_attribute AS a JOIN pg_collation AS c ON c.oid = a.attcollation "
        f"WHERE a.attrelid IN ('{name.lower()}'::regclass, '{name.lower()}_pkey'::regclass)",
    )
    assert collations == [("C",)]


def test_a_table_may_be_partitioned_by_hash_of_its_key(run, opened, postgresql_url, name):
    keys = '"partition" text COLLATE "C", "row" text COLLATE "C", PRIMARY KEY ("partition", "row")'
    columns = f'{keys}, etag bigint, "time" bigint, small bytea, large bytea'
    parts = [
        f"CREATE TABLE {name.lower()}_{part} PARTITION OF {name.lower()} "
        f"FOR VALUES WITH (MODULUS 2, REMAINDER {part}) WITH (fillfactor = 80)"
        for part in range(2)
    ]
    administer(
        postgresql_url,
        f'CREATE TABLE {name.lower()} ({columns}) PARTITION BY HASH ("partition")',
        f"COMMENT ON TABLE {name.lower()} IS '{FORMAT}'",
        *parts,
    )
    table = opened(postgresql_url)

    for number in range(8):
        run(table.transact(f"p{number}", [Operation.insert_or_replace("r", {"N": number})]))
    stream = run(Stream.write(Partition(table, "shared"), EventData({"N": 1}), expected_version=0)).stream
    run(Stream.write(stream, EventData({"N": 2})))

    assert [row.partition_key for row in run(table.scan("r")).rows] == [f"p{number}" for number in range(8)]
    assert run(Stream.open(Partition(table, "shared"))).version == 2
    with pytest.raises(StoreUnavailableError):
        run(table.scrub())


def test_keys_that_are_too_long_for_the_index_are_refused_in_one_sentence(run, table):
    letters = "".join(chr(0x4E00 + (37 * number) % 20_000) for number in range(1024))

    with pytest.raises(InvalidKeyError, match=r"2,704 bytes for both keys"):
        run(table.transact(letters[:512], [Operation.insert(letters[512:], {})]))
    run(table.transact(letters[:300], [Operation.insert(letters[512:812], {})]))


def test_schemas_are_stores_of_their_own(run, opened, postgresql_url, name):
    administer(postgresql_url, f"CREATE SCHEMA s{name.lower()}")
    opened(f"{postgresql_url}?schema=s{name.lower()}")

    with pytest.raises(TableNotFoundError):
        run(connect(postgresql_url).table(name, make=False))


def test_loops_one_after_another_and_a_child_use_one_store(postgresql_url, name):
    store = connect(postgresql_url)

    async def insert(row):
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

    async def count():
        async with store:
            return len((await (await store.table(name)).query("p", "", "~")).rows)

    assert asyncio.run(count()) == 4


# Locks, servers that do not answer, and event loops that are blocked.

IMPATIENT = "?options=-clock_timeout%3D200ms"


@contextmanager
def locked(url: str, statement: str) -> Iterator[None]:
    """Keep locked what a statement locks."""
    with psycopg.connect(url) as other:
        other.execute(statement.encode())
        yield


def test_a_row_that_stays_locked_is_unavailable_and_the_writes_beside_it_are_not(
    run, opened, postgresql_url, name
):
    table = opened(postgresql_url + IMPATIENT)
    run(at_once([table.transact(f"p{n}", INSERT) for n in range(3)]))
    change = [Operation.replace("r", {"N": 1})]

    with locked(postgresql_url, f"SELECT FROM {name.lower()} WHERE \"partition\" = 'p1' FOR UPDATE"):
        first, refused, last = run(at_once([table.transact(f"p{n}", change) for n in range(3)]))
        run(table.get("p1", "r"))
    run(table.transact("p1", change))

    assert (type(first), type(refused), type(last)) == (tuple, StoreUnavailableError, tuple)
    assert "locked" in str(refused)
    assert not refused.outcome_unknown


def test_a_table_that_stays_locked_is_unavailable(run, opened, postgresql_url, name, monkeypatch):
    monkeypatch.setattr(postgres, "_ATTEMPTS", 2)
    table = opened(postgresql_url + IMPATIENT)

    with locked(postgresql_url, f"LOCK TABLE {name.lower()}"):
        for call in (table.get("p", "r"), table.transact("p", INSERT)):
            with pytest.raises(StoreUnavailableError, match="locked"):
                run(call)


def test_an_event_loop_that_is_blocked_is_no_server_that_does_not_answer(run, table, monkeypatch):
    monkeypatch.setattr(postgres, "_ANSWER_SECONDS", 2)
    several = [Operation.insert(row, {}) for row in "abc"]

    async def work():
        for call in (table.get("p", "r"), table.transact("p", several), table.query("p", "", "~")):
            waiting = asyncio.ensure_future(call)
            for _ in range(3):  # until it is sent
                await asyncio.sleep(0)
            time.sleep(2.5)  # noqa: ASYNC251 - that is the point
            await waiting

    run(work())


def test_a_server_that_does_not_answer_in_time_is_unavailable(run, table, monkeypatch):
    monkeypatch.setattr(postgres, "_ANSWER_SECONDS", 0.3)

    with pytest.raises(StoreUnavailableError, match=r"did not answer in 0\.3 seconds"):
        run(fetch(table, "SELECT pg_sleep(60)"))


WRITES = st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 3)), min_size=1, max_size=24)
FAULTS = st.lists(st.none() | st.sampled_from(Fault), max_size=40)


@settings(max_examples=min(settings().max_examples, 30), deadline=None)
@given(writes=WRITES, faults=FAULTS, at_once=st.integers(1, 16))
def test_whatever_answers_are_lost_each_message_takes_effect_once(postgresql_url, writes, faults, at_once):
    name = new_name()

    async def deliver(table, message, key, events):
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

    async def work():
        proxy = PostgresProxy(postgresql_url)
        async with proxy.running(), connect(proxy.url) as store:
            table = await store.table(name)
            proxy.faults = list(faults)
            gate = asyncio.Semaphore(at_once)

            async def one(message, key, events):
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


def freeze(data, sent):
    postmaster = int((data / "postmaster.pid").read_text().split()[0])
    children = Path(f"/proc/{postmaster}/task/{postmaster}/children").read_text().split()
    for pid in (postmaster, *map(int, children)):
        with suppress(ProcessLookupError):
            os.kill(pid, sent)


@pytest.mark.thorough
def test_a_server_that_hangs_leaves_the_outcome_unknown_and_then_goes_on(name, monkeypatch):
    monkeypatch.setattr(postgres, "_ANSWER_SECONDS", 1)

    async def work(data, url):
        async with connect(f"{url}?connect_timeout=2") as store:
            table = await store.table(name)
            several = [Operation.insert(row, {}) for row in "ab"]
            freeze(data, signal.SIGSTOP)
            try:
                with pytest.raises(StoreUnavailableError) as raised:
                    await table.transact("p", several)
                assert raised.value.outcome_unknown
                with pytest.raises(StoreUnavailableError):
                    await table.get("p", "a")
            finally:
                freeze(data, signal.SIGCONT)
            await table.transact("p", [Operation.insert("c", {})])
            # What was sent is carried out as a whole or not at all.
            assert [row.row_key for row in (await table.query("p", "", "~")).rows] in (["a", "b", "c"], ["c"])

    with postgresql_server() as server:
        asyncio.run(work(server.folder / "data", server.url))


async def written_beside(url, name, disturb):
    """Have 16 writers at work while a server is disturbed; return what was acknowledged, and what is there."""
    acknowledged: set[str] = set()
    are_under_way, is_over = asyncio.Event(), asyncio.Event()

    async def write(table, writer):
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

    async with connect(url) as store:
        table = await store.table(name)
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


def check_that_nothing_is_lost(acknowledged, found, disturbances):
    assert acknowledged <= found
    # Of each writer at most one answer was lost each time.
    assert len(found) <= len(acknowledged) + 16 * disturbances


@pytest.mark.parametrize("mode", ["fast", "immediate"])
def test_writers_go_on_beside_a_server_that_restarts_and_nothing_is_lost(name, mode):
    with postgresql_server() as server:

        def restart():
            for _ in range(3):
                server.control("pg_ctl", "restart", "-w", "-m", mode, "-l", str(server.folder / "log"))

        acknowledged, found = asyncio.run(written_beside(server.url, name, restart))
        check_that_nothing_is_lost(acknowledged, found, 3)


@pytest.mark.thorough
def test_after_a_failover_all_that_was_acknowledged_is_on_the_new_server(name):
    with postgresql_server() as primary, standby(primary) as other:
        host, second = primary.url.removesuffix("/postgres"), other.url.partition("@")[2]

        def fail_over():
            primary.control("pg_ctl", "stop", "-m", "immediate")
            other.control("pg_ctl", "promote", "-w")
            until(other.url, "SELECT NOT pg_is_in_recovery()")
            administer(other.url, "ALTER SYSTEM RESET synchronous_standby_names", "SELECT pg_reload_conf()")

        try:
            acknowledged, found = asyncio.run(written_beside(f"{host},{second}", name, fail_over))
        finally:
            with suppress(ChildProcessError):  # it is stopped at the end
                primary.control("pg_ctl", "start", "-w", "-l", str(primary.folder / "log"))
        check_that_nothing_is_lost(acknowledged, found, 2)


def test_a_server_that_only_reads_has_carried_nothing_out(run, opened, name):
    with postgresql_server() as server:
        table = opened(server.url)
        administer(server.url, "ALTER ROLE postgres SET default_transaction_read_only = on")
        with pytest.raises(StoreUnavailableError) as raised:
            opened(f"{server.url}?target_session_attrs=any", f"{name}b")
        assert not raised.value.outcome_unknown
        run(table.transact("p", INSERT))


@pytest.mark.thorough
def test_behind_pgbouncer_in_transaction_mode_all_is_as_without_it(
    run, opened, postgresql_url, name, tmp_path, monkeypatch
):
    monkeypatch.setattr(postgres, "_SET_LOCAL", "SET LOCAL lock_timeout = '200ms'")

    async def write(table, writer):
        for number in range(20):
            rows = [Operation.insert(f"{writer}-{number}-{row}", {"N": number}) for row in range(3)]
            await table.transact(f"p{writer % 4}", rows)
            await table.transact(f"p{writer % 4}", [Operation.merge(rows[0].row_key, {"M": writer})])

    with pgbouncer(postgresql_url, tmp_path) as url:
        tables = [opened(url), opened(url)]
        run(at_once([write(tables[n % 2], n) for n in range(16)]))
        found = run(collect(pages(partial(tables[0].scan, None))))
        rows = [row for page in found for row in page.rows]
        assert len(rows) == 16 * 20 * 3
        assert sum("M" in row.properties for row in rows) == 16 * 20
        delete = [Operation.delete("0-0-0")]
        lock = locked(postgresql_url, f"SELECT FROM {name.lower()} FOR UPDATE")
        with lock, pytest.raises(StoreUnavailableError, match="locked"):
            run(tables[0].transact("p0", delete))
        run(tables[0].transact("p0", delete))
        # No setting is left on a connection that another client may get.
        assert administer(url, "SHOW lock_timeout") == [("0",)]

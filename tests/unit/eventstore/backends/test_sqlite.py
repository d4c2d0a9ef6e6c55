"""One SQLite file: how it is opened, what its rows and writes cost, when a write is safe, and what is left of it."""

import random
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from uuid import UUID

import msgpack
import pytest

from eventstore import (
    ANY_ETAG,
    DamagedRowError,
    Int64,
    Operation,
    StoreUnavailableError,
    StoreUrlError,
    Value,
    connect,
    drive,
)
from eventstore.backends import rows as row_format
from eventstore.backends import sqlite
from eventstore.backends.rows import LARGE_BYTES, pack, packer, shared_bytes, unpack, unpack_some
from eventstore.backends.sqlite import SqliteStore
from eventstore.port import LeavesTraces, MayBeReplaced


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def opened():
    """Open a file; what was opened is closed at the end."""
    stores = []

    def opened(path):
        stores.append(connect(f"sqlite:///{path}"))
        return stores[-1]

    yield opened
    for store in stores:
        drive(store.close())


@pytest.fixture
def store(opened, path):
    return opened(path)


@pytest.fixture
def table(store):
    return drive(store.table("games"))


@pytest.fixture
def impatient(monkeypatch):
    """Let nobody wait long for a lock."""
    monkeypatch.setattr(sqlite, "BUSY_SECONDS", 0.02)


def insert(table, key="r", **properties):
    drive(table.transact("p", [Operation.insert(key, properties)]))


# Opening.


def test_a_missing_folder_is_made_where_the_store_was_connected(opened, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = opened("a/b/store.db")
    monkeypatch.chdir("/")

    drive(store.table("games"))

    assert (tmp_path / "a" / "b" / "store.db").is_file()


def a_later_format(path):
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA user_version=2")


@pytest.mark.parametrize(
    ("make", "name", "told"),
    [
        (Path.mkdir, "", r"store\.db cannot be used"),
        (lambda path: path.write_bytes(b"no database at all" * 100), "", r"store\.db cannot be used"),
        (lambda path: path.write_text("a file"), "/store.db", "folder"),
        (a_later_format, "", "format 2"),
    ],
)
def test_what_is_no_database_file_of_this_format_cannot_be_used(path, make, name, told):
    make(path)

    with pytest.raises(StoreUrlError, match=told):
        drive(connect(f"sqlite:///{path}{name}").table("games"))


class AmidRecovery:
    """Answers as SQLite does while others read the log that a killed process has left, or without shared memory."""

    def __init__(self, refusals=0, code=0, mode="wal"):
        self.refusals, self._code, self._mode = refusals, code, mode

    def execute(self, statement):
        assert statement == "PRAGMA journal_mode=WAL"
        if self.refusals:
            self.refusals -= 1
            error = sqlite3.OperationalError("locking protocol")
            error.sqlite_errorcode = self._code
            raise error
        return self

    def fetchone(self):
        return (self._mode,)

    def switch(self, path):
        SqliteStore(f"sqlite:///{path}")._switch_to_wal(cast("sqlite3.Connection", self))


def test_a_file_system_without_a_write_ahead_log_is_refused(path):
    with pytest.raises(StoreUrlError, match=r"write-ahead log.*'delete'"):
        AmidRecovery(mode="delete").switch(path)


@pytest.mark.parametrize("code", [sqlite3.SQLITE_PROTOCOL, sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY])
def test_a_log_that_others_recover_is_waited_for_and_not_without_end(path, monkeypatch, code):
    monkeypatch.setattr(sqlite, "_WAL_PAUSE_SECONDS", 0)
    connection = AmidRecovery(3, code)

    connection.switch(path)

    assert connection.refusals == 0
    with pytest.raises(sqlite3.OperationalError, match="locking protocol"):
        AmidRecovery(1, sqlite3.SQLITE_IOERR).switch(path)
    monkeypatch.setattr(sqlite, "_WAL_SECONDS", -1)
    with pytest.raises(sqlite3.OperationalError, match="locking protocol"):
        AmidRecovery(1, code).switch(path)


def test_a_file_that_was_deleted_or_made_anew_is_told_from_the_one_that_is_open(opened, store, path):
    assert [isinstance(each, MayBeReplaced) for each in (store, connect("memory:"))] == [True, False]
    assert not store.is_replaced()
    drive(store.table("states"))
    assert not store.is_replaced()

    path.unlink()
    assert store.is_replaced()
    drive(opened(path).table("states"))
    assert store.is_replaced()

    drive(store.close())
    drive(store.table("states"))
    assert not store.is_replaced()


def test_a_thread_has_a_connection_of_its_own(store, table):
    found = []

    def work():
        insert(table, "from-thread", V=1)
        found.append(store.connection())
        found.append(settings(store))
        found[0].close()

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()

    assert found[0] is not store.connection()
    assert found[1] == CHOSEN
    assert drive(table.get("p", "from-thread")) is not None


# Writes that are refused.


def test_a_file_that_stays_locked_is_unavailable_and_nothing_was_written(impatient, store, table, path):
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")

    for write in (table.transact("p", [Operation.insert("r", {})]), table.barrier()):
        with pytest.raises(StoreUnavailableError, match="locked") as raised:
            drive(write)

    assert not raised.value.outcome_unknown
    assert drive(table.get("p", "r")) is None
    assert settings(store) == {**CHOSEN, "busy_timeout": 20}
    other.close()
    insert(table, V=1)
    drive(table.barrier())


def test_an_interrupted_transaction_is_undone(table, monkeypatch):
    def interrupt(_operation, index, _stored):
        if index:
            raise KeyboardInterrupt

    monkeypatch.setattr("eventstore.backends.sqlite.refusal", interrupt)
    with pytest.raises(KeyboardInterrupt):
        drive(table.transact("p", [Operation.insert("a", {}), Operation.insert("b", {})]))
    monkeypatch.undo()

    assert drive(table.get("p", "a")) is None
    insert(table, "a")


OF_ANOTHER_SHAPE = {
    "no msgpack": b"\xc1",
    "a text": msgpack.packb("ab"),
    "a number": msgpack.packb(7),
    "three numbers": msgpack.packb([1, 2, 3]),
    "a list for lengths": msgpack.packb([{"V": 1}, []]),
    "a length that is too small": msgpack.packb([{}, {"V": 1}]),
    "a length that is no number": msgpack.packb([{}, {"V": "x"}]),
    "a name that is bytes": msgpack.packb({b"V": 1}),
    "nothing as a value": msgpack.packb({"V": None}),
    "a list as a value": msgpack.packb({"V": [1]}),
    "a mapping as a value": msgpack.packb({"V": {"A": 1}}),
    "a time of msgpack": msgpack.packb({"V": msgpack.Timestamp(1)}),
    "a type that is unknown": msgpack.packb({"V": msgpack.ExtType(99, b"x")}),
    "a short UUID": msgpack.packb({"V": msgpack.ExtType(3, b"short")}),
    "a long time": msgpack.packb({"V": msgpack.ExtType(2, b"x" * 17)}),
    "too many bytes": msgpack.packb({"V": b"x" * 65537}),
    "more behind it": msgpack.packb({"V": 1}) + b"more",
}


@pytest.mark.parametrize("shape", [*OF_ANOTHER_SHAPE, "cut", "gone", "no time"])
@pytest.mark.parametrize(
    "read",
    [
        lambda table: table.get("p~", "r/1"),
        lambda table: table.query("p~", "r/1", "r/1"),
        lambda table: table.query("p~", "r/1", "r/1", select=["V"]),
        lambda table: table.scan(None),
        lambda table: table.scan("r/1", select=["V"]),
        lambda table: table.transact("p~", [Operation.merge("r/1", {"W": 1}, ANY_ETAG)]),
    ],
    ids=["get", "query", "projection", "scan", "scan of a row key", "merge"],
)
def test_a_damaged_row_is_named_by_one_error_and_never_a_wrong_value(store, table, read, shape):
    drive(table.transact("p~", [Operation.insert("r/1", {"V": b"x" * 3000})]))
    change = {
        "cut": "large = substr(large, 1, 2999)",
        "gone": "large = NULL",
        "no time": "time = 'now'",
    }.get(shape, f"small = x'{OF_ANOTHER_SHAPE.get(shape, b'').hex()}'")
    store.connection().execute(f'UPDATE "games_rows" SET {change}')

    with pytest.raises(DamagedRowError) as raised:
        drive(read(table))

    assert (raised.value.partition_key, raised.value.row_key) == ("p~", "r/1")


def test_a_projected_read_leaves_large_properties_on_the_disk(table, monkeypatch):
    insert(table, Small=b"x", Short=b"s" * 2600, Middle=b"m" * 5000, Long=b"l" * 65_000)
    read = []
    read_large = table._read_large

    def watch(connection, row_id, length):
        read.append(length)
        return read_large(connection, row_id, length)

    monkeypatch.setattr(table, "_read_large", watch)
    for select in (["Small"], ["Missing"], [], ["Short"], ["Middle", "Small"], ["Long"]):
        drive(table.query("p", "r", "r", select=select))

    assert read == [2600, 7600, 72_600]


@pytest.mark.parametrize(
    ("first", "others", "statements"),
    [
        ({"Small": b"x"}, {}, 1),
        ({"Large": b"l" * 20_000}, {"Large": b"l" * 20_000, "Small": b"x"}, 1),
        ({"Wanted": b"l" * 20_000}, {"Small": b"x"}, 1),
        ({"Wanted": b"l" * 60_000, "Large": b"l" * 60_000}, {}, 4),
        ({"Small": b"x"}, {"Wanted": b"l" * 2600}, 4),
    ],
)
def test_a_projected_read_takes_one_statement_where_that_gives_what_is_asked_for(
    store, table, first, others, statements
):
    insert(table, "r-1", **first)
    insert(table, "r-2", **others)
    expected = {key: {"Wanted": row["Wanted"]} if "Wanted" in row else {} for key, row in
                (("r-1", first), ("r-2", others))}  # fmt: skip
    seen: list[str] = []
    store.connection().set_trace_callback(seen.append)

    page = drive(table.query("p", "r-1", "r-9", select=["Wanted"]))

    assert {row.row_key: dict(row.properties) for row in page.rows} == expected
    assert len(seen) == statements


# A commit goes to the write-ahead log and is not waited for (NORMAL): it survives the process at once, and a power cut
# from the next barrier on. A barrier waits (FULL), and where the system has a way to wait for the disk's own cache
# (fullfsync, on macOS), for that as well.

CHOSEN = {
    "journal_mode": "wal",
    "synchronous": 1,
    "fullfsync": 1,
    "wal_autocheckpoint": 4000,
    "cache_size": -8000,
    "busy_timeout": 60_000,
}


def settings(store):
    connection = store.connection()
    return {name: connection.execute(f"PRAGMA {name}").fetchone()[0] for name in CHOSEN}


def test_a_barrier_waits_for_the_disk_and_no_commit_before_or_after_does(store, table):
    assert settings(store) == CHOSEN
    seen: list[str] = []
    store.connection().set_trace_callback(seen.append)

    drive(table.barrier())

    assert seen[0] == "PRAGMA synchronous=FULL"
    assert seen[-1] == "PRAGMA synchronous=NORMAL"
    assert any("eventstore_barrier" in statement for statement in seen[1:-1])
    insert(table, V=1)
    drive(table.barrier())
    assert settings(store) == CHOSEN
    assert store.connection().execute("SELECT commits FROM eventstore_barrier").fetchone() == (2,)
    drive(store.close())
    assert settings(store) == CHOSEN


# Rows as bytes.

SMALL: dict[str, Value] = {
    "Text": "é",
    "Number": 1,
    "Big": Int64(2),
    "When": datetime(2024, 1, 1, tzinfo=UTC),
    "Id": UUID(int=7),
    "Bytes": b"x" * LARGE_BYTES,
}
LARGE: dict[str, Value] = {"Long": b"l" * 9000, "Middle": b"m" * 4000, "Short": b"s" * (LARGE_BYTES + 1)}


@pytest.mark.parametrize(
    ("select", "needed"),
    [
        ([], 0),
        (["Text", "Missing"], 0),
        (["Short"], 2049),
        (["Middle"], 6049),
        (["Long", "Text"], 15_049),
        (["Long", "Short"], 15_049),
    ],
)
def test_large_properties_stand_apart_the_shortest_first_and_a_selection_reads_their_beginning(
    select, needed
):
    row = {**SMALL, **LARGE}
    small, large = pack(packer(), row)
    assert large == b"s" * (LARGE_BYTES + 1) + b"m" * 4000 + b"l" * 9000
    assert unpack(small, large) == row
    assert pack(packer(), SMALL)[1] is None
    assert unpack(*pack(packer(), SMALL)) == SMALL
    for cut in (large[:-1], None):
        with pytest.raises(ValueError, match="truncated"):
            unpack(small, cut)
    lengths = []

    def read_large(_, length):
        lengths.append(length)
        return large[:length]

    selected = unpack_some(select, read_large, small, None)

    assert selected == {name: row[name] for name in select if name in row}
    assert sum(lengths) == needed


def test_a_type_without_a_form_is_an_error():
    with pytest.raises(TypeError, match="complex"):
        pack(packer(), {"A": 1j})  # type: ignore[dict-item]


# What was deleted or overwritten is in no file any more, once it was scrubbed.

CANARY = b"a-canary-that-sings"


def write_and_delete(table):
    """Write canaries into keys, small and large properties, overwrite some and delete some."""
    table._store.connection().execute("PRAGMA secure_delete=OFF")  # which some builds of SQLite have on
    for number in range(40):
        large = CANARY * 3000
        key = f"{CANARY.decode()}-{number}"
        drive(table.transact("p", [Operation.insert(key, {"Small": CANARY, "Large": large})]))
        drive(table.transact("q", [Operation.insert(f"{number}", {"Text": CANARY.decode() * 3})]))
    for number in range(40):
        drive(table.transact("p", [Operation.delete(f"{CANARY.decode()}-{number}")]))
        drive(table.transact("q", [Operation.replace(f"{number}", {"Text": "silence"})]))


def traces(path):
    """Return the files that hold a canary."""
    files = [path.with_name(path.name + suffix) for suffix in ("", "-wal", "-shm")]
    return {file.name for file in files if file.exists() and CANARY in file.read_bytes()}


@pytest.mark.parametrize("checkpointed", [False, True])
def test_no_file_holds_a_trace(path, table, checkpointed):
    in_memory = drive(connect("memory:").table("games"))
    assert [isinstance(each, LeavesTraces) for each in (table, in_memory)] == [True, False]
    write_and_delete(table)
    if checkpointed:
        table._store.connection().execute("PRAGMA wal_checkpoint(TRUNCATE)")
    assert traces(path) == ({"store.db"} if checkpointed else {"store.db-wal"})

    drive(table.scrub())

    assert traces(path) == set()
    assert {row.properties["Text"] for row in drive(table.query("q", "", "~")).rows} == {"silence"}


@pytest.mark.parametrize("reads", [False, True])
def test_a_reader_keeps_it_from_being_done_and_an_idle_connection_does_not(impatient, path, table, reads):
    write_and_delete(table)
    other = sqlite3.connect(path, isolation_level=None)
    if reads:
        other.execute("BEGIN")
    other.execute("SELECT count(*) FROM games_rows").fetchall()

    if reads:
        with pytest.raises(StoreUnavailableError):
            drive(table.scrub())
        other.execute("ROLLBACK")
    drive(table.scrub())

    assert traces(path) == set()
    other.close()


# Dictionaries: rows of a kind share most of their bytes, and nothing of one row is shared.

STATE = b'{"owner_of_the_account":"%s","currency_of_the_account":"EUR","cents":%d}'


def properties(number: int, batch: str = "night-1") -> dict[str, object]:
    """Return the properties of a header as a batch writes them."""
    owner = f"owner {random.Random(number).randbytes(8).hex()}"
    return {"Version": number, "State": STATE % (owner.encode(), number), "WrittenByBatch": batch}


def write(accounts: Any, numbers: Sequence[int], batch: str = "night-1", kind: str = "Account") -> None:
    """Write the headers of some streams with one commit."""
    change = Operation.insert_or_replace if len(numbers) == 1 else Operation.insert
    drive(
        accounts.transact_each([(f"{kind}-{n}", [change("SS-HEAD", properties(n, batch))]) for n in numbers])  # type: ignore[arg-type]
    )


def read(accounts: Any, number: int, kind: str = "Account") -> object:
    row = drive(accounts.get(f"{kind}-{number}", "SS-HEAD"))
    return None if row is None else row.properties


@pytest.fixture
def accounts(path):
    return drive(connect(f"sqlite:///{path}").table("accounts"))


def rows(path, sql="SELECT small FROM accounts_rows"):
    with sqlite3.connect(path) as connection:
        return connection.execute(sql).fetchall()


def numbers(path):
    """Return the numbers of the dictionaries that are stored and not empty."""
    with suppress(sqlite3.OperationalError):
        return [n for (n,) in rows(path, "SELECT number FROM accounts_dictionaries WHERE length(shared)")]
    return []


MANY = range(100)


def test_rows_of_a_kind_take_less_than_half(accounts, path):
    write(accounts, MANY)

    assert sum(len(small) for (small,) in rows(path)) < sum(len(STATE) + 60 for _ in MANY) / 2
    assert [read(accounts, number) for number in MANY] == [properties(number) for number in MANY]
    assert drive(accounts.query_each(["Account-3"], "", "~")) == [
        drive(accounts.query("Account-3", "", "~")).rows
    ]


def test_a_dictionary_holds_nothing_of_one_row(accounts, path):
    write(accounts, MANY)

    ((shared,),) = rows(path, "SELECT shared FROM accounts_dictionaries")

    assert b"owner_of_the_account" in shared
    owners = [STATE.split(b"%s")[0] + properties(n)["State"].split(b'"')[3] for n in MANY]  # type: ignore[attr-defined]
    assert not any(owner[-10:] in shared for owner in owners)


def test_a_dictionary_is_made_for_each_kind_and_again_when_rows_are_unlike_its_samples(accounts, path):
    write(accounts, MANY)
    write(accounts, MANY, kind="Order")
    write(accounts, range(100, 200))
    assert numbers(path) == [1, 2]

    write(accounts, range(200, 300), batch="another batch with a long name of its own: " + "x-7" * 20)

    assert numbers(path) == [1, 2, 3]
    assert [read(accounts, number) for number in (7, 107)] == [properties(7), properties(107)]
    assert read(accounts, 7, "Order") == properties(7)


def test_the_number_of_dictionaries_is_bounded(accounts, path, monkeypatch):
    monkeypatch.setattr(row_format, "MOST_DICTIONARIES", 1)
    write(accounts, MANY)
    write(accounts, MANY, kind="Order")

    assert numbers(path) == [1]
    assert read(accounts, 7, "Order") == properties(7)


def test_single_rows_are_written_and_changed_by_a_dictionary_that_is_there(accounts, path):
    write(accounts, MANY)
    write(accounts, [7], batch="night-2")
    drive(accounts.transact("Account-8", [Operation.merge("SS-HEAD", {"More": 1}, ANY_ETAG)]))

    assert all(small[:1] == row_format.MARK for (small,) in rows(path))
    assert read(accounts, 7) == properties(7, "night-2")
    assert read(accounts, 8) == {**properties(8), "More": 1}


@pytest.mark.parametrize("reads_before", [False, True])
def test_another_process_reads_and_writes_what_one_has_compressed(accounts, path, reads_before):
    other = drive(connect(f"sqlite:///{path}").table("accounts"))
    if reads_before:  # it knows of no dictionary then
        assert read(other, 7) is None
    write(accounts, MANY)

    assert read(other, 7) == properties(7)
    write(other, range(100, 200))
    assert numbers(path) == [1]
    assert read(accounts, 107) == properties(107)


def test_writers_at_once_agree_on_one_dictionary(path):
    def work(begin: int) -> None:
        accounts = drive(connect(f"sqlite:///{path}").table("accounts"))
        for start in range(begin, begin + 400, 100):
            write(accounts, range(start, start + 100))

    threads = [threading.Thread(target=work, args=(begin,)) for begin in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    accounts = drive(connect(f"sqlite:///{path}").table("accounts"))
    assert numbers(path) == [1]
    assert all(
        read(accounts, n) == properties(n) for begin in (0, 1000, 2000) for n in range(begin, begin + 400)
    )


def test_a_dictionary_of_a_commit_that_failed_is_forgotten(accounts, path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(accounts.sql, "insert_row_at", "INSERT INTO nowhere VALUES (1)")
        with pytest.raises(Exception, match="nowhere"):
            write(accounts, MANY)
    assert numbers(path) == []

    write(accounts, MANY)

    assert numbers(path) == [1]
    assert read(drive(connect(f"sqlite:///{path}").table("accounts")), 7) == properties(7)


@pytest.mark.parametrize(
    "damage",
    [
        "UPDATE accounts_rows SET small = substr(small, 1, length(small) - 3)",
        "UPDATE accounts_rows SET small = x'c1'",
        "UPDATE accounts_rows SET small = x'c1ff00'",
        "DELETE FROM accounts_dictionaries",
    ],
)
def test_a_damaged_row_is_named(path, accounts, damage):
    write(accounts, MANY)
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    accounts = drive(connect(f"sqlite:///{path}").table("accounts"))

    with pytest.raises(DamagedRowError) as raised:
        read(accounts, 7)

    assert raised.value.partition_key == "Account-7"
    assert drive(accounts.query_each(["Account-7"], "", "~")) == [None]


def delete_and_scrub(accounts):
    for number in MANY:
        drive(accounts.transact(f"Account-{number}", [Operation.delete("SS-HEAD")]))
    drive(accounts.scrub())


def test_a_dictionary_that_no_row_needs_goes_when_the_file_is_scrubbed(accounts, path):
    write(accounts, MANY)
    write(accounts, MANY, kind="Order")

    delete_and_scrub(accounts)

    assert numbers(path) == [2]
    assert rows(path, "SELECT kind, shared FROM accounts_dictionaries WHERE number = 1") == [("", b"")]
    assert read(accounts, 7, "Order") == properties(7)


@pytest.mark.parametrize("written", [[7], MANY], ids=["one row", "many rows"])
def test_what_a_process_writes_after_another_has_scrubbed_is_readable_by_all(accounts, path, written):
    other = drive(connect(f"sqlite:///{path}").table("accounts"))
    write(accounts, MANY)
    assert read(other, 7) == properties(7)
    delete_and_scrub(accounts)
    write(accounts, MANY, kind="Order")

    write(other, written)

    assert 1 not in numbers(path)
    for each in (accounts, other, drive(connect(f"sqlite:///{path}").table("accounts"))):
        assert read(each, 7) == read(each, 7, "Order") == properties(7)


def test_numbers_of_dictionaries_do_not_run_out(accounts, path):
    write(accounts, MANY)
    rows(path, "UPDATE accounts_dictionaries SET number = 254, kind = ''")
    accounts, other = (drive(connect(f"sqlite:///{path}").table("accounts")) for _ in range(2))

    write(accounts, MANY, kind="Order")
    write(accounts, [7], kind="Order")
    drive(accounts.scrub())

    assert numbers(path)[-1] == 255
    assert (read(accounts, 8, "Order"), read(other, 7, "Order")) == (properties(8), properties(7))


def test_a_row_that_has_the_newest_dictionary_is_replaced_without_asking_for_it(accounts):
    write(accounts, MANY)
    seen: list[str] = []
    accounts._store.connection().set_trace_callback(seen.append)

    drive(accounts.transact("Account-7", [Operation.replace("SS-HEAD", {"Version": 8}, ANY_ETAG)]))

    assert not any("dictionaries" in statement for statement in seen)


def test_a_row_whose_dictionary_goes_while_it_is_read_is_read_again(accounts, path, monkeypatch):
    other: Any = drive(connect(f"sqlite:///{path}").table("accounts"))
    write(accounts, MANY)
    find = other.dictionaries

    def scrub_first(connection, **again):
        monkeypatch.undo()
        delete_and_scrub(accounts)
        write(accounts, [7], "night-2")
        return find(connection, **again)

    monkeypatch.setattr(other, "dictionaries", scrub_first)

    assert read(other, 7) == properties(7, "night-2")


def test_a_large_row_is_left_as_it_is_and_read_back(accounts):
    write(accounts, MANY)
    text = {f"Text{number}": "\u4e00" * 32_000 for number in range(12)}
    drive(accounts.transact("Account-7", [Operation.replace("SS-HEAD", text, ANY_ETAG)]))

    assert read(accounts, 7) == text


def test_what_most_samples_share_is_kept_and_nothing_else():
    samples = [
        b"begin " + bytes([65 + n % 26]) * 9 + b" middle " + str(n).encode() * 3 + b" end" for n in range(64)
    ]

    shared = shared_bytes(samples)

    assert b"begin " in shared
    assert b" middle " in shared
    assert b"AAAAAA" not in shared

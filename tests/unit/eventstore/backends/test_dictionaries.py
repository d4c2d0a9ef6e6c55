"""Dictionaries of a table in SQLite: rows of a kind share most of their bytes, and nothing of one row is shared."""

import random
import sqlite3
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from eventstore import ANY_ETAG, DamagedRowError, Operation, connect, drive
from eventstore.backends import rows as row_format
from eventstore.backends.rows import shared_bytes

STATE = b'{"owner_of_the_account":"%s","currency_of_the_account":"EUR","cents":%d}'


def properties(number: int, batch: str = "night-1") -> dict[str, object]:
    """Return the properties of a header as a batch writes them."""
    owner = f"owner {random.Random(number).randbytes(8).hex()}"
    return {"Version": number, "State": STATE % (owner.encode(), number), "WrittenByBatch": batch}


def write(table: Any, numbers: Sequence[int], batch: str = "night-1", kind: str = "Account") -> None:
    """Write the headers of some streams with one commit."""
    change = Operation.insert_or_replace if len(numbers) == 1 else Operation.insert
    drive(
        table.transact_each([(f"{kind}-{n}", [change("SS-HEAD", properties(n, batch))]) for n in numbers])  # type: ignore[arg-type]
    )


def read(table: Any, number: int, kind: str = "Account") -> object:
    row = drive(table.get(f"{kind}-{number}", "SS-HEAD"))
    return None if row is None else row.properties


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store.db"


@pytest.fixture
def table(path):
    return drive(connect(f"sqlite:///{path}").table("accounts"))


def rows(path, sql="SELECT small FROM accounts_rows"):
    with sqlite3.connect(path) as connection:
        return connection.execute(sql).fetchall()


def numbers(path):
    """Return the numbers of the dictionaries that are stored."""
    with suppress(sqlite3.OperationalError):
        return [number for (number,) in rows(path, "SELECT number FROM accounts_dictionaries")]
    return []


MANY = range(100)


def test_rows_of_a_kind_take_less_than_half(table, path):
    write(table, MANY)

    assert sum(len(small) for (small,) in rows(path)) < sum(len(STATE) + 60 for _ in MANY) / 2
    assert [read(table, number) for number in MANY] == [properties(number) for number in MANY]
    assert drive(table.query_each(["Account-3"], "", "~")) == [drive(table.query("Account-3", "", "~")).rows]


def test_a_dictionary_holds_nothing_of_one_row(table, path):
    write(table, MANY)

    ((shared,),) = rows(path, "SELECT shared FROM accounts_dictionaries")

    assert b"owner_of_the_account" in shared
    owners = [STATE.split(b"%s")[0] + properties(n)["State"].split(b'"')[3] for n in MANY]  # type: ignore[attr-defined]
    assert not any(owner[-10:] in shared for owner in owners)


def test_a_dictionary_is_made_for_each_kind_and_again_when_rows_are_unlike_its_samples(table, path):
    write(table, MANY)
    write(table, MANY, kind="Order")
    write(table, range(100, 200))
    assert numbers(path) == [1, 2]

    write(table, range(200, 300), batch="another batch with a long name of its own: " + "x-7" * 20)

    assert numbers(path) == [1, 2, 3]
    assert [read(table, number) for number in (7, 107)] == [properties(7), properties(107)]
    assert read(table, 7, "Order") == properties(7)


def test_the_number_of_dictionaries_is_bounded(table, path, monkeypatch):
    monkeypatch.setattr(row_format, "MOST_DICTIONARIES", 1)
    write(table, MANY)
    write(table, MANY, kind="Order")

    assert numbers(path) == [1]
    assert read(table, 7, "Order") == properties(7)


def test_single_rows_are_written_and_changed_by_a_dictionary_that_is_there(table, path):
    write(table, MANY)
    write(table, [7], batch="night-2")
    drive(table.transact("Account-8", [Operation.merge("SS-HEAD", {"More": 1}, ANY_ETAG)]))

    assert all(small[:1] == row_format.MARK for (small,) in rows(path))
    assert read(table, 7) == properties(7, "night-2")
    assert read(table, 8) == {**properties(8), "More": 1}


@pytest.mark.parametrize("reads_before", [False, True])
def test_another_process_reads_and_writes_what_one_has_compressed(table, path, reads_before):
    other = drive(connect(f"sqlite:///{path}").table("accounts"))
    if reads_before:  # it knows of no dictionary then
        assert read(other, 7) is None
    write(table, MANY)

    assert read(other, 7) == properties(7)
    write(other, range(100, 200))
    assert numbers(path) == [1]
    assert read(table, 107) == properties(107)


def test_writers_at_once_agree_on_one_dictionary(path):
    def work(begin: int) -> None:
        table = drive(connect(f"sqlite:///{path}").table("accounts"))
        for start in range(begin, begin + 400, 100):
            write(table, range(start, start + 100))

    threads = [threading.Thread(target=work, args=(begin,)) for begin in (0, 1000, 2000)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    table = drive(connect(f"sqlite:///{path}").table("accounts"))
    assert numbers(path) == [1]
    assert all(
        read(table, n) == properties(n) for begin in (0, 1000, 2000) for n in range(begin, begin + 400)
    )


def test_a_dictionary_of_a_commit_that_failed_is_forgotten(table, path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(table.sql, "insert_row_at", "INSERT INTO nowhere VALUES (1)")
        with pytest.raises(Exception, match="nowhere"):
            write(table, MANY)
    assert numbers(path) == []

    write(table, MANY)

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
def test_a_damaged_row_is_named(path, table, damage):
    write(table, MANY)
    with sqlite3.connect(path) as connection:
        connection.execute(damage)
    table = drive(connect(f"sqlite:///{path}").table("accounts"))

    with pytest.raises(DamagedRowError) as raised:
        read(table, 7)

    assert raised.value.partition_key == "Account-7"
    assert drive(table.query_each(["Account-7"], "", "~")) == [None]


def test_a_dictionary_that_no_row_needs_goes_when_the_file_is_scrubbed(table, path):
    write(table, MANY)
    write(table, MANY, kind="Order")
    for number in MANY:
        drive(table.transact(f"Account-{number}", [Operation.delete("SS-HEAD")]))

    drive(table.scrub())

    assert numbers(path) == [2]
    assert read(table, 7, "Order") == properties(7)


def test_a_large_row_is_left_as_it_is_and_read_back(table):
    write(table, MANY)
    text = {f"Text{number}": "\u4e00" * 32_000 for number in range(12)}
    drive(table.transact("Account-7", [Operation.replace("SS-HEAD", text, ANY_ETAG)]))

    assert read(table, 7) == text


def test_what_most_samples_share_is_kept_and_nothing_else():
    samples = [
        b"begin " + bytes([65 + n % 26]) * 9 + b" middle " + str(n).encode() * 3 + b" end" for n in range(64)
    ]

    shared = shared_bytes(samples)

    assert b"begin " in shared
    assert b" middle " in shared
    assert b"AAAAAA" not in shared

"""Commands that look at many streams: one that cannot be read is told with its place, all others are done."""

import sqlite3
from contextlib import closing

import pytest

from eventstore import Operation
from runtime.ledger.ledger import Ledger
from tests.support.logs import GAME, OTHER_GAME
from tests.unit.cli.stores import NOW, TABLE, on_store

ON_STORE = ["--store", "sqlite:///store.db", "--table", TABLE]


KEY = f"ShootingRange-{GAME}"


PLACE = (f"stream {KEY}", "row SS-HEAD", f"table {TABLE}", "store.db")


def spoil(key, row_key):
    """Give a row bytes that no backend writes."""
    with closing(sqlite3.connect("store.db")) as connection, connection:
        this = f"id = (SELECT id FROM {TABLE}_keys WHERE partition = ? AND row = ?)"
        connection.execute(f"UPDATE {TABLE}_rows SET small = x'07' WHERE {this}", (key, row_key))


@pytest.fixture(params=["properties", "bytes"])
def damaged(request, store):
    """Damage the header of one of three streams: it lacks its schema version, and says that it has letters."""
    if request.param == "bytes":
        spoil(KEY, "SS-HEAD")
        return

    async def damage(table):
        row = await table.get(KEY, "SS-HEAD")
        kept = {name: value for name, value in row.properties.items() if name != "StateSchema"}
        await table.transact(KEY, [Operation.replace("SS-HEAD", {**kept, "Letters": "many"}, row.etag)])

    on_store("sqlite:///store.db", damage)


def is_told(said) -> bool:
    return said.code == 1 and "stream_damaged" in said.err and all(part in said.err for part in PLACE)


def test_the_others_are_listed(consistent, damaged):
    said = consistent("show", *ON_STORE, "--json")

    assert [each["business_id"] for each in said.document["streams"]] == [GAME, OTHER_GAME]
    assert is_told(said)


@pytest.mark.parametrize("quick", [(), ("--quick",)])
def test_the_others_are_counted(consistent, damaged, quick):
    said = consistent("show", "--stats", *ON_STORE, "--json", *quick)

    assert {each["handler"]: each["objects"] for each in said.document["handlers"]} == {
        "LeaderBoard": 1,
        "ShootingRange": 1,
    }
    assert is_told(said)


@pytest.mark.parametrize(
    "command", [("letters",), ("show", "--stats"), ("letters", "discard", "--all", "--yes")]
)
def test_the_others_are_looked_at(consistent, damaged, command):
    assert is_told(consistent(*command, *ON_STORE))


def test_a_check_names_the_row(consistent, damaged):
    said = consistent("check", *ON_STORE, "--json")

    assert said.code == 1
    assert {(each["stream"], each["row"]) for each in said.document["faults"]} == {(KEY, "SS-HEAD")}


def test_a_check_of_a_sound_table_says_what_it_read(consistent, store):
    said = consistent("check", *ON_STORE)

    assert said.code == 0
    assert "3 streams" in said.out


@pytest.mark.parametrize(
    ("row_key", "command"),
    [
        ("b", ("batches",)),
        ("b", ("sql", "select * from batches")),
        ("b", ("export", "--to", "exported")),
        ("SS-HEAD", ("show", "ShootingRange", GAME)),
        ("SS-HEAD", ("forget", "ShootingRange", GAME, "--yes")),
        ("SS-HEAD", ("sql", "select * from state")),
        ("SS-HEAD", ("sql", "select * from versions")),
    ],
)
def test_a_row_that_cannot_be_decoded_is_told_by_one_sentence(consistent, store, command, row_key):
    async def begin(table):
        await Ledger(table, NOW).begin("b", "input", "/out")

    on_store(store, begin)
    spoil("_batches" if row_key == "b" else KEY, row_key)

    said = consistent(*command, *ON_STORE)

    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines()[-1].startswith("Error: The row cannot be read: ")
    assert f"row {row_key}, stream " in said.err

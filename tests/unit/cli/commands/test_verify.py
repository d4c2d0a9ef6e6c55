"""Commands that read many streams name each one that cannot be read with its place, and process all others."""

import sqlite3
from contextlib import closing

import pytest

from eventstore import Operation
from runtime.algorithms.state_based.replay import Verdict
from runtime.cli.commands.verify import _parts
from runtime.ledger.ledger import Ledger
from runtime.spark.verification import VerdictCount
from tests.support.logs import GAME, OTHER_GAME
from tests.unit.cli.stores import NOW, ON_STORE, TABLE, on_store

KEY = f"ShootingRange-{GAME}"
PLACE = (f"stream {KEY}", "row SS-HEAD", f"table {TABLE}", "store.db")


def spoil(key, row_key):
    """Give a row bytes that no backend writes."""
    with closing(sqlite3.connect("store.db")) as connection, connection:
        this = f"id = (SELECT id FROM {TABLE}_keys WHERE partition = ? AND row = ?)"
        connection.execute(f"UPDATE {TABLE}_rows SET small = x'07' WHERE {this}", (key, row_key))


@pytest.fixture(params=["properties", "bytes"])
def damaged(request, store):
    """Damage the header of one of three streams: its properties or its bytes."""
    if request.param == "bytes":
        spoil(KEY, "SS-HEAD")
        return

    async def damage(table):
        row = await table.get(KEY, "SS-HEAD")
        kept = {name: value for name, value in row.properties.items() if name != "StateSchema"}
        await table.transact(KEY, [Operation.replace("SS-HEAD", {**kept, "Letters": "many"}, row.etag)])

    on_store("sqlite:///store.db", damage)


@pytest.mark.parametrize(
    "command",
    [
        ("show",),
        ("show", "--stats"),
        ("show", "--stats", "--quick"),
        ("letters",),
        ("letters", "discard", "--all", "--yes"),
    ],
    ids=" ".join,
)
def test_a_corrupt_stream_is_named_and_all_others_are_processed(consistent, damaged, command):
    said = consistent(*command, *ON_STORE, "--json")

    assert said.code == 1
    assert "stream_damaged" in said.err
    assert all(part in said.err for part in PLACE)
    if command == ("show",):
        assert [each["business_id"] for each in said.document["streams"]] == [GAME, OTHER_GAME]
    elif command[0] == "show":
        found = {each["handler"]: each["objects"] for each in said.document["handlers"]}
        assert found == {"LeaderBoard": 1, "ShootingRange": 1}


def test_a_check_names_the_corrupt_row(consistent, damaged):
    said = consistent("check", *ON_STORE, "--json")

    assert said.code == 1
    assert {(each["stream"], each["row"]) for each in said.document["faults"]} == {(KEY, "SS-HEAD")}
    shown = consistent("check", *ON_STORE)
    assert "Corrupt" in shown.out
    assert "Restore from an export" in shown.err


def test_a_check_of_a_sound_table_says_what_it_read(consistent, store):
    said = consistent("check", *ON_STORE)

    assert said.code == 0
    assert "of 3 streams and others. Nothing is corrupt." in said.out


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
def test_a_command_that_needs_an_unreadable_row_fails_with_one_sentence(consistent, store, command, row_key):
    on_store(store, lambda table: Ledger(table, NOW).begin("b", "input", "/out"))
    spoil("_batches" if row_key == "b" else KEY, row_key)

    said = consistent(*command, *ON_STORE)

    assert (said.code, said.out) == (1, "")
    assert said.err.splitlines()[-1].startswith("Error: The row cannot be read: ")
    assert f"row {row_key}, stream " in said.err


@pytest.mark.parametrize(
    ("verdict", "deliveries", "told"),
    [
        (Verdict.STREAM_LOST, 0, "0 of 10 deliveries differ; 10 match."),
        (Verdict.UNKNOWN, 0, "No stored version differs: 10 of 10 deliveries match."),
    ],
)
def test_a_lost_stream_without_a_delivery_is_a_difference(verdict, deliveries, told):
    counts = [
        VerdictCount("Account", "Paid", 1, Verdict.MATCH, 10, 2, "m1", None),
        VerdictCount("Account", None, None, verdict, deliveries, 3, None, None),
    ]

    assert list(_parts(counts, []))[-1] == told

"""Commands that look at many streams: one that cannot be read is told with its place, all others are done."""

import pytest

from eventstore import Operation
from tests.support.logs import GAME, OTHER_GAME
from tests.unit.cli.stores import TABLE, on_store

ON_STORE = ["--store", "sqlite:///store.db", "--table", TABLE]


KEY = f"ShootingRange-{GAME}"


PLACE = (f"stream {KEY}", "row SS-HEAD", f"table {TABLE}", "store.db")


@pytest.fixture
def damaged(store):
    """Damage the header of one of three streams: it lacks its schema version, and says that it has letters."""

    async def damage(table):
        row = await table.get(KEY, "SS-HEAD")
        kept = {name: value for name, value in row.properties.items() if name != "StateSchema"}
        await table.transact(KEY, [Operation.replace("SS-HEAD", {**kept, "Letters": "many"}, row.etag)])

    on_store("sqlite:///store.db", damage)


def is_told(said) -> bool:
    return said.code == 1 and "stream_damaged" in said.err and all(part in said.err for part in PLACE)


def test_the_others_are_listed(consistent, damaged):
    said = consistent("streams", *ON_STORE, "--json")

    assert [each["business_id"] for each in said.document["streams"]] == [GAME, OTHER_GAME]
    assert is_told(said)


@pytest.mark.parametrize("quick", [(), ("--quick",)])
def test_the_others_are_counted(consistent, damaged, quick):
    said = consistent("stats", *ON_STORE, "--json", *quick)

    assert {each["handler"]: each["objects"] for each in said.document["handlers"]} == {
        "LeaderBoard": 1,
        "ShootingRange": 1,
    }
    assert is_told(said)


@pytest.mark.parametrize("command", [("letters",), ("window",), ("letters", "discard", "--all", "--yes")])
def test_the_others_are_looked_at(consistent, damaged, command):
    assert is_told(consistent(*command, *ON_STORE))


def test_the_stream_itself_is_refused(consistent, damaged):
    said = consistent("show", *ON_STORE, "ShootingRange", GAME)

    assert said.code == 1
    assert all(part in said.err for part in PLACE)


def test_a_sound_table_is_no_failure(consistent, store):
    assert consistent("streams", *ON_STORE).code == 0


def test_a_check_names_the_row(consistent, damaged):
    said = consistent("check", *ON_STORE, "--json")

    assert said.code == 1
    assert {(each["stream"], each["row"]) for each in said.document["faults"]} == {(KEY, "SS-HEAD")}


def test_a_check_of_a_sound_table_says_what_it_read(consistent, store):
    said = consistent("check", *ON_STORE)

    assert said.code == 0
    assert "3 streams" in said.out

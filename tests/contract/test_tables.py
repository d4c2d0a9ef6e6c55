from __future__ import annotations

import asyncio
import gc

import pytest

from eventstore import Operation, StoreUrlError, TableNameError, TableNotFoundError, connect


def test_opening_a_table_twice_opens_the_same_table(run, store):
    first = run(store.table("games"))
    run(first.transact("p", [Operation.insert_or_replace("r", {"V": 1})]))

    second = run(store.table("games"))

    assert run(second.get("p", "r")).properties == {"V": 1}


def test_a_table_can_be_opened_without_making_it(run, store):
    with pytest.raises(TableNotFoundError, match=r"^There is no table games7 in "):
        run(store.table("games7", make=False))
    with pytest.raises(TableNotFoundError):
        run(store.table("games7", make=False))

    made = run(store.table("games7"))
    run(made.transact("p", [Operation.insert_or_replace("r", {"V": 1})]))

    assert run(run(store.table("games7", make=False)).get("p", "r")).properties == {"V": 1}


def test_upper_and_lower_case_name_one_table(run, store):
    first = run(store.table("Scores"))
    second = run(store.table("sCORES"))
    run(first.transact("p", [Operation.insert_or_replace("r", {"V": 1})]))

    assert run(second.get("p", "r")).properties == {"V": 1}


@pytest.mark.parametrize(
    "name", ["", "ab", "x" * 64, "9games", "ga mes", "ga-mes", "ga_mes", "gämes", "tables", "a;b"]
)
def test_a_name_that_no_table_can_have_is_refused(run, store, name):
    with pytest.raises(TableNameError, match="table name") as raised:
        run(store.table(name))
    assert not isinstance(raised.value, StoreUrlError)


def test_a_store_can_be_used_in_an_async_with(run, store):
    async def use():
        async with store as opened:
            table = await opened.table("games")
            await table.barrier()
            return opened is store

    assert run(use())


def test_a_closed_store_opens_again(run, store):
    run(store.table("games"))
    run(store.close())

    table = run(store.table("games"))

    assert run(table.get("nowhere", "nothing")) is None


def test_the_url_of_a_store_shows_no_secret(store, store_url):
    assert "AccountKey" not in store.url
    assert store.url.split("://")[-1].split("/")[0] in store_url
    assert store.scope == {"memory": "process", "sqlite": "machine"}.get(store_url.split(":")[0], "network")


def test_a_table_has_the_scope_of_its_store(run, store):
    assert run(store.table("games")).scope == store.scope


async def use(store, number):
    table = await store.table("loops")
    await table.transact(f"p{number}", [Operation.insert_or_replace("r", {"N": number})])
    return (await table.get(f"p{number}", "r")).properties["N"]


def test_one_event_loop_after_the_other_uses_a_store_and_none_leaves_a_connection_open(store_url, caplog):
    store = connect(store_url)
    assert [asyncio.run(use(store, number)) for number in range(3)] == [0, 1, 2]

    del store
    gc.collect()  # a warning of what was left open fails the test
    assert "Unclosed" not in caplog.text

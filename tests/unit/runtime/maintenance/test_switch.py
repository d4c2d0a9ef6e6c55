"""A switch decides by one conditional write; a fork copies one object."""

import pytest

from eventstore import ConcurrencyConflictError, Operation, Store, Table, connect, drive
from runtime import Processor
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.ledger.ledger import Ledger
from runtime.ledger.settings import LEDGER, TableSettings, open_current
from runtime.maintenance import switch as module
from runtime.maintenance.switch import fork, switch
from runtime.versions.head import Tombstone
from runtime.versions.stream import summaries
from tests.support.reprocessing import Paid, World, bank, histories, reprocess


@pytest.fixture
def store() -> Store:
    return connect("memory:")


@pytest.fixture
def world(store: Store) -> World:
    """Payments, reprocessed with a fee into the table `second`."""
    world = World(drive(store.table("first")))
    world.run(
        [
            ("m1", Paid(account="a0", amount=60)),
            ("m2", Paid(account="a1", amount=20)),
            ("m3", Paid(account="a0", amount=10)),
        ],
        bank("same"),
    )
    second = drive(store.table("second"))
    drive(second.transact(LEDGER, [TableSettings(follows="first").operation()]))
    reprocess(world.table, second, world.log, bank("fee"), bank("same"))
    return world


def processed(table: Table, world: World) -> None:
    async def publish(_: object) -> None: ...

    drive(Processor(bank("fee"), table, publish).process(world.log[0]))


def test_a_switched_table_is_used_by_name_and_refused_as_it_was(store: Store, world: World) -> None:
    second = drive(store.table("second"))
    with pytest.raises(UsageError, match="reprocesses first"):
        processed(second, world)

    copied = drive(switch(store, "first", "second"))

    name, current = drive(open_current(store, "first"))
    assert (name, copied) == ("second", len(histories(world.table)) - 1)
    assert histories(current).keys() == histories(world.table).keys()
    with pytest.raises(UsageError, match="switched to second"):
        processed(world.table, world)
    processed(current, world)


def test_it_is_undone_by_switching_back_until_a_batch(store: Store, world: World) -> None:
    drive(switch(store, "first", "second"))
    drive(switch(store, "second", "first"))
    assert drive(open_current(store, "first"))[0] == "first"
    drive(switch(store, "first", "second"))
    _, second = drive(open_current(store, "first"))
    record = drive(Ledger(second, system_clock).begin("b", "a log", "out"))
    with pytest.raises(UsageError, match="is open"):
        drive(switch(store, "second", "first"))
    drive(Ledger(second, system_clock).publish(record))
    with pytest.raises(UsageError, match="cannot be switched back"):
        drive(switch(store, "second", "first"))


def test_it_is_refused_for_what_came_in_and_for_what_was_forgotten_since(store: Store, world: World) -> None:
    world.run([("m4", Paid(account="a0", amount=1))], bank("same"))
    with pytest.raises(UsageError, match="not reprocessed"):
        drive(switch(store, "first", "second"))
    reprocess(world.table, drive(store.table("second")), world.log[-1:], bank("fee"), bank("same"))

    async def forget() -> None:
        async for each in summaries(world.table, "Account", "a0"):
            head = each.head._replace(tombstone=Tombstone(1))
            await world.table.transact(each.key, [Operation.merge("SS-HEAD", dict(head.properties()))])

    drive(forget())
    with pytest.raises(UsageError, match="forgotten in first alone"):
        drive(switch(store, "first", "second"))


def test_a_batch_that_begins_during_it_refuses_it(store: Store, world: World, monkeypatch) -> None:
    open_batches = Ledger.open_batches
    begun: list[object] = []

    async def looked(self: Ledger):
        found = await open_batches(self)
        if not begun:
            begun.append(await Ledger(world.table, system_clock).begin("night", "a log", "out"))
        return found

    monkeypatch.setattr(Ledger, "open_batches", looked)
    with pytest.raises(ConcurrencyConflictError):
        drive(switch(store, "first", "second"))

    assert drive(open_current(store, "first"))[0] == "first"


def test_a_switch_back_that_was_interrupted_is_called_again(store: Store, world: World, monkeypatch) -> None:
    drive(switch(store, "first", "second"))
    written = []
    store_settings = module._store

    async def once(*given):
        written.append(given)
        if len(written) == 2:
            raise KeyboardInterrupt
        await store_settings(*given)

    monkeypatch.setattr(module, "_store", once)
    with pytest.raises(KeyboardInterrupt):
        drive(switch(store, "second", "first"))
    monkeypatch.undo()
    drive(switch(store, "second", "first"))

    name, current = drive(open_current(store, "first"))
    assert name == "first"
    processed(current, world)


def test_tables_are_switched_in_the_order_in_which_they_follow(store: Store, world: World) -> None:
    third = drive(store.table("third"))
    drive(third.transact(LEDGER, [TableSettings(follows="second").operation()]))
    reprocess(drive(store.table("second")), third, world.log, bank("fee"), bank("fee"))

    with pytest.raises(UsageError, match="switch first to second first"):
        drive(switch(store, "second", "third"))


@pytest.mark.usefixtures("no_tail")
def test_a_fork_has_the_versions_of_one_object(store: Store, world: World) -> None:
    into = drive(store.table("trial"))
    last = drive(fork(world.table, into, "Account", "a0", 1))
    (versions,) = histories(into).values()
    assert versions == histories(world.table)["Account", "a0"][:1]
    assert last.number == 1
    processed(into, world)
    with pytest.raises(UsageError, match="no version 9"):
        drive(fork(world.table, drive(store.table("other")), "Account", "a0", 9))
    with pytest.raises(UsageError, match="new table"):
        drive(fork(world.table, into, "Account", "a0"))

"""A switch decides by one conditional write; a fork copies one object."""

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from eventstore import ConcurrencyConflictError, Operation, Store, Table, TableNotFoundError, connect, drive
from eventstore.backends.memory import MemoryTable
from handlers import App
from runtime import Envelope, Processor
from runtime.clock import system_clock
from runtime.dead_letters import Selection, discard, find_letters
from runtime.errors import UsageError
from runtime.ledger.ledger import BatchRecord, Ledger
from runtime.ledger.settings import LEDGER, TableOwner, TableSettings, open_current
from runtime.maintenance import switch as module
from runtime.maintenance.forget import Tables, forget
from runtime.maintenance.policies import Policies, Scope
from runtime.maintenance.switch import fork, switch
from runtime.messages.outcome import Reason
from runtime.publishing.publisher import Record, Result, TargetOptions
from runtime.publishing.records import Publications, key_of
from runtime.publishing.runner import find_unpublished
from runtime.publishing.targets.choice import open_target
from runtime.retries import RetryPolicy
from runtime.versions.head import Tombstone
from runtime.versions.stream import summaries
from tests.support.reprocessing import Book, Paid, World, bank, histories, reprocess


@pytest.fixture
def store() -> Store:
    return connect("memory:")


@pytest.fixture
def world(store: Store) -> World:
    """Payments, reprocessed with a fee into the table `second`. Those of 13 are dead letters."""
    world = World(drive(store.table("first")))
    payments = [("a0", 60), ("a1", 20), ("a0", 10), ("a0", 13), ("a1", 13)]
    world.run(
        [(f"m{at}", Paid(account=who, amount=amount)) for at, (who, amount) in enumerate(payments, 1)],
        bank("same"),
    )
    follow(store, "first", "second", world)
    return world


def follow(store: Store, name: str, into: str, world: World, app: App | None = None) -> None:
    app, second = app or bank("fee"), drive(store.table(into))
    drive(second.transact(LEDGER, [TableSettings(TableOwner.of(app), follows=name).operation()]))
    reprocess(drive(store.table(name)), second, world.log, app, bank("same"))


def processed(table: Table, world: World, message: Envelope | None = None) -> None:
    processed_by(bank("fee"), table, message or world.log[0])


def processed_by(app: App, table: Table, message: Envelope) -> None:
    async def publish(_: object) -> None: ...

    drive(Processor(app, table, publish).process(message))


def test_a_switched_table_is_used_by_name_and_refused_as_it_was(store: Store, world: World) -> None:
    second = drive(store.table("second"))
    with pytest.raises(UsageError, match="reprocesses first"):
        processed(second, world)

    copied = drive(switch(store, "first", "second"))

    name, current = drive(open_current(store, "first"))
    assert (name, copied) == ("second", len(histories(world.table)) - 1)
    assert drive(switch(store, "first", "second")) is None
    with pytest.raises(UsageError, match="another table"):
        drive(switch(store, "second", "Second"))
    assert histories(current).keys() == histories(world.table).keys()
    with pytest.raises(UsageError, match="switched to second"):
        processed(world.table, world)
    processed(current, world)


@pytest.mark.parametrize("make", [True, False])
def test_a_table_that_was_switched_to_and_is_gone_is_not_made(store: Store, world: World, make: bool) -> None:
    switched = replace(drive(TableSettings.of(world.table)), switched_to="gone")
    drive(world.table.transact(LEDGER, [switched.operation()]))
    with pytest.raises(TableNotFoundError, match="gone"):
        drive(open_current(store, "first", make=make))


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
    with pytest.raises(UsageError, match="would lose that"):
        drive(switch(store, "second", "first"))


def handle(table: Table, world: World) -> None:
    processed(table, world, Envelope("m9", "Paid", '{"account": "a7", "amount": 1}'))


def forget_one(table: Table, _: World) -> None:
    tables = Tables(table, table, table)
    drive(forget(tables, "Account", "a1", 1, restart=False, retries=RetryPolicy()))


def hold(table: Table, _: World) -> None:
    drive(Policies(table, system_clock).change(Scope("Account", "a1"), hold=True))


def discard_letters(table: Table, _: World) -> None:
    drive(discard(table, Selection(), RetryPolicy()))


@pytest.mark.parametrize("change", [handle, forget_one, hold, discard_letters])
def test_it_is_not_undone_where_that_would_lose_a_change(
    store: Store, world: World, change: Callable[[Table, World], None]
) -> None:
    drive(switch(store, "first", "second"))
    processed(drive(store.table("second")), world)  # a redelivery changes nothing
    drive(switch(store, "second", "first"))
    drive(switch(store, "first", "second"))

    change(drive(store.table("second")), world)

    with pytest.raises(UsageError, match="would lose that"):
        drive(switch(store, "first", "first"))


def test_dead_letters_go_along_also_those_of_objects_that_differ(store: Store, world: World) -> None:
    async def letters(table: Table) -> list[tuple[str | None, str]]:
        return [(each.business_id, each.letter.message_id) async for each in find_letters(table, Selection())]

    drive(switch(store, "first", "second"))

    second = drive(store.table("second"))
    assert ("Account", "a0") in histories(second)
    assert drive(letters(second)) == drive(letters(world.table)) == [("a0", "m4"), ("a1", "m5")]


def test_batches_and_how_far_they_are_published_go_along(store: Store, world: World, tmp_path: Path) -> None:
    target = open_target(f"sqlite:///{tmp_path}/out.db", TargetOptions())

    async def batch(table: Table, name: str, *, is_published: bool) -> None:
        ledger = Ledger(table, system_clock)
        record = await ledger.begin(name, "a log", str(tmp_path))
        record = await ledger.publish(await ledger.commit_round(record, 0, {"outputs": 1}, 0))
        if is_published:
            await Publications(table, system_clock).begin(key_of(record, target, ()), target.name, 1, 1)

    async def unpublished(table: Table) -> list[str]:
        return [each.batch_id for each, _ in await find_unpublished(table, target, (), None)]

    drive(batch(world.table, "b1", is_published=False))
    drive(batch(world.table, "b2", is_published=True))
    drive(switch(store, "first", "second"))

    second = drive(store.table("second"))
    assert drive(unpublished(second)) == drive(unpublished(world.table)) == ["b1", "b2"]
    assert drive(Ledger(second, system_clock).begin("b1", "a log", str(tmp_path))).is_finished
    assert [each.batch_id for each in drive(Ledger(second, system_clock).batches(9))] == ["b2", "b1"]
    record = drive(Ledger(second, system_clock).get("b1"))
    drive(Publications(second, system_clock).begin(key_of(record, target, ()), target.name, 3, 3))
    drive(switch(store, "second", "first"))
    assert drive(Publications(world.table, system_clock).find(key_of(record, target, ()), 3)) is not None


def test_objects_of_a_handler_that_the_new_app_lacks_are_copied(store: Store, world: World) -> None:
    follow(store, "first", "third", world, App(bank("fee").handlers["Account"].handler_type, name="bank"))

    drive(switch(store, "first", "third"))

    before, after = histories(world.table), histories(drive(store.table("third")))
    assert after.keys() == before.keys()
    assert {key: after[key] for key in after if key[0] == Book.__name__} == {
        key: before[key] for key in before if key[0] == Book.__name__
    }


@pytest.mark.usefixtures("no_tail")
@pytest.mark.parametrize("killed_at", [1, 2, 60, 101, 118, 140])
def test_a_switch_that_was_killed_within_a_large_object_is_called_again(
    store: Store, world: World, monkeypatch: pytest.MonkeyPatch, killed_at: int
) -> None:
    world.run([(f"n{at}", Paid(account="a5", amount=2)) for at in range(120)], bank("same"))
    second, transact, calls = drive(store.table("second")), MemoryTable.transact, 0
    reprocess(world.table, second, world.log, bank("fee"), bank("same"))

    async def killed(self: MemoryTable, *given):
        nonlocal calls
        calls += 1
        if calls == killed_at:
            raise KeyboardInterrupt
        return await transact(self, *given)

    monkeypatch.setattr(MemoryTable, "transact", killed)
    with pytest.raises(KeyboardInterrupt):
        drive(switch(store, "first", "second"))
    monkeypatch.undo()
    # Messages that come in meanwhile make the object differ.
    world.run([("late", Paid(account="a5", amount=60))], bank("same"))
    reprocess(world.table, second, world.log, bank("fee"), bank("same"))
    drive(switch(store, "first", "second"))

    before, after = histories(world.table), histories(second)
    assert after.keys() == before.keys()
    assert after["Account", "a5"][:120] == before["Account", "a5"][:120]
    assert len(after["Account", "a5"]) == 121


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


def interrupted_before_its_last_write(store: Store, name: str, to: str) -> None:
    written, store_settings = [], module._store

    async def once(*given: Any) -> None:
        written.append(given)
        if len(written) == 2:
            raise KeyboardInterrupt
        await store_settings(*given)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_store", once)
        with pytest.raises(KeyboardInterrupt):
            drive(switch(store, name, to))


def test_a_switch_back_that_was_interrupted_is_called_again(store: Store, world: World) -> None:
    drive(switch(store, "first", "second"))
    interrupted_before_its_last_write(store, "second", "first")
    drive(switch(store, "second", "first"))

    name, current = drive(open_current(store, "first"))
    assert name == "first"
    processed(current, world)


def test_tables_are_switched_in_the_order_in_which_they_follow(store: Store, world: World) -> None:
    follow(store, "second", "third", world)
    with pytest.raises(UsageError, match="switch first to second first"):
        drive(switch(store, "second", "third"))

    drive(switch(store, "first", "second"))
    second, third = (drive(store.table(name)) for name in ("second", "third"))
    reprocess(second, third, world.log, bank("fee"))
    drive(switch(store, "FIRST", "third"))

    assert drive(open_current(store, "first"))[0] == drive(open_current(store, "second"))[0] == "third"
    with pytest.raises(UsageError, match="does not reprocess third"):
        drive(switch(store, "first", "first"))
    drive(switch(store, "first", "second"))
    drive(switch(store, "first", "first"))
    assert drive(open_current(store, "first"))[0] == "first"


@pytest.mark.usefixtures("no_tail")
def test_a_fork_has_the_versions_of_one_object(store: Store, world: World) -> None:
    drive(switch(store, "first", "second"))
    name, into, last = drive(fork(store, "first", "Account", "a0", at=1))
    assert name.startswith("fork")
    (versions,) = histories(into).values()
    assert versions == histories(drive(store.table("second")))["Account", "a0"][:1]
    assert last.number == 1
    processed(into, world)
    with pytest.raises(UsageError, match="no version 9"):
        drive(fork(store, "first", "Account", "a0", at=9, into="other"))
    with pytest.raises(UsageError, match="new table"):
        drive(fork(store, "first", "Account", "a0", into=name))


def test_the_second_message_under_an_id_stays_a_dead_letter(store: Store, world: World) -> None:
    first = world.table
    for who, message_id in (("a0", "m1"), ("a1", "m2")):  # of an object that differs, and of an equal one
        processed_by(
            bank("same"), first, Envelope(message_id, "Paid", f'{{"account": "{who}", "amount": 7}}')
        )
    follow(store, "first", "third", world)

    drive(switch(store, "first", "third"))

    async def reused(table: Table) -> list[str]:
        return [
            each.letter.message_id async for each in find_letters(table, Selection(reason=Reason.ID_REUSED))
        ]

    assert drive(reused(drive(store.table("third")))) == drive(reused(first)) == ["m1", "m2"]


def test_a_switch_that_was_killed_before_its_last_write_keeps_the_handlers_of_both(store, world) -> None:
    app = bank("fee")
    drive(TableSettings.claim(world.table, app))
    follow(store, "first", "third", world, App(app.handlers["Account"].handler_type))
    interrupted_before_its_last_write(store, "first", "third")
    drive(switch(store, "first", "third"))

    settings = drive(TableSettings.of(drive(store.table("third"))))
    assert settings.follows is None
    assert settings.owner is not None
    assert settings.owner.handlers == TableOwner.of(app).handlers


def ended_batch(table: Table, counts: dict[str, int] | None = None) -> BatchRecord:
    ledger = Ledger(table, system_clock)
    record = drive(ledger.begin("daily", "a log", "out"))
    return drive(ledger.publish(drive(ledger.commit_round(record, 0, counts or {}, 0))))


def test_a_batch_with_the_id_of_a_reprocessing_refuses_it(store: Store, world: World) -> None:
    for name in ("first", "second"):
        ended_batch(drive(store.table(name)))

    with pytest.raises(UsageError, match="Batch daily of first"):
        drive(switch(store, "first", "second"))


def test_a_fork_does_not_use_the_number_of_a_batch_again(store: Store, world: World) -> None:
    record = ended_batch(world.table)

    forked = drive(fork(store, "first", "Account", "a0"))

    other = drive(Ledger(forked.table, system_clock).begin("daily", "a log", "out"))
    assert other.number > record.number


def test_switching_back_does_not_restore_what_was_redriven_at_a_target(store: Store, tmp_path: Path) -> None:
    world = World(drive(store.table("first")))
    target = open_target(f"sqlite:///{tmp_path}/out.db", TargetOptions())
    world.run([("m1", Paid(account="a0", amount=60))], bank("same"))
    follow(store, "first", "second", world)
    ended = ended_batch(world.table, {"outputs": 1})
    first, second = (Publications(drive(store.table(name)), system_clock) for name in ("first", "second"))
    publication = drive(first.begin(key_of(ended, target, ()), "target", 1, 1))
    claim = drive(first.claim(publication, 0, None, "me", timedelta(minutes=1)))
    refused = Record("o1", "Booked", "a0", "Account", Result.NOT_SENT, "no")
    assert claim is not None
    drive(claim.note(1, [refused]))
    drive(claim.finish(1))
    drive(switch(store, "first", "second"))
    (name,) = drive(second.records(publication))
    drive(second.drop(publication, name))

    drive(switch(store, "second", "first"))

    assert not drive(first.records(publication))

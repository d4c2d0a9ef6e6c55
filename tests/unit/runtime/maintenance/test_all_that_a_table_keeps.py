"""All that a table keeps, its readers, and random damage: a check tells it, or it stands nowhere else."""

import re
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore import Int64, Operation, Table, drive
from handlers import CodecError
from runtime import Output, Processor, StoredDataError
from runtime.algorithms.outbox.stores import DeduplicationStore, Token, TokenStore, first_name
from runtime.algorithms.state_based.truncation import RetentionRules
from runtime.dead_letters import Selection, discard, find_letters
from runtime.documents import MARKER, Registration, registrations_of
from runtime.documents import PREFIX as REGISTRATION
from runtime.errors import BatchRefusedError, LeaseHeldError, RetriesExhaustedError, UsageError
from runtime.leases import CleanUpLease
from runtime.ledger.batch import BatchKey
from runtime.ledger.ledger import Ledger
from runtime.ledger.settings import TableDemands, TableOwner, TableSettings
from runtime.maintenance.check import check_table
from runtime.maintenance.forget import Tables, find_trace, forget
from runtime.maintenance.policies import Policies, PolicyReader, Scope
from runtime.maintenance.statistics import count_rows
from runtime.publishing.last_hop import DeliveryKey, Key, KeyState, TableKeys
from runtime.publishing.publisher import Record, Result
from runtime.publishing.records import (
    PUBLICATION,
    Publications,
    letters_of,
    prune_publications,
    read_publication,
    rows_of,
)
from runtime.tables.reader import Request, TableKind
from tests.unit.runtime import diary
from tests.unit.runtime.diary import misbehave, write
from tests.unit.runtime.maintenance.damaged import Rows, table_of
from tests.unit.runtime.maintenance.test_damage_is_told_mended_or_harmless import SLOW, Damage, other_value
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import DAY, NOW, ToldClock

CLOCK = ToldClock()
DELIVERY = DeliveryKey.of("ada", "m-1")
BY_OUTBOX, BY_STORE, BY_TOKENS = "o-1", "s-1", "t-1"
ALGORITHMS = {BY_OUTBOX: "outbox", BY_STORE: "deduplication-store", BY_TOKENS: "tokens"}
Read = Callable[[Table], Awaitable[object]]


async def _publish(_output: Output) -> None: ...


async def _fail(_output: Output) -> None:
    raise OSError("no post today")


def processor(
    table: Table, algorithm: str, publish: Callable[[Output], Awaitable[None]] = _publish
) -> Processor:
    return Processor(diary.app, table, publish, clock=CLOCK, retries=PATIENCE, algorithm=algorithm)  # type: ignore[arg-type] # a name


@cache
def kept() -> Rows:
    table = memory_table()
    drive(_objects(table))
    drive(_batches(table))
    drive(_others(table))
    return rows(table)


async def _objects(table: Table) -> None:
    """Keep an entity of each algorithm, with an entry that waits, a letter, and what the algorithm has beside it."""
    for business_id, algorithm in ALGORITHMS.items():
        working, failing = processor(table, algorithm), processor(table, algorithm, _fail)
        first = [
            write(f"{business_id} a", diary=business_id),
            misbehave("fail", f"{business_id} bad", diary=business_id),
        ]
        for message in first:
            await working.process(await working.issue(message))
        with suppress(OSError):
            await failing.process(await failing.issue(write(f"{business_id} b", diary=business_id)))
    forgotten = processor(table, "outbox")
    await forgotten.process(write("g", diary="g-1"))
    await forget(Tables(table, table, table), "Diary", "g-1", now=NOW, restart=False, retries=PATIENCE)
    await processor(table, "outbox").process(write("x")._replace(type="Unknown"))
    attempt = Registration("Diary-r-1", "f" * 32, ("a.pdf",), NOW, BatchKey("b-1", 1))
    rows = {REGISTRATION + attempt.attempt: attempt.properties(), MARKER: {}}
    await table.transact(attempt.key, [Operation.insert(key, values) for key, values in rows.items()])


async def _batches(table: Table) -> None:
    """Keep a batch that is open, one that is published, and one that was given up."""
    ledger = Ledger(table, CLOCK, PATIENCE)
    claim = TableDemands(TableOwner(None, frozenset({"Diary"})))
    for batch_id in ("b-1", "b-2", "b-3"):
        record = await ledger.begin(batch_id, "a log", "/out", "outbox", claim)
        record = await ledger.choose_attempt(record, "attempt")
        if batch_id == "b-2":
            await ledger.publish(await ledger.commit_round(record, 0, {"processed": 7}, 0))
    await ledger.abandon("b-3")
    publications = Publications(table, CLOCK, PATIENCE)
    publication = await publications.begin("b-2-0123456789ab", "sqlite:///x", 2, 1)
    claim_of_slice = await publications.claim(publication, 1, None, "ada", timedelta(minutes=1))
    assert claim_of_slice is not None
    await claim_of_slice.note(
        3, [Record("m-9", "Wrote", "o-1", "Diary", Result.NOT_SENT, "no such customer")]
    )


async def _others(table: Table) -> None:
    policies = Policies(table, CLOCK, PATIENCE)
    await policies.set_rules(Scope(), RetentionRules(older_than=2 * DAY, keep_last=1, acknowledged_after=DAY))
    await policies.set_rules(Scope("Diary"), RetentionRules(keep_last=2))
    await policies.change(Scope("Diary", "o-1"), hold=True)
    await CleanUpLease(table, CLOCK).take("somebody")
    keys = TableKeys(table)
    await keys.put(DELIVERY, Key(KeyState.SEALED, "holder", NOW + DAY, "not_sent", "why"))
    await keys.put(DeliveryKey.of("ada", "m-2"), Key(KeyState.SEALED, "holder", NOW + DAY))
    await TokenStore(table).create(
        Token.named(first_name("t-1 b"), "Diary"),
        [Token(first_name("t-1 b").partition("/")[0], "e" * 32 + "-0", "Other")],
    )
    await table.transact("_issued", [Operation.insert("0" * 32, {"Out": "/log"})])


async def _all(found: AsyncIterator[object]) -> list[object]:
    return [each async for each in found]


def _ends(business_id: str) -> Read:
    async def read(table: Table) -> object:
        one, ended = processor(table, ALGORITHMS[business_id]), []
        for name in "abc":
            ended += await one.process(await one.issue(write(f"{business_id} {name}", diary=business_id)))
        ended += await one.process(misbehave("fail", f"{business_id} bad", diary=business_id))
        return [(each.status, each.reason, each.outputs) for each in ended]

    return read


async def _refused(table: Table) -> list[tuple[str, object]]:
    """Return the records of publications, without the time at which the table wrote them."""
    return [(row.row_key, row.properties) for row in await letters_of(table, "Diary", "o-1")]


async def _slices(table: Table) -> object:
    publications = Publications(table, CLOCK, PATIENCE)
    every = [read_publication(row) async for row in rows_of(table, PUBLICATION)]
    return every, [
        (await publications.slices(each), list(await publications.records(each))) for each in every
    ]


async def _deliveries(table: Table) -> object:
    keys = TableKeys(table)
    return await keys.get(DELIVERY), await _all(keys.unended()), await keys.forget_expired("ada", NOW)


async def _count(table: Table) -> None:
    """Read what the statistics read: they count bytes, which any damage changes."""
    await count_rows(table)


def _of_outbox(table: Table) -> Table:
    others = {f"Diary-{BY_STORE}", f"Diary-{BY_TOKENS}"}
    return table_of({place: row for place, row in rows(table).items() if place[0] not in others})


READERS: Mapping[str, Read] = {
    **{f"messages of {ALGORITHMS[each]}": _ends(each) for each in ALGORITHMS},
    "refused message": lambda table: processor(table, "outbox").redrive(
        misbehave("fail", "o-1 bad", diary="o-1")
    ),
    "sweep": lambda table: processor(_of_outbox(table), "outbox").sweep(),
    "evict": lambda table: processor(_of_outbox(table), "outbox").evict(timedelta()),
    "rows": _count,
    "discard": lambda table: discard(table, Selection(), PATIENCE),
    "table of letters": lambda table: _all(Request(TableKind.LETTERS).batches(table)),
    "processed messages": lambda table: DeduplicationStore(table, CLOCK).evict("Diary-s-1", NOW),
    "letters": lambda table: _all(find_letters(table, Selection())),
    "forget": lambda table: find_trace(Tables(table, table, table), "Diary", "o-1"),
    "what was forgotten": lambda table: processor(table, "outbox").process(write("g2", diary="g-1")),
    "batches": lambda table: Ledger(table, CLOCK, PATIENCE).batches(10),
    "snapshot": lambda table: Ledger(table, CLOCK, PATIENCE).snapshot(),
    "settings": TableSettings.of,
    "prune": lambda table: Ledger(table, CLOCK, PATIENCE).prune(NOW),
    "begin": lambda table: Ledger(table, CLOCK, PATIENCE).begin("b-1", "a log", "/out", "outbox"),
    "policies": lambda table: Policies(table, CLOCK, PATIENCE).all(),
    "decisions": lambda table: PolicyReader(table).decide(["Diary-o-1", "Diary-o-2"]),
    "lease": lambda table: CleanUpLease(table, CLOCK).find(),
    "publications": _slices,
    "refused outputs": _refused,
    "prune publications": lambda table: prune_publications(table, CLOCK),
    "deliveries": _deliveries,
    "registrations": lambda table: registrations_of(table, "Diary-r-1"),
    "tokens": lambda table: TokenStore(table).count(),
}  # fmt: skip


SAID = (BatchRefusedError, CodecError, LeaseHeldError, OSError, RetriesExhaustedError, UsageError)
"""What readers may say of a row that is another one now, and can be read."""

TOLD_ONCE: dict[str, set[str]] = {
    r"\w+-.* ENTITY": {
        "Algorithm", "State", "StateSchema", "Version", "LastNow", "Outbox", "Forgotten", "Refuses",
        "LettersBeyondLimit", "LastLetter",
    },
    r"\w+-.* DOCUMENTS-.*": {"RegisteredAt", "Batch", "BatchNumber", "GivenUpAt"},
    r"\w+-.* ID-.*": {"Fingerprint", "AddedAt"},
    r"_batches !next": {"FirstBatch", "Next", "Algorithm"},
    r"_batches !of-table": {"Handlers", "App", "DrawKey"},
    r"_batches [^!].*": {
        "Input", "Out", "Token", "Rounds", "LastRoutable", "StartedAt", "Attempt", "Count_processed",
        "Number", "UpdatedAt", "Status",
    },
    r"_issued .*": {"Out"},
    r"_lease .*": {"Holder", "Token", "TakenAt", "ExpiresAt"},
    r"_letters .*": set(),
    r"_policies .*": {
        "Hold", "SetAt", "RedeliveryWindow", "AllowUndated", "OlderThan", "KeepLast", "AcknowledgedAfter",
    },
    r"_publishing .*": {
        "Target", "Slices", "StartedAt", "Type", "BusinessId", "Handler", "Why", "Holder", "Token",
        "ExpiresAt", "FirstAt", "Position", "InDoubt", "IsSent", "Customer",
    },
    r"deliveries\..*": {"Value", "Holder", "ExpiresAt", "Key", "End", "At", "Why"},
    r"tokens\..*": {"Used"},
}  # fmt: skip
"""By partition and row, what another value of the same type cannot be seen of: nothing else in the table tells it."""

ALONE = (
    r"_publishing [sr]:|_letters|_policies|_issued|_lease|_batches !of-table|deliveries\.|tokens\.|"
    r"\w+-.* (ID-|DOCUMENTS-)"
)
"""Rows whose loss cannot be seen; nor can that of all rows of a partition, or of the last ones of an object."""

OPTIONAL = {
    "Forgotten", "Refuses", "Outbox", "State", "LettersBeyondLimit", "LastLetter", "Batch", "BatchNumber",
    "App", "DrawKey", "Handlers", "Attempt", "OlderThan", "KeepLast", "AcknowledgedAfter", "Why", "Used",
    "GivenUpAt", "Count_processed",
}  # fmt: skip
"""Properties that a sound row may lack."""


@st.composite
def damaged(draw: st.DrawFn, found: Rows) -> tuple[Damage, tuple[str, str], str | None, Any]:
    """Return rows of which one is gone, has another key, or has another value of a property."""
    place = draw(st.sampled_from(sorted(found)))
    rest = {key: row for key, row in found.items() if key != place}
    what = draw(st.sampled_from(["delete", "move", *["property"] * 6]))
    if what == "property" and found[place]:
        name = draw(st.sampled_from(sorted(found[place])))
        value = draw(other_value(found[place][name]))
        row = {key: each for key, each in {**found[place], name: value}.items() if each is not None}
        return Damage(f"{place} {name} is {value!r}", {**rest, place: row}), place, name, value
    if what == "move":
        new = (place[0], place[1] + draw(st.sampled_from(["x", "-", "1", " "])))
        return Damage(f"{place} is at {new}", {**rest, new: found[place]}), place, None, new
    return Damage(f"{place} is gone", rest), place, None, None


def is_told_nowhere(found: Rows, place: tuple[str, str], name: str | None, value: Any) -> bool:
    """Say whether a damage is of what stands nowhere else, and reads well."""
    if name is None:
        is_last = not any(key == place[0] and row != place[1] for key, row in found)
        return bool(re.match(ALONE, " ".join(place))) or (value is None and is_last)
    names = next((names for where, names in TOLD_ONCE.items() if re.match(where, " ".join(place))), set())
    if value is None:
        return name in names and name in OPTIONAL
    return name in names and _kind(value) is _kind(found[place][name])


def _kind(value: Any) -> type:
    return int if isinstance(value, Int64) else type(value)


def told(table: Table) -> set[str]:
    return {fault.stream for fault in drive(check_table(table)).faults}


def view(table: Table, name: str) -> str | None:
    """Return what a reader gives, None for what it may say of damage; anything else that it raises is a failure."""
    try:
        found: object = drive(READERS[name](table))  # type: ignore[arg-type] # coroutines
    except (StoredDataError, *SAID):
        return None
    return re.sub("etag='[^']*'", "", repr(found))


@cache
def views() -> dict[str, str | None]:
    return {name: view(table_of(kept()), name) for name in READERS}


def told_or_harmless(data: st.DataObject) -> None:
    damage, place, name, value = data.draw(damaged(kept()))
    found = told(table_of(damage.rows))
    seen = {reader: view(table_of(damage.rows), reader) for reader in READERS}
    if not found and not is_told_nowhere(kept(), place, name, value):
        assert seen == views()
    assert {key for key in found if not key.startswith("tokens.")} <= {place[0]}
    mend(damage.rows, place)


def mend(found: Rows, place: tuple[str, str]) -> None:
    table = table_of(found)
    checked = drive(check_table(table, repair=True))
    if checked.repaired:
        assert checked.faults == []
        assert told(table) == set()
        if place[1] in {fault.row for fault in checked.repaired}:
            assert rows(table)[place] == kept()[place]
    else:
        assert rows(table) == found


def test_a_sound_table_is_sound_and_read():
    assert told(table_of(kept())) == set()
    assert [name for name, found in views().items() if found is None] == []


@pytest.mark.parametrize("examples", [15, pytest.param(500, marks=pytest.mark.thorough)])
def test_damage_is_told_or_stands_nowhere_else(examples):
    settings(max_examples=examples, suppress_health_check=SLOW)(given(st.data())(told_or_harmless))()

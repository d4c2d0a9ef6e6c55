"""A table with all that a table keeps beside streams of states, made by the code that keeps it, and its readers."""

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from functools import cache

from eventstore import Operation, Table, drive
from runtime import Output, Processor
from runtime.algorithms.outbox.stores import DeduplicationStore, Token, TokenStore, first_name
from runtime.algorithms.state_based.truncation import RetentionRules
from runtime.dead_letters import Selection, discard, find_letters
from runtime.documents import MARKER, Registration, registrations_of
from runtime.documents import PREFIX as REGISTRATION
from runtime.leases import CleanUpLease
from runtime.ledger.batch import BatchKey
from runtime.ledger.ledger import Ledger
from runtime.ledger.settings import TableDemands, TableOwner, TableSettings
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
    """Return the rows of a table that keeps all there is."""
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
    """Return a table without the entities of other algorithms."""
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

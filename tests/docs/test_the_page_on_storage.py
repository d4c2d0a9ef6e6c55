"""docs/storage.md describes each row that an algorithm writes: its keys, all its properties, and their types."""

import re
from contextlib import suppress
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple

import msgpack
import pytest

from eventstore import Int64, Operation, Row, Table, Value, drive
from handlers import App
from runtime import Envelope, Output, Processor
from runtime.algorithms.algorithm import fresh_id
from runtime.algorithms.choice import Dependencies, make_outboxes
from runtime.algorithms.outbox.stores import CHAIN_LENGTH
from runtime.algorithms.state_based.truncation import DAY, RetentionRules
from runtime.clock import system_clock
from runtime.leases import CleanUpLease
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import PARTITION, Ledger
from runtime.ledger.settings import KEY_BYTES, OF_TABLE, TableDemands, TableOwner, TableSettings
from runtime.maintenance.forget import Tables, forget
from runtime.maintenance.policies import Policies, Scope
from runtime.messages.envelope import row_key
from runtime.messages.parsing import prepare
from runtime.publishing.last_hop import IdempotentDelivery, TableKeys
from runtime.publishing.publisher import Record, Result
from runtime.publishing.records import Publications
from runtime.retries import RetryPolicy
from runtime.spark import outbox as issuing
from runtime.versions import limits
from samples.shooting_range import app
from tests.docs.pages import text
from tests.unit.runtime.algorithms.world import WITH_OUTBOX
from tests.unit.runtime.tables import memory_table

PAGE = text("docs/storage.md")
GAMES = [f"7d444840-9dc0-11d1-b245-5ffdce74fad{digit}" for digit in range(5)]
BATCHED = "7d444840-9dc0-11d1-b245-5ffdce74fadf"
LONG_ID = "x" * 121
TYPES = {str: "string", bool: "boolean", int: "int32", Int64: "int64", datetime: "datetime", bytes: "binary"}


class Kind(NamedTuple):
    """A kind of row as the page describes it: its keys, and the types of its properties, with the optional ones."""

    partition_keys: tuple[str, ...]
    row_keys: tuple[str, ...]
    types: dict[str, str]
    optional: frozenset[str]

    def has(self, row: Row) -> bool:
        return is_like(row.partition_key, self.partition_keys) and is_like(row.row_key, self.row_keys)


def described() -> list[Kind]:
    table = r"^PartitionKey (.+?), RowKey ([^|]+?):\n\n\| property .*\n\|[-|]+\|\n((?:\|.*\n)+)"
    return [kind(*each) for each in re.findall(table, PAGE, re.MULTILINE)]


def kind(partition_key: str, row_keys: str, table: str) -> Kind:
    lines = re.findall(r"^\| `(\w+)`(?:, …)? \| (\w+) \| (.*) \|$", table, re.MULTILINE)
    assert len(lines) == len(table.splitlines())
    optional = frozenset(name for name, _, meaning in lines if meaning.endswith("; optional"))
    partition_keys, row_keys_ = (tuple(re.findall(r"`(.+?)`", keys)) for keys in (partition_key, row_keys))
    return Kind(partition_keys, row_keys_, {name: type_ for name, type_, _ in lines}, optional)


def is_like(key: str, shown: tuple[str, ...]) -> bool:
    patterns = ["[^!].*".join(map(re.escape, re.split(r"\{.+?\}", each))) for each in shown]
    return any(re.fullmatch(pattern, key) for pattern in patterns)


@pytest.fixture(scope="module")
def written() -> list[Row]:
    """Let each algorithm write rows of each kind, finished ones and others, and read them."""
    table = memory_table()
    drive(write_all(table))
    return list(drive(table.scan(None)).rows)


async def _publish(table: Table) -> None:
    publications = Publications(table, system_clock)
    publication = await publications.begin("b1-digest", "sqlite:///file", None, 1)
    claim = await publications.claim(publication, 0, None, "somebody", timedelta(minutes=1))
    assert claim
    await claim.note(1, [Record("m1", "Hit", GAMES[0], "ShootingRange", Result.NOT_SENT, "400")])


async def write_all(table: Table) -> None:
    for number, algorithm in enumerate(WITH_OUTBOX):
        # One message that is finished, and one whose outputs wait
        for position, publish in enumerate((accept, refuse)):
            processor = Processor(app, table, publish, algorithm=algorithm)
            sent = await processor.issue(shot(f"{algorithm}-{position}", GAMES[number]))
            with suppress(ConnectionError):
                await processor.process(sent)
    store = Processor(app, table, accept, algorithm="deduplication-store")
    await store.process(shot(LONG_ID, GAMES[1]))

    # Letters of an entity, one of them too large to be kept, and of the table
    refused = shot("refused", GAMES[0])._replace(body="{", business_id=GAMES[0])
    given_to = Dependencies(app, table, batch=BatchContext("refused", number=9))
    shooting_range = app.handlers["ShootingRange"]
    dated = refused._replace(message_id="dated", enqueued_at=1)
    bad = [refused, dated, refused._replace(message_id="large", body="x" * limits.MAX_LETTER_BYTES)]
    await make_outboxes("outbox", given_to)["ShootingRange"].process(
        GAMES[0], [prepare(shooting_range, GAMES[0], each) for each in bad]
    )
    await Processor(app, table, accept).process(refused._replace(business_id=None))

    # An object that was forgotten
    outbox = Processor(app, table, accept, algorithm="outbox")
    await outbox.process(shot("forgotten", GAMES[4]))
    tables = Tables(table, table, table)
    await forget(tables, "ShootingRange", GAMES[4], system_clock(), restart=False, retries=RetryPolicy())

    # A batch that has ended, and one that has died
    ledger = Ledger(table, system_clock)
    ended = await ledger.commit_round(await ledger.begin("ended", "log", "out"), 0, {"processed": 1}, 0)
    await ledger.publish(ended)
    demands = TableDemands(TableOwner.of(App(*app.handler_types, name="range")))
    died = await ledger.begin("died", "log", "out", demands=demands)
    died = await ledger.choose_attempt(died, "died-round-0-0123456789abcdef0123456789abcdef")
    of_table: dict[str, Value] = {"DrawKey": bytes(KEY_BYTES), "Follows": "one"}
    of_table |= {"SwitchedTo": "two", "SwitchedAs": b"digest"}
    await table.transact(PARTITION, [Operation.merge(OF_TABLE, of_table)])
    given_to = Dependencies(app, table, batch=BatchContext("died", number=died.number))
    given = prepare(app.handlers["ShootingRange"], BATCHED, shot("batched", BATCHED))
    await make_outboxes("outbox", given_to)["ShootingRange"].process(BATCHED, [given])

    await issuing._note(table, "0" * 32, "log-with-tokens")
    delivery = IdempotentDelivery(TableKeys(table))
    await delivery.deliver("17", "m-1", accept)
    with suppress(ConnectionError):
        await delivery.deliver("17", LONG_ID, refuse)

    policies = Policies(table, system_clock)
    for scope in (Scope(), Scope("ShootingRange"), Scope("ShootingRange", GAMES[0])):
        await policies.change(scope, hold=True)
    rules = RetentionRules(older_than=90 * DAY, keep_last=1, acknowledged_after=DAY)
    await policies.set_rules(Scope(), rules)
    await CleanUpLease(table, system_clock).take("somebody")
    await _publish(table)

    settings = replace(
        await TableSettings.of(table), follows="first", switched_to="third", switched_as=bytes(32)
    )
    await table.transact(PARTITION, [settings.operation()])


def shot(message_id: str, game: str) -> Envelope:
    return Envelope.of(message_id, "FireAt", f'{{"game_id": "{game}", "position": 0}}')


async def accept(*_: Output) -> None:
    """Publish nothing."""


async def refuse(*_: Output) -> None:
    raise ConnectionError("Nobody listens.")


def test_every_row_is_of_one_kind_and_has_what_that_describes(written):
    kinds = described()
    names: dict[str, set[str]] = {}
    for row in written:
        (found,) = [each for each in kinds if each.has(row)]
        types = {re.sub(r"\d+$", "", name): TYPES[type(value)] for name, value in row.properties.items()}
        assert types.items() <= found.types.items()
        assert set(found.types) - found.optional <= set(types)
        names.setdefault(str(found), set()).update(types)

    assert names == {str(each): set(each.types) for each in kinds}


def test_entries_have_the_fields_that_it_lists(written):
    entities = [row.properties for row in written if row.row_key == "ENTITY"]
    outboxes = [msgpack.unpackb(each["Outbox"]) for each in entities if "Outbox" in each]
    lengths = {len(entry) for form, entries in outboxes for entry in entries if form == 1}

    positions = [int(number) for number in re.findall(r"^\| (\d) \| ", PAGE, re.MULTILINE)]
    assert lengths == {4, len(positions) - 1, len(positions)}
    assert positions == list(range(len(positions)))


def test_its_figures_are_those_of_the_code():
    assert f"more than {len(LONG_ID) - 1} characters" in PAGE.replace("\n", " ")
    assert [row_key("x" * length)[:5] for length in (120, 121)] == ["ID-T-", "ID-D-"]
    assert f"An *attempt* is {len(fresh_id())} random hexadecimal digits" in PAGE
    assert f"the first {CHAIN_LENGTH} hexadecimal digits" in PAGE

"""What docs/architecture.md draws, counts and shows is what the code does."""

from __future__ import annotations

import ast
import inspect
import re
from datetime import datetime
from functools import cache
from textwrap import dedent
from typing import Annotated
from unittest.mock import patch

import pytest
from pydantic import AfterValidator

from eventstore import Table, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, Output, Processor
from runtime.algorithms.outbox.deduplication_store import DeduplicationStore
from runtime.algorithms.outbox.entities import Entities
from runtime.algorithms.outbox.entity import Entity
from runtime.algorithms.outbox.entry import Entry
from runtime.algorithms.state_based.process import StateBased
from runtime.archives import importing
from runtime.archives.manifest import Manifest
from runtime.batches.ledger import Ledger
from runtime.batches.open_batches import BatchKey
from runtime.batches.settings import KEY_BYTES, LEDGER, Owner, TableSettings
from runtime.clock import system_clock
from runtime.documents.registrations import Registration, register
from runtime.messages.fingerprint import fingerprint
from runtime.messages.parsing import prepare
from runtime.publishing.keys import TableKeys
from runtime.publishing.last_hop import IdempotentDelivery
from runtime.retries import RetryPolicy
from runtime.spark import issuing
from samples.shooting_range import app
from tests.docs.pages import ROOT, blocks, text
from tests.docs.played import GAME, KEY, play, rows

PAGE = text("docs/architecture.md")
ROOMS = dict(re.findall(r'^ +(\w+)\["([\w/.]+?)/?:', PAGE, re.MULTILINE))
ARROWS = [
    (ROOMS[above], ROOMS[below]) for above, below in re.findall(r"^ +(\w+) --> (\w+)$", PAGE, re.MULTILINE)
]


@cache
def imports(room: str) -> set[str]:
    """Return the modules that the files of a room import, with slashes for dots."""
    path = ROOT / room
    files = [path] if path.is_file() else path.rglob("*.py")
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    return {
        node.module.replace(".", "/") for node in nodes if isinstance(node, ast.ImportFrom) and node.module
    }


def knows(above: str, below: str) -> bool:
    return any(f"{module}/".startswith(f"{below.removesuffix('.py')}/") for module in imports(above))


def test_its_drawing_has_every_room():
    folders = {
        f"runtime/{path.name}" for path in (ROOT / "runtime").iterdir() if (path / "__init__.py").exists()
    }

    assert folders | {"eventstore", "handlers", "samples"} <= set(ROOMS.values())


@pytest.mark.parametrize(("above", "below"), ARROWS)
def test_each_arrow_of_its_drawing_is_an_import(above, below):
    inside = above == below.partition("/")[0]
    assert inside or knows(above, below)


def test_nothing_imports_upwards_in_its_drawing():
    below: dict[str, set[str]] = {room: set() for room in ROOMS.values()}
    for _ in ROOMS:
        for upper, lower in ARROWS:
            below[upper] |= {lower, *below[lower]}
    upwards = [(lower, upper) for upper, rooms in below.items() for lower in rooms if knows(lower, upper)]

    assert [pair for pair in upwards if pair != ("eventstore/port.py", "eventstore")] == []


def test_its_loop_is_that_of_the_code():
    (shown,) = [code for language, code in blocks("docs/architecture.md") if language == "python"]

    assert shown in dedent(inspect.getsource(StateBased._process)).replace("\n    ", "\n")


def test_the_port_has_as_many_calls_as_it_says():
    calls = [name for name, value in vars(Table).items() if callable(value) and not name.startswith("_")]

    assert len(calls) == 5
    assert 'port["eventstore/port.py: five calls"]' in PAGE


PARSED: list[str] = []


def count(door: str) -> str:
    PARSED.append(door)
    return door


class Rung(Message):
    door: Annotated[str, AfterValidator(count)]


class Doorbell(Handler[State]):
    @handles(by="door")
    def ring(self, state: State, message: Rung, context: Context) -> State:
        return state


def test_a_body_is_parsed_as_often_as_it_says():
    doorbell = App(Doorbell)
    (handler,) = doorbell.handlers.values()
    rung = Envelope.of("m", "Rung", '{"door": "front"}')

    with patch("runtime.messages.parsing.fingerprint", wraps=fingerprint) as fingerprinted:
        # In a worker once into its type and once for the fingerprint: twice
        PARSED.clear()
        prepare(handler, "front", rung)
        assert (len(PARSED), fingerprinted.call_count) == (1, 1)

        # ... and by the processor once more, unless the envelope has the business id
        for envelope, times in ((rung, 3), (rung._replace(business_id="front"), 2)):
            fingerprinted.reset_mock()
            PARSED.clear()
            drive(Processor(doorbell, play([])[0], publish).process(envelope))
            assert len(PARSED) + fingerprinted.call_count == times

    assert "The body is parsed twice" in PAGE
    assert "An envelope without a business id is parsed a third time" in PAGE


async def publish(_: Output) -> None:
    """Publish nothing."""


def shown_rows(batches: list[int]) -> list[str]:
    """Return the rows of the game's stream after batches, as the page shows them."""
    return [
        f"`{row.row_key}` | {', '.join(f'`{name}` {shown(value)}' for name, value in row.properties.items())} |"
        for row in rows(play(batches)[0])
    ]


def shown(value: object) -> str:
    if isinstance(value, bytes):
        return f"{len(value)} bytes" if len(value) < 100 else f"{len(value) / 1000:.1f} kB"
    return f"{value:%Y-%m-%d}T…" if isinstance(value, datetime) else str(value).lower()


@pytest.mark.parametrize("batches", [[40, 12], [40, 12, *[40] * 14]], ids=["tail", "run"])
def test_its_example_rows_are_those_of_such_a_game(batches):
    assert f"`{KEY[:22]}…`" in PAGE
    assert sum(batches) in (52, 612)
    for row in shown_rows(batches):
        assert row in PAGE


def test_it_lists_every_row_with_its_properties():
    table = play([1, 600, 1])[0]
    drive(write_all_others(table))
    listed = re.findall(r"^\| (`[^|]+`) \| ([^|]+) \| ([^|]+) \| [^|]+ \|$", PAGE, re.MULTILINE)
    found: dict[str, set[str]] = {}
    for row in rows(table):
        (match,) = [
            each
            for key, keys, each in listed
            if matches(key, row.partition_key) and matches(keys, row.row_key)
        ]
        found.setdefault(match, set()).update(row.properties)

    assert len(found) == len(listed)
    for description, names in found.items():
        assert set(re.findall(r"`([A-Z]\w+)`", description)) <= names


def matches(shown: str, key: str) -> bool:
    """Say whether a key is like one of those shown, where a part in braces or an ellipsis may be anything."""
    patterns = [re.split(r"\{.+?\}|…", each) for each in re.findall(r"`(.+?)`", shown) or [shown and "…"]]
    return any(re.fullmatch("[^.!]+".join(map(re.escape, parts)), key) for parts in patterns)


async def write_all_others(table: Table) -> None:
    """Let each algorithm, the ledger and the issuing of tokens write a row of every kind."""
    await Ledger(table, system_clock).begin("20260101T000000-abc", "input", "out")
    await Ledger(table, system_clock).abandon("20260101T000000-abc")
    record = await Ledger(table, system_clock).begin("20260101T000000-abd", "input", "out")
    await Ledger(table, system_clock).decide(record, "attempt")
    (handler, _) = app.handlers.values()
    entities = Entities(table, handler, "outbox", RetryPolicy())
    entry = Entry(b"fingerprint", 1, 1, ())
    await entities.store(Entity(entities.key("game"), "outbox", b"{}", 1, outbox={"m": entry}))
    await DeduplicationStore(table).add("ShootingRange-other", {"m": b"fingerprint"})
    await Processor(app, table, publish, algorithm="tokens").issue(Envelope.of("m", "FireAt", "{}"))
    for business_id in (None, GAME):  # letters: of the table, and of a stream
        await Processor(app, table, publish).process(Envelope.of("m", "FireAt", "{", business_id=business_id))
    await issuing._note(table, "0123456789abcdef", "out")
    await IdempotentDelivery(TableKeys(table)).deliver("customer", "m", failing)
    for given_up_at in (None, 1):
        attempt = Registration(
            "ShootingRange-game", f"a-{given_up_at}", ["n"], 1, BatchKey("b", 1), given_up_at
        )
        await register(table, attempt)
    await importing._mark(table, Manifest("games", 0, "0", ()))
    settings = TableSettings(Owner("games", frozenset({"ShootingRange"})), bytes(KEY_BYTES))
    await table.transact(LEDGER, [settings.operation()])


async def failing() -> None:
    raise ValueError("It cannot be sent.")

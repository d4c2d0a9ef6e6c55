"""An entity that may be stored can be stored, and so can what later steps add to it."""

import json

import pytest

from eventstore import Operation, drive
from eventstore.limits import prepare
from handlers import Published
from runtime.algorithms.outbox.entity import (
    MAX_OUTBOX_BYTES,
    Entity,
    Entry,
    pack_entries,
    read_entity,
)
from runtime.algorithms.outbox.stores import EntryTokens, Token
from runtime.messages.outcome import outputs_of
from runtime.versions.limits import MAX_STATE_BYTES
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import NOW

KEY = "Diary-" + "d" * 500
RECIPIENTS = (("Ear", "OtherEar"),)


def entity(outbox: dict) -> Entity:
    return Entity(KEY, "tokens", b"s" * MAX_STATE_BYTES, 1, 7, NOW, outbox)


def entry(body: str, attempts: int = 0) -> Entry:
    outputs = outputs_of([Published("id", "Wrote", body.encode(), {"line": "1"})], 7, NOW)
    tokens = EntryTokens(Token("chain", "first", "Diary"), RECIPIENTS)
    for number in range(attempts):
        tokens = tokens.registered(f"{number:032}")
    return Entry(b"f" * 16, NOW, 7, outputs, tokens)


def full(attempts: int = 0) -> dict:
    return {"m": entry("x" * (MAX_OUTBOX_BYTES - 200), attempts)}


def store_and_read(given: Entity) -> Entity:
    table = memory_table()
    drive(table.transact(KEY, [Operation.insert("ENTITY", given.properties())]))
    row = drive(table.get(KEY, "ENTITY"))
    assert row is not None
    return read_entity(row)


@pytest.mark.parametrize("attempts", [0, 1, 1000])
def test_the_largest_entity_has_room_for_the_attempts_of_many_crashes(attempts):
    largest = entity(full())
    assert largest.too_large is None
    assert len(pack_entries(largest.outbox)) > MAX_OUTBOX_BYTES - 200

    later = entity(full(attempts))

    assert store_and_read(later).outbox == later.outbox


def test_what_is_over_a_limit_is_told_before_it_is_sent():
    large = entity({"m": entry("x" * MAX_OUTBOX_BYTES)})

    assert large.too_large is not None
    assert "outbox" in large.too_large
    assert prepare(KEY, [Operation.insert("ENTITY", large.properties())])


def test_an_entity_comes_back_as_it_was_stored():
    outbox = {
        "text": entry(json.dumps({"é": 1})),
        b"\x00" * 16: Entry(b"p" * 16, NOW, 3, None),
        "silent": Entry(b"p" * 16, NOW, 4, ()),
    }
    given = entity(outbox)

    read = store_and_read(given)

    assert (read.state, read.schema, read.version, read.last_now) == (given.state, 1, 7, NOW)
    assert read.outbox == outbox
    assert read.pending == 2

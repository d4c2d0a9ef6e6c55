"""Reprocessing on Spark: what it finds, how it resumes, and the switch to its table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from eventstore import connect, drive
from runtime import Envelope
from runtime.errors import UsageError
from runtime.maintenance.switch import switch
from runtime.spark.reprocessing import Reprocessed, differences, report, reprocess
from runtime.spark.worker.connection import open_table
from tests.integration.spark.conftest import Place
from tests.support import reprocessing
from tests.support.logs import message_id, row, write_lines
from tests.support.reprocessing import bank, histories
from tests.unit.runtime.tables import memory_table

PAYMENTS = [(0, 60), (0, 48), (1, 45), (2, 99), (0, 20), (1, 13), (2, 51)]


def log(path: Path, payments: Sequence[tuple[int, int]], first: int = 1) -> str:
    bodies = [{"account": f"a{who}", "amount": amount} for who, amount in payments]
    return write_lines(path, [row(number, "Paid", body) for number, body in enumerate(bodies, first)])


def again(place: Place, messages: Any, rule: str, **options: Any) -> tuple[Reprocessed, int]:
    where = {"store": place.store, "table": place.table, "into": "second", "out": str(place.folder / "again")}
    given = {"was": bank("same"), "partitions": 2, **where, **options}
    found = reprocess(place.spark, messages, bank(rule), **given)
    different = differences(found.result.outcomes).persist()
    tables = report(found, different, 100)
    changed = different.where("state <> 'object'").count()
    states = tables["States"]
    assert sum(row[kind] for row in states for kind in ("changed", "new", "gone", "refused")) <= changed
    moved = any(
        row[kind] for row in tables["Outputs"] for kind in ("new", "gone")
    )  # these have no other side
    assert bool(changed) == bool(moved or tables["Fields that differ, with an example"])
    return found, changed


@pytest.fixture
def paid(place: Place, tmp_path: Path) -> str:
    place.app = bank("same")
    messages = log(tmp_path / "first.jsonl", PAYMENTS)
    place.run(messages, cascade=True)
    return messages


def test_unchanged_handlers_differ_in_nothing(place: Place, paid: str) -> None:
    found, changed = again(place, paid, "same")
    assert not changed
    assert not found.missing
    equal = found.result.outcomes.where("status = 'duplicate' AND version IS NOT NULL").count()
    assert equal == sum(map(len, histories(open_table(place.store, place.table).table).values()))
    assert histories(open_table(place.store, "second").table) == {}


@pytest.mark.thorough
@pytest.mark.parametrize("rule", ["fee", "book", "nothing", "twice", "fails"])
def test_a_changed_rule_is_found_as_without_spark(place: Place, paid: str, rule: str) -> None:
    found, changed = again(place, paid, rule)
    table, second = open_table(place.store, place.table).table, memory_table()
    expected = reprocessing.reprocess(table, second, envelopes(PAYMENTS), bank(rule), bank("same"))
    rows = differences(found.result.outcomes).collect()
    assert {(each.handler, each.business_id) for each in rows} == {
        (each.handler, each.business_id)
        for each, document in expected.documents
        if document["state"] != "object" or document["fields"]
    }
    assert histories(open_table(place.store, "second").table) == histories(second)
    assert changed == sum(document["state"] != "object" for _, document in expected.documents)


def envelopes(payments: Sequence[tuple[int, int]]) -> list[Any]:
    return [
        Envelope(message_id(at), "Paid", f'{{"account": "a{who}", "amount": {amount}}}', sequence=at)
        for at, (who, amount) in enumerate(payments, 1)
    ]


@pytest.mark.thorough
@pytest.mark.parametrize("step", ["Round 1: committing", "Round 0: recording", "Round 2: committing"])
def test_it_resumes_with_its_id(place: Place, paid: str, step: str) -> None:
    class StoppedError(Exception):
        """The driver ends."""

    def stop(sentence: str) -> None:
        if sentence.startswith(step):
            raise StoppedError(sentence)

    with pytest.raises(StoppedError):
        again(place, paid, "book", batch_id="b", step=stop)
    _, changed = again(place, paid, "book", batch_id="b")
    table, second = open_table(place.store, place.table).table, memory_table()
    expected = reprocessing.reprocess(table, second, envelopes(PAYMENTS), bank("book"), bank("same"))
    assert changed == sum(document["state"] != "object" for _, document in expected.documents)
    assert histories(open_table(place.store, "second").table) == histories(second)


@pytest.mark.thorough
def test_a_switch_waits_for_what_came_in_and_can_be_undone_until_a_batch(
    place: Place, paid: str, tmp_path: Path
) -> None:
    again(place, paid, "fee")
    later = log(tmp_path / "later.jsonl", [(0, 70), (5, 1)], 100)
    place.run(later, cascade=True)

    async def change(name: str, to: str) -> int:
        async with connect(place.store) as store:
            return await switch(store, name, to)

    with pytest.raises(UsageError, match="not handled again"):
        drive(change(place.table, "second"))
    again(place, later, "fee")
    before = histories(open_table(place.store, place.table).table)
    drive(change(place.table, "second"))
    after = histories(open_table(place.store, "second").table)
    assert after.keys() == before.keys()
    drive(change("second", place.table))
    drive(change(place.table, "second"))
    assert after == histories(open_table(place.store, "second").table)
    place.app = bank("fee")
    last = place.run(log(tmp_path / "last.jsonl", [(0, 70), (0, 60)], 200), cascade=True)
    assert {each.status for each in last.collect()} == {"processed"}
    assert before == histories(open_table(place.store, place.table).table)
    repeated = place.run([paid, later], cascade=True)
    assert {each.status for each in repeated.collect()} <= {"duplicate", "dead_letter"}
    with pytest.raises(UsageError, match="cannot be switched back"):
        drive(change("second", place.table))

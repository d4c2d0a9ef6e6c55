"""Reprocessing on Spark: what it finds, how it resumes, and the switch to its table."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from eventstore import KeyRange, connect, drive
from handlers import App
from runtime import Envelope
from runtime.errors import UsageError
from runtime.file_systems import Folder
from runtime.maintenance.check import check_table
from runtime.maintenance.forget import Tables, forget
from runtime.maintenance.switch import switch
from runtime.retries import RetryPolicy
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
@pytest.mark.parametrize(
    "step", ["Round 1: committing", "Round 0: recording", "Round 2: committing", "visits-"]
)
def test_it_resumes_with_its_id(place: Place, paid: str, step: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class StoppedError(Exception):
        """The driver ends."""

    def stop(sentence: str) -> None:
        if sentence.startswith(step):
            raise StoppedError(sentence)

    def put(folder: Folder, name: str, content: bytes, put: Callable[..., None] = Folder.put) -> None:
        put(folder, name, content[: -1 if name.startswith(step) else None])
        stop(name)

    monkeypatch.setattr(Folder, "put", put)
    with pytest.raises(StoppedError):
        again(place, paid, "book", batch_id="b", step=stop)
    monkeypatch.undo()
    _, changed = again(place, paid, "book", batch_id="b")
    table, second = open_table(place.store, place.table).table, memory_table()
    expected = reprocessing.reprocess(table, second, envelopes(PAYMENTS), bank("book"), bank("same"))
    assert changed == sum(document["state"] != "object" for _, document in expected.documents)
    assert histories(open_table(place.store, "second").table) == histories(second)
    assert [each.name for each in (place.folder / "again").iterdir()] == ["batch_id=b"]


@pytest.mark.thorough
def test_an_output_whose_cause_is_in_no_log_does_not_count_as_gone(
    place: Place, paid: str, tmp_path: Path
) -> None:
    place.app = bank("same")
    early = log(tmp_path / "early.jsonl", [(4, 60)], 50)
    place.run(early)  # its output is in flight
    again(place, [paid, early], "fee")
    place.run(early, cascade=True)
    later = log(tmp_path / "later.jsonl", [(5, 1)], 100)
    place.run(later, cascade=True)

    found, _ = again(place, later, "fee")
    assert ("Book", "b0") in {(each.handler, each.business_id) for each in found.missing}
    with pytest.raises(UsageError, match="not reprocessed"):
        drive(switched(place, place.table, "second"))

    found, _ = again(place, [paid, early, later], "fee")
    assert not found.missing
    drive(switched(place, place.table, "second"))


async def switched(place: Place, name: str, to: str) -> int | None:
    async with connect(place.store) as store:
        return await switch(store, name, to)


@pytest.mark.thorough
def test_a_batch_that_is_run_again_after_a_switch_is_a_no_op(place: Place, paid: str, tmp_path: Path) -> None:
    place.run(paid, cascade=True, batch_id="paid")
    first, changed = again(place, paid, "fee", batch_id="again")
    with pytest.raises(UsageError, match="a batch paid of its own"):
        again(place, paid, "fee", batch_id="paid")
    with pytest.raises(UsageError, match="another table"):
        again(place, paid, "fee", into=place.table.upper())
    drive(switched(place, place.table, "second"))
    before = histories(open_table(place.store, "second").table)

    place.app = bank("fee")
    place.run(paid, cascade=True, batch_id="paid")
    repeated, changed_again = again(place, paid, "fee", batch_id="again")
    assert repeated.result.was_published
    assert changed_again == changed
    assert repeated.result.record == first.result.record
    with pytest.raises(UsageError, match="was switched to second"):
        again(place, paid, "fee")
    second = open_table(place.store, "second").table
    assert histories(second) == before
    assert not drive(check_table(second, KeyRange())).faults
    drive(switched(place, "second", place.table))  # nothing was changed

    drive(switched(place, place.table, "second"))
    assert not again(place, paid, "fee", was=bank("fee"), into="third")[1]  # follows the second table
    drive(switched(place, place.table, "third"))


@pytest.mark.thorough
def test_an_added_handler_gets_all_messages(place: Place, tmp_path: Path) -> None:
    messages, lone, app = log(tmp_path / "first.jsonl", PAYMENTS), place.beside("lone"), bank("same")
    lone.app = App(app.handlers["Account"].handler_type, name="bank")
    lone.run(messages, cascade=True)
    place.app = app
    place.run(messages, cascade=True)

    for _ in range(2):
        again(lone, messages, "same", was=lone.app)

    expected, found = (
        {
            key: sorted(json.loads(made[-1][1])["entries"])
            for key, made in histories(open_table(*where).table).items()
            if key[0] == "Book"
        }
        for where in ((place.store, place.table), (lone.store, "second"))
    )
    assert found == expected


@pytest.mark.thorough
def test_messages_of_a_forgotten_object_are_not_gone(place: Place, paid: str) -> None:
    table = open_table(place.store, place.table).table
    drive(forget(Tables(table, table, table), "Account", "a0", 1, restart=False, retries=RetryPolicy()))

    found, changed = again(place, paid, "same")

    assert not changed
    assert not found.missing
    drive(switched(place, place.table, "second"))

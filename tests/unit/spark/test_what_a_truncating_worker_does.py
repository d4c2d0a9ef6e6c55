"""What a worker of a truncation does with a range of streams: by rules or policies, as long as it has the lease."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from eventstore import InterceptedTable, KeyRange, Operation, Table, drive
from runtime import leases as lease_module
from runtime.algorithms.state_based.truncation import PolicyRules, TruncationRules
from runtime.batch_options import TablePlace
from runtime.errors import LeaseLostError
from runtime.leases import Leases
from runtime.ledger.batch import OpenBatches
from runtime.maintenance.policies import Policies, Scope
from runtime.spark import truncation
from runtime.spark.scan import Task
from runtime.spark.truncation import TruncationJob
from runtime.spark.worker.connection import Connection
from runtime.versions import limits
from runtime.versions import stream as listing
from runtime.versions.stream import summaries
from tests.support.clocks import FrozenClock
from tests.unit.runtime.diary import ponder
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker

OLD = NOW - 100 * DAY
CLOCK = FrozenClock(NOW)
OPEN = OpenBatches(names=frozenset({"open"}))
ALL = TruncationRules.of(NOW, OPEN, older_than=30 * DAY)


@pytest.fixture
def place(tmp_path: Path) -> TablePlace:
    return TablePlace(f"sqlite:///{tmp_path}/store.db", "games")


@pytest.fixture
def table(place, monkeypatch) -> Table:
    """Give a table with twelve streams of three runs each, one of which may go and one of an open batch."""
    table = Connection(place).table
    with monkeypatch.context() as patched:
        patched.setattr(limits, "MAX_SEGMENT_BYTES", 0)
        for number in range(12):
            for turn, batch in enumerate(("done", "open", "done")):
                worker = Worker(table, clock=ToldClock(OLD), business_id=f"{number:02}", batch=batch)
                worker.process(ponder(f"m-{turn}", diary=f"{number:02}", enqueued_at=OLD))
    return table


def job(place: TablePlace, **options: Any) -> Task:
    given = {
        "given": ALL,
        "now": NOW,
        "open_batches": OPEN,
        "acknowledged": None,
        "give_up": None,
        "dry_run": False,
        "clock": CLOCK,
    }
    return Task(TruncationJob(**{**given, **options}), place)


def run(of: Task, *ranges: KeyRange) -> list[dict[str, Any]]:
    return [row for rows in of.results(ranges or [KeyRange()]) for row in rows]


def cut_streams(table: Table) -> set[str]:
    async def found() -> set[str]:
        return {each.business_id async for each in summaries(table) if each.head.kept_from > 1}

    return drive(found())


def kinds(rows: list[dict[str, Any]]) -> Counter[tuple[str, str | None, str | None]]:
    counts: Counter[tuple[str, str | None, str | None]] = Counter()
    for row in rows:
        counts[row["handler"], row["rules"], row["held"]] += row["streams"]
    return +counts


def test_streams_are_counted_by_what_holds_them_with_the_requests_that_they_took(place, table):
    watched: list[InterceptedTable] = []

    def watch(around: Table) -> Table:
        watched.append(InterceptedTable(around))
        return watched[-1]

    rows = run(job(place, wrap=watch))

    assert kinds(rows) == {("Diary", "given", "open_batch"): 12}
    (of_streams,) = [row for row in rows if row["handler"]]
    assert (of_streams["cut"], of_streams["versions"], of_streams["rows"]) == (12, 12, 12)
    assert of_streams["bytes"] > 0
    assert sum(row["requests"] for row in rows) == watched[0].calls


def test_a_row_for_each_stream_is_given_where_that_is_asked_for(place, table):
    rows = run(job(place, with_streams=True))

    assert [row["stream"] for row in rows if "stream" in row] == [f"Diary-{each:02}" for each in range(12)]
    assert kinds(rows) == {("Diary", "given", "open_batch"): 12}


def test_without_rules_each_stream_is_cut_by_its_policy_and_none_that_is_held(place, table):
    policies = Policies(table, CLOCK, PATIENCE)
    drive(policies.set_rules(Scope("Diary"), PolicyRules(older_than=30 * DAY)))
    drive(policies.set_rules(Scope("Diary", "03"), PolicyRules(older_than=200 * DAY)))
    drive(policies.hold(Scope("Diary", "05")))

    rows = run(job(place, given=None))

    assert cut_streams(table) == {f"{each:02}" for each in range(12)} - {"03", "05"}
    assert kinds(rows) == {
        ("Diary", "handler", "open_batch"): 10,
        ("Diary", "stream", None): 1,
        ("Diary", "handler", "hold"): 1,
    }


def test_streams_without_a_policy_are_left_alone(place, table):
    drive(Policies(table, CLOCK, PATIENCE).set_rules(Scope("Other"), PolicyRules(older_than=30 * DAY)))

    assert kinds(run(job(place, given=None))) == {("Diary", None, None): 12}
    assert cut_streams(table) == set()


@pytest.mark.parametrize("scope", [Scope(), Scope("Diary"), Scope("Diary", "05")])
def test_rules_that_are_given_count_in_place_of_policies_but_for_holds(place, table, scope):
    policies = Policies(table, CLOCK, PATIENCE)
    drive(policies.set_rules(Scope("Diary"), PolicyRules(older_than=200 * DAY)))
    drive(policies.hold(scope))

    run(job(place))

    held = {"05"} if scope.business_id else {f"{each:02}" for each in range(12)}
    assert cut_streams(table) == {f"{each:02}" for each in range(12)} - held


def test_keys_are_read_page_by_page_while_streams_are_cut(place, table, monkeypatch):
    monkeypatch.setattr(listing, "PAGE_SIZE", 5)
    monkeypatch.setattr("eventstore.backends.sqlite.PAGE_SIZE", 5)
    calls: list[str] = []

    def watch(around: Table) -> Table:
        return InterceptedTable(around, before=lambda name, *_: calls.append(name))

    rows = run(job(place, wrap=watch, in_flight=1))

    assert kinds(rows) == {("Diary", "given", "open_batch"): 12}
    assert calls.count("scan") > 1
    assert calls.index("transact") < max(number for number, name in enumerate(calls) if name == "scan")


def test_each_stream_is_in_one_of_its_ranges(place, table):
    rows = run(job(place), KeyRange(before="Diary-04"), KeyRange(first="Diary-04"))

    assert kinds(rows) == {("Diary", "given", "open_batch"): 12}


def test_a_worker_whose_lease_was_taken_over_stops_before_its_next_streams(place, table, monkeypatch):
    # Given a worker that looks at the lease before each stream
    monkeypatch.setattr(truncation, "RENEW_SECONDS", 0)
    leases = Leases(table, CLOCK)
    lease = drive(leases.take("ada"))

    def take_over(name: str, _: str, number: int) -> None:
        if name == "transact" and not cut_streams(table):
            drive(leases.take("grace", take_over=True))

    # When somebody takes it over while the first stream is cut
    with pytest.raises(LeaseLostError, match="taken over by grace"):
        run(job(place, token=lease.token, in_flight=1, wrap=lambda given: InterceptedTable(given, take_over)))

    # Then few are cut, and the other one can cut the rest
    assert len(cut_streams(table)) < 3
    held = drive(leases.find())
    assert held is not None
    run(job(place, token=held.token))
    assert len(cut_streams(table)) == 12


def test_a_worker_that_comes_late_does_not_begin(place, table):
    drive(Leases(table, CLOCK).take("grace"))

    with pytest.raises(LeaseLostError):
        run(job(place, token="another"))
    assert cut_streams(table) == set()


def test_a_lease_that_nobody_renews_stops_its_workers(place, table):
    early = FrozenClock(NOW - lease_module.LENGTH)
    lease = drive(Leases(table, early).take("ada"))

    with pytest.raises(LeaseLostError, match="has expired"):
        run(job(place, token=lease.token))


def test_a_stream_that_cannot_be_read_costs_no_other_one_its_truncation(place, table, tmp_path):
    async def damage() -> None:
        row = await table.get("Diary-07", "SS-HEAD")
        assert row is not None
        await table.transact(
            "Diary-07", [Operation.replace("SS-HEAD", {**row.properties, "Tail": b"\x93"}, row.etag)]
        )

    drive(damage())

    rows = run(job(place, with_streams=True, export=str(tmp_path), open_batches=OpenBatches()))

    assert kinds(rows)["Diary", "given", "stream_damaged"] == 1
    assert [row["stream"] for row in rows if row["held"] == "stream_damaged"] == ["Diary-07"]
    assert sum(row["cut"] for row in rows) == 11

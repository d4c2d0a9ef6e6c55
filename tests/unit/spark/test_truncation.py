"""Truncation: what a worker does, the lease that its driver holds, what is exported first, and the pace of requests."""

import json
import os
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import InterceptedTable, KeyRange, Operation, Table, drive
from runtime import leases as lease_module
from runtime.algorithms.state_based.truncation import RetentionRules
from runtime.archives.versions import files_that_name, prepare_parts
from runtime.batch_options import TablePlace
from runtime.clock import system_clock
from runtime.dead_letters import Selection, find_letters
from runtime.errors import ArchiveError, LeaseHeldError, LeaseLostError, UsageError
from runtime.leases import LENGTH, CleanUpLease, Lease
from runtime.ledger.batch import OpenBatches
from runtime.maintenance.policies import Policies, Scope
from runtime.retries import Pace, RateLimitedTable
from runtime.spark import truncation
from runtime.spark import truncation as module
from runtime.spark.scan import Task
from runtime.spark.truncation import TruncationJob, TruncationOptions, holding
from runtime.spark.worker.connection import Connection
from runtime.versions import limits
from runtime.versions.stream import summaries
from tests.support.clocks import FrozenClock
from tests.unit.runtime.diary import misbehave, ponder
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, open_batches

OLD = NOW - 100 * DAY
CLOCK = FrozenClock(NOW)
OPEN = open_batches("open")


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


def job(
    place: TablePlace,
    token: str | None = None,
    in_flight: int = 32,
    open_batches: OpenBatches = OPEN,
    **options: Any,
) -> Task:
    chosen = TruncationOptions(**{"older_than": 30 * DAY, "clock": CLOCK, **options})
    return Task(TruncationJob(chosen, NOW, open_batches, token, in_flight=in_flight), place)


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

    rows = run(job(place, wrap=watch), KeyRange(before="Diary-04"), KeyRange(first="Diary-04"))

    assert kinds(rows) == {("Diary", "given", "open_batch"): 12}
    sums = {name: sum(row[name] for row in rows) for name in ("cut", "versions", "rows", "bytes", "requests")}
    assert (sums["cut"], sums["versions"], sums["rows"], sums["bytes"] > 0) == (12, 12, 12, True)
    assert sums["requests"] == sum(each.calls for each in watched)


def test_without_rules_each_stream_is_cut_by_its_policy_and_none_that_is_held(place, table):
    policies = Policies(table, CLOCK, PATIENCE)
    drive(policies.set_rules(Scope("Diary"), RetentionRules(older_than=30 * DAY)))
    drive(policies.set_rules(Scope("Diary", "03"), RetentionRules(older_than=200 * DAY)))
    drive(policies.change(Scope("Diary", "05"), hold=True))

    rows = run(job(place, older_than=None))

    assert cut_streams(table) == {f"{each:02}" for each in range(12)} - {"03", "05"}
    assert kinds(rows) == {
        ("Diary", "handler", "open_batch"): 10,
        ("Diary", "stream", None): 1,
        ("Diary", "handler", "hold"): 1,
    }


def test_streams_without_a_policy_are_left_alone(place, table):
    drive(Policies(table, CLOCK, PATIENCE).set_rules(Scope("Other"), RetentionRules(older_than=30 * DAY)))

    assert kinds(run(job(place, older_than=None))) == {("Diary", None, None): 12}
    assert cut_streams(table) == set()


@pytest.mark.parametrize("scope", [Scope(), Scope("Diary"), Scope("Diary", "05")])
def test_rules_that_are_given_count_in_place_of_policies_but_for_holds(place, table, scope):
    policies = Policies(table, CLOCK, PATIENCE)
    drive(policies.set_rules(Scope("Diary"), RetentionRules(older_than=200 * DAY)))
    drive(policies.change(scope, hold=True))

    run(job(place))

    held = {"05"} if scope.business_id else {f"{each:02}" for each in range(12)}
    assert cut_streams(table) == {f"{each:02}" for each in range(12)} - held


def test_a_worker_whose_lease_was_taken_over_stops_before_its_next_streams(place, table, monkeypatch):
    # Given a worker that looks at the lease before each stream
    monkeypatch.setattr(truncation, "RENEW_SECONDS", 0)
    leases = CleanUpLease(table, CLOCK)
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


def test_a_lease_of_another_one_or_that_nobody_renews_stops_workers_before_they_begin(place, table):
    early = FrozenClock(NOW - lease_module.LENGTH)
    lease = drive(CleanUpLease(table, early).take("ada"))
    with pytest.raises(LeaseLostError, match="has expired"):
        run(job(place, token=lease.token))

    drive(CleanUpLease(table, CLOCK).take("grace"))
    with pytest.raises(LeaseLostError):
        run(job(place, token="another"))
    assert cut_streams(table) == set()


def test_a_stream_that_cannot_be_read_costs_no_other_one_its_truncation(place, table, tmp_path):
    async def damage() -> None:
        row = await table.get("Diary-07", "SS-HEAD")
        assert row is not None
        await table.transact(
            "Diary-07", [Operation.replace("SS-HEAD", {**row.properties, "Tail": b"\x93"}, row.etag)]
        )

    drive(damage())

    rows = run(job(place, report=Path("report"), export=tmp_path, open_batches=OpenBatches()))

    assert kinds(rows)["Diary", "given", "stream_damaged"] == 1
    assert [row["stream"] for row in rows if row["held"] == "stream_damaged"] == ["Diary-07"]
    assert sum(row["cut"] for row in rows) == 11


@pytest.fixture
def empty_place(tmp_path: Path) -> TablePlace:
    empty_place = TablePlace(f"sqlite:///{tmp_path}/store.db", "games")
    Connection(empty_place).close()
    return empty_place


@pytest.fixture
def _quick(monkeypatch):
    monkeypatch.setattr(module, "RENEW_SECONDS", 0.01)


def leases(empty_place: TablePlace, clock=system_clock) -> CleanUpLease:
    return CleanUpLease(Connection(empty_place).table, clock)


def found(empty_place: TablePlace) -> Lease | None:
    return drive(leases(empty_place).find())


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("take_over", [False, True])
def test_it_is_held_in_the_block_and_given_back_after_it(empty_place, take_over):
    if take_over:
        drive(leases(empty_place).take("ada"))
    with holding(empty_place, system_clock, take_over=take_over) as token:
        held = found(empty_place)
        assert held is not None
        assert (held.token, "(process " in held.holder) == (token, True)
        with pytest.raises(LeaseHeldError), holding(empty_place, system_clock, take_over=False):
            pytest.fail("It was taken twice.")

    assert found(empty_place) is None


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_it_is_given_back_when_the_block_is_broken_off(empty_place, error):
    with pytest.raises(error), holding(empty_place, system_clock, take_over=False):
        raise error

    assert found(empty_place) is None


@pytest.mark.usefixtures("_quick")
def test_it_is_renewed_as_long_as_the_block_takes(empty_place):
    renewed, began = threading.Event(), system_clock()
    shown = iter(range(10**6))

    def clock() -> int:
        now = next(shown)
        if now > 10:
            renewed.set()
        return began + now * LENGTH

    with holding(empty_place, clock, take_over=False):
        first = found(empty_place)
        assert renewed.wait(60)
        last = found(empty_place)

    assert first is not None
    assert last is not None
    assert last.expires_at >= first.expires_at + LENGTH
    assert found(empty_place) is None


@pytest.mark.usefixtures("_quick")
@pytest.mark.parametrize("error", [LeaseLostError, KeyboardInterrupt])
def test_whoever_it_is_taken_from_is_told_and_leaves_it_to_the_other(empty_place, error):
    def lose_it() -> None:
        with holding(empty_place, system_clock, take_over=False):
            (keeper,) = (thread for thread in threading.enumerate() if thread.name == "lease")
            drive(leases(empty_place).take("grace", take_over=True))
            keeper.join(60)
            assert not keeper.is_alive()
            if error is KeyboardInterrupt:  # which is not hidden
                raise error("taken over by grace")

    with pytest.raises(error, match="taken over by grace"):
        lose_it()

    held = found(empty_place)
    assert held is not None
    assert held.holder == "grace"


DIARIES = ("d-1", "d-2", "d-3")
LONG_AGO, YOUNG = NOW - 100 * DAY, NOW - DAY


class CrashError(Exception):
    """Stands for a process that died."""


@pytest.fixture
def place_of_letters(tmp_path: Path) -> TablePlace:
    """Give a table with a letter in each of three streams, and a young one in one of them."""
    place_of_letters = TablePlace(f"sqlite:///{tmp_path}/store.db", "games")
    table = Connection(place_of_letters).table
    for diary in DIARIES:
        refuse(table, diary, f"bad-{diary}", LONG_AGO)
    refuse(table, "d-2", "young", YOUNG)
    return place_of_letters


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "export"
    prepare_parts(folder)
    return folder


def refuse(table: Table, diary: str, message_id: str, at: int) -> None:
    message = misbehave("fail", message_id, enqueued_at=at)
    body = str(message.body).replace('"d-1"', f'"{diary}"')
    worker = Worker(table, clock=ToldClock(at), business_id=diary)
    assert worker.process(message._replace(body=body))[0].is_dead_letter


def truncate(place: TablePlace, folder: Path | None, **options: Any) -> int:
    """Give up what is older than thirty days, and return how many that were."""
    given: dict[str, Any] = {
        "give_up_letters_older_than": 30 * DAY,
        "open_batches": OpenBatches(),
        "export": folder,
    }
    return sum(row["letters"] for row in run(job(place, **given, **options)))


def waiting(place_of_letters: TablePlace) -> set[str]:
    async def read() -> set[str]:
        table = Connection(place_of_letters).table
        return {found.letter.message_id async for found in find_letters(table, Selection())}

    return drive(read())


def exported(folder: Path) -> list[dict[str, Any]]:
    return [
        json.loads(line) for path in folder.glob("letters-*.jsonl") for line in path.read_text().splitlines()
    ]


def test_each_is_a_line_like_those_that_letters_are_exported_to(place_of_letters: TablePlace, folder: Path):
    assert truncate(place_of_letters, folder) == 3

    assert waiting(place_of_letters) == {"young"}
    lines = exported(folder)
    assert [(each["stream"], each["message_id"]) for each in lines] == [
        (each, f"bad-{each}") for each in DIARIES
    ]
    assert lines[0]["body"]["how"] == "fail"
    assert lines[0]["reason"] == "handler_error"
    (path,) = folder.iterdir()
    assert files_that_name(folder, "Diary", ["d-2"]) == {path: 1}


def test_after_a_crash_at_any_call_each_letter_waits_or_is_in_a_file(
    place_of_letters: TablePlace, folder: Path
):
    points = 0
    while exported(folder) == [] or waiting(place_of_letters) != {"young"}:
        points += 1

        def die(call: str, partition: str, number: int, *_: object, point: int = points) -> None:
            if number == point:
                raise CrashError

        try:
            truncate(
                place_of_letters,
                folder,
                wrap=lambda table, die=die: InterceptedTable(table, before=die),
                in_flight=1,
            )
        except CrashError:
            assert not list(folder.glob("*-unfinished"))
        kept = {each["message_id"] for each in exported(folder)}
        assert waiting(place_of_letters) | kept == {"young", *(f"bad-{diary}" for diary in DIARIES)}
    assert points > 5


def test_what_was_not_read_back_as_it_was_written_is_not_given_up(
    place_of_letters: TablePlace, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    flush: Callable[[int], None] = os.fsync

    def damage(descriptor: int) -> None:
        flush(descriptor)
        for path in folder.glob("letters-*"):
            path.write_bytes(path.read_bytes()[:-10])

    monkeypatch.setattr(os, "fsync", damage)

    with pytest.raises(ArchiveError, match="was corrupted while it was written"):
        truncate(place_of_letters, folder)

    assert len(waiting(place_of_letters)) == 4
    assert list(folder.iterdir()) == []


class Time:
    """A clock that goes on only where somebody sleeps or works."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.now += seconds


@given(st.floats(0.1, 1000), st.lists(st.floats(0, 3), min_size=1, max_size=60))
def test_in_no_second_is_more_than_one_token_more_taken_than_the_pace(per_second, pauses):
    time = Time()
    pace = Pace(per_second, time)
    taken = []
    for pause in pauses:
        time.now += pause
        taken.append(time.now + pace.take())

    assert taken == sorted(taken)
    for number, first in enumerate(taken):
        within = [at for at in taken[number:] if at < first + 1]
        assert len(within) <= per_second + 1


def test_what_was_not_taken_is_not_saved_up_and_those_who_ask_at_once_wait_one_after_another():
    time = Time()
    pace = Pace(10, time)
    time.now += 60

    assert [pace.take() for _ in range(4)] == pytest.approx([0, 0.1, 0.2, 0.3])


def test_each_call_of_a_table_waits_for_its_turn_where_there_is_a_pace_and_is_counted():
    for pace, seconds in [(2, 1.0), (None, 0.0)]:
        time, table = Time(), memory_table()
        paced = RateLimitedTable(table, Pace(pace, time) if pace else None, time.sleep)

        drive(paced.transact("a", [Operation.insert("1", {}), Operation.insert("2", {})]))
        drive(paced.get("a", "1"))
        drive(paced.query("a", "1", "2"))

        assert (time.now, paced.calls) == (1000.0 + seconds, 3)


def test_a_report_that_spark_could_not_read_back_is_refused_before_anything_is_deleted(tmp_path):
    with pytest.raises(UsageError, match="in its name are a pattern"):
        TruncationOptions(keep_last=1, report=tmp_path / "rep[1]")

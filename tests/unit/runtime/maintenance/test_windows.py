"""Windows: since when duplicates are recognised for certain, in one stream and over those of a table."""

import json
from typing import Any

import pytest

from eventstore import InterceptedTable, KeyRange, Table, drive
from eventstore.stream import split_streams
from runtime.algorithms.state_based.truncation import TruncationRules, truncate_stream
from runtime.ledger.batch import OpenBatches
from runtime.maintenance.statistics import HOUR, Window, Windows, window_of, windows
from runtime.versions import limits
from runtime.versions.tail import Head
from tests.unit.runtime.diary import write
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import DAY, NOW, ToldClock, Worker, ends

OLD = NOW - 10 * DAY


def add(table: Table, diary: str, enqueued_at: int | None, *, written_at: int = OLD) -> None:
    """Add a version to the stream of a diary."""
    worker = Worker(table, clock=ToldClock(written_at), batch="done", business_id=diary)
    line = f"{diary}{enqueued_at}{written_at}"
    assert ends(worker.process(write(line, diary=diary, enqueued_at=enqueued_at))) == ["processed"]


def cut(table: Table, diary: str, **rules: Any) -> None:
    """Cut all versions of a diary but the newest."""
    made = TruncationRules.of(NOW, OpenBatches(), **{"older_than": DAY, **rules})
    drive(truncate_stream(table, f"Diary-{diary}", made, PATIENCE))


def window_in(table: Table, diary: str) -> Window:
    """Return the window of a diary that is there."""
    window = drive(window_of(table, "Diary", diary))
    assert window is not None
    return window


@pytest.fixture
def table() -> Table:
    """Give a table with a diary that was cut, one that was not, and one of which a version without a time was cut."""
    table = memory_table()
    for diary, first in (("cut", OLD), ("whole", OLD), ("undated", None)):
        add(table, diary, first)
        add(table, diary, OLD + HOUR, written_at=OLD + HOUR)
    cut(table, "cut")
    cut(table, "undated", allow_undated=True)
    return table


def test_a_stream_that_was_never_cut_recognises_everything(table):
    window = window_in(table, "whole")

    assert tuple(window) == ("Diary", "whole", 2, 1, OLD, None, False)
    assert window.sentence == "No version was cut: each duplicate is recognised, however old it is."


def test_a_stream_that_was_cut_tells_its_horizon_and_its_oldest_version(table):
    window = window_in(table, "cut")

    assert tuple(window) == ("Diary", "cut", 2, 2, OLD + HOUR, OLD, False)
    assert "enqueued after 2025-12-22T00:00:00+00:00 are recognised for certain" in window.sentence
    assert "Messages without enqueued_at are all recognised." in window.sentence


def test_a_cut_version_without_a_time_concerns_messages_without_one(table):
    window = window_in(table, "undated")

    assert (window.horizon, window.undated_cut) == (None, True)
    assert window.sentence.startswith("Each duplicate with enqueued_at is recognised")
    assert "An unknown message without enqueued_at is too_late." in window.sentence


def test_what_it_tells_is_what_happens(table):
    # Given what the window says of the diary that was cut: nothing up to the horizon is told apart
    horizon = window_in(table, "cut").horizon
    assert horizon is not None
    worker = Worker(table, business_id="cut", batch="later")

    known, late, new = (
        write(f"cut{OLD + HOUR}{OLD + HOUR}", diary="cut", enqueued_at=OLD + HOUR),
        write("unknown", diary="cut", enqueued_at=horizon),
        write("another", diary="cut", enqueued_at=horizon + 1),
    )

    assert ends(worker.process(known, late, new)) == ["duplicate", "too_late", "processed"]


def test_the_oldest_version_of_runs_is_that_of_the_first_run(monkeypatch):
    monkeypatch.setattr(limits, "MAX_SEGMENT_VERSIONS", 0)
    table = memory_table()
    for number in range(3):
        add(table, "runs", OLD + number, written_at=OLD + number)

    assert window_in(table, "runs").oldest == OLD


def test_there_is_no_window_where_there_is_no_stream(table):
    assert drive(window_of(table, "Diary", "nobody")) is None


def test_the_windows_of_a_table_are_counted(table):
    found = drive(windows(table))

    assert (found.streams, found.cut, found.undated_cut, found.horizon) == (3, 2, 1, OLD)
    assert [each.business_id for each in found.worst] == ["cut", "undated"]
    assert list(found.quantiles()) == [(share, OLD) for share in (1.0, 0.99, 0.9, 0.5, 0.1)]
    assert "An unknown message without enqueued_at is too_late." in found.sentence
    assert drive(windows(table, KeyRange("Other-"))).streams == 0


def test_quantiles_are_rounded_to_the_safe_side_and_the_worst_come_first():
    found = Windows(limit=2)
    for number in range(1, 101):
        found.add("Diary", f"d{number}", Head(None, 1, 5, 3, horizon=number * HOUR - 1))

    assert list(found.quantiles()) == [
        (1.0, 100 * HOUR - 1),  # none is later than the newest
        (0.99, 99 * HOUR),
        (0.9, 90 * HOUR),
        (0.5, 50 * HOUR),
        (0.1, 10 * HOUR),
    ]
    assert [each.business_id for each in found.worst] == ["d100", "d99"]
    assert found.horizon == 100 * HOUR - 1


def test_memory_does_not_grow_with_the_streams():
    found = Windows(limit=3)
    for number in range(20_000):
        found.add("Diary", f"d{number}", Head(None, 1, 5, 3, horizon=number * HOUR // 1000))

    assert len(found.horizons) <= 21
    assert len(found.worst) == 3


def test_a_window_takes_one_request(table):
    class Counting(InterceptedTable):
        calls = 0

        async def _call(self, name, partition_key, call):
            self.calls += 1
            return await super()._call(name, partition_key, call)

    for work in (lambda watched: window_of(watched, "Diary", "cut"), windows):
        watched = Counting(table)
        drive(work(watched))
        assert watched.calls == 1


@pytest.mark.parametrize("limit", [1, 2, 0])
def test_the_windows_of_ranges_are_together_those_of_the_table(table, limit):
    for number in range(6):
        add(table, f"more-{number}", OLD - number * HOUR)
        add(table, f"more-{number}", OLD, written_at=OLD + HOUR)
        cut(table, f"more-{number}")
    whole = drive(windows(table, limit=limit))

    together = Windows(limit)
    for keys in drive(split_streams(table, 3)):
        # ... which cross from the workers to the driver as JSON
        together.merge(json.loads(json.dumps(drive(windows(table, keys, limit)).document())))

    assert together.document() == whole.document()
    assert list(together.quantiles()) == list(whole.quantiles())
    assert len(together.worst) == (limit or 8)
    assert together.worst == whole.worst

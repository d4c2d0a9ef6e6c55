"""Streams that are processed together end as streams that are processed one by one, whatever their messages are."""

import json
from collections import Counter
from collections.abc import Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from eventstore import StoreUnavailableError, connect, drive
from eventstore.backends import rows, sqlite
from eventstore.backends.sqlite import SqliteTable
from runtime.algorithms.state_based.algorithm import StreamsTogether
from runtime.batch_options import BatchOptions
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.spark.worker import job as cutting
from runtime.spark.worker.job import FoldJob
from runtime.versions import limits
from runtime.versions.stream import find_versions, summaries, versions
from tests.support.routed import routed
from tests.unit.runtime.diary import app

NOW = 1_760_000_000_000_000
HOUR = 3600 * 1_000_000
DEEDS = ["set and fail", "fail", "set an attribute", "return nothing", "fill the diary", "burn the diary"]

kinds = st.sampled_from(["Write"] * 12 + ["Ponder"] * 3 + ["Misbehave", "Misbehave", "Nonsense", "Unknown"])
entries = st.tuples(
    st.integers(0, 7),  # the diary
    st.integers(0, 40),  # the message: with equal numbers there are copies, and ids that are reused
    kinds,
    st.sampled_from([None, NOW - HOUR, NOW] * 20 + [NOW + 2 * HOUR]),  # enqueued at
    st.booleans(),  # has headers
)
batches = st.lists(st.lists(entries, min_size=1, max_size=40), min_size=1, max_size=4)
numbers = count()


def row(entry: tuple[int, int, str, int | None, bool], place: int) -> dict[str, Any]:
    """Return a message of a log."""
    diary, number, kind, enqueued_at, has_headers = entry
    body: dict[str, Any] = {"diary": f"d-{diary}", "line": f"line {number}"}
    if kind == "Misbehave":
        body["how"] = DEEDS[number % len(DEEDS)]
    return {
        "message_id": f"m-{diary}-{number}"
        if number % 3
        else f"00000000-0000-4000-8000-{diary:06}{number:06}",
        "type": "Write" if kind == "Nonsense" else kind,
        "body": f'{{"diary": "d-{diary}", "line": 7}}' if kind == "Nonsense" else json.dumps(body),
        "sequence": place,
        "enqueued_at": enqueued_at,
        "headers": {"trace": str(number)} if has_headers else None,
    }


def url(tmp_path_factory: pytest.TempPathFactory) -> str:
    return f"sqlite:///{tmp_path_factory.mktemp('store')}/store.db"


def fold(store: str, number: int, entries: Sequence[Any], **context: Any) -> list[dict[str, Any]]:
    """Fold a batch, and return its outcomes in an order of their own."""
    batch = BatchContext(f"night-{number}", OpenBatches(next=number + 1), number=number, **context)
    job = FoldJob(app, store, "diaries", batch, BatchOptions(clock=lambda: NOW, in_flight=4))
    log = routed(app, [row(entry, place) for place, entry in enumerate(entries)])
    outcomes = [each for found in job.fold(log) for each in found.to_pylist()]
    return sorted(outcomes, key=lambda each: json.dumps(each, default=str, sort_keys=True))


def stored(store: str) -> list[Any]:
    """Return all that is stored of each stream, decoded."""

    async def read() -> list[Any]:
        table = await connect(store).table("diaries")
        found = []
        async for each in summaries(table):
            history = await find_versions(table, each.handler, each.business_id, ())
            assert history is not None
            head = each.head._replace(tail=None)
            made = await versions(table, each.handler, each.business_id)
            found.append((each.key, head, made, history.letters.all))
        return found

    return drive(read())


@settings(suppress_health_check=list(HealthCheck), deadline=None)
@given(batches, st.integers(1, 12), st.sampled_from(["continue", "stop-stream", "park"]), st.data())
def test_any_chunks_of_streams_end_as_one_by_one(tmp_path_factory, log, most, on_error, data):
    one_by_one, together = url(tmp_path_factory), url(tmp_path_factory)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_TAIL_BYTES", data.draw(st.sampled_from([600, 12 * 1024])))
        patch.setattr(sqlite, "FEWEST_TOGETHER", data.draw(st.integers(1, 4)))
        patch.setattr(rows, "FEWEST_SAMPLES", data.draw(st.integers(1, 40)))
        for number, entries in enumerate(log, 1):
            patch.setattr(cutting, "SMALL_DELIVERIES", 0)
            expected = fold(one_by_one, number, entries, on_error=on_error)
            patch.setattr(cutting, "SMALL_DELIVERIES", 30)
            patch.setattr(cutting, "MAX_CHUNK_DELIVERIES", most)

            assert fold(together, number, entries, on_error=on_error) == expected
            assert stored(together) == stored(one_by_one)


WRITES = [(diary, 1, "Write", None, False) for diary in range(8)]


def statuses(outcomes: Sequence[dict[str, Any]]) -> Counter[str]:
    return Counter(each["status"] for each in outcomes)


@pytest.fixture
def store(tmp_path) -> str:
    return f"sqlite:///{tmp_path}/store.db"


@pytest.mark.parametrize("rivals", [1, 3, 8])
def test_a_stream_that_another_worker_wrote_meanwhile_is_loaded_again_alone(store, monkeypatch, rivals):
    fold(store, 1, [(diary, 9, "Write", None, False) for diary in range(4)])
    query_each, is_first = SqliteTable.query_each, count()

    async def overtaken(self, keys, first, last):
        found = await query_each(self, keys, first, last)
        if not next(is_first):
            fold(store, 2, WRITES[:rivals])
        return found

    monkeypatch.setattr(SqliteTable, "query_each", overtaken)

    outcomes = fold(store, 3, WRITES)

    assert statuses(outcomes) == Counter(duplicate=rivals, processed=8 - rivals)
    assert [len(made) for _, _, made, _ in stored(store)] == [2] * 4 + [1] * 4


def test_a_lost_answer_to_the_commit_makes_no_version_twice(store, monkeypatch):
    transact_each, is_first = SqliteTable.transact_each, count()

    async def lost(self, transactions):
        results = await transact_each(self, transactions)
        if not next(is_first):
            raise StoreUnavailableError("The answer was lost.", True)
        return results

    monkeypatch.setattr(SqliteTable, "transact_each", lost)

    outcomes = fold(store, 1, WRITES)

    assert statuses(outcomes) == {"processed": 8}
    assert [len(each["outputs"]) for each in outcomes] == [1] * 8
    assert [len(made) for _, _, made, _ in stored(store)] == [1] * 8


@pytest.mark.parametrize(
    ("others", "left"),
    [
        ([], 0),
        ([(3, 2, "Misbehave", None, False)], 1),  # its handler fails
        ([(3, 1, "Write", None, False)], 1),  # a copy of its message
        ([(4, 2, "Nonsense", None, False)], 1),
        ([(3, 2, "Write", NOW + 2 * HOUR, False)], 1),
    ],
)
def test_only_the_streams_that_need_more_are_left(store, monkeypatch, others, left):
    process, found = StreamsTogether.process, Counter[str]()

    async def counted(self, business_ids, ends, deliveries):
        outcomes, numbers = await process(self, business_ids, ends, deliveries)
        found.update(left=len(numbers), together=len(ends) - len(numbers))
        return outcomes, numbers

    monkeypatch.setattr(StreamsTogether, "process", counted)
    ends = [(diary, 1, "Write", None, False) for diary in (-1, 9)]  # they may be of streams that are cut

    fold(store, 1, [*ends, *WRITES, *others])

    assert found == {"left": left, "together": 8 - left}

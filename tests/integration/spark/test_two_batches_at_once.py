"""Two batches over the same streams at the same time: no update is lost, and every message counts once."""

import json
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.support.logs import generated
from tests.support.outcomes import Left, heads, left, published, statuses


def test_no_update_is_lost(any_place):
    place = any_place
    # Given two logs for the same few games, which share half of their messages
    logs, shared = overlapping_logs(place.folder)

    # When they run at the same time
    outcomes = run_at_once(place, logs)

    # Then each message was processed by one of them, and was a duplicate in the other
    found: dict[str, list[str]] = {}
    for each in outcomes:
        for message_id, values in statuses(each).items():
            found.setdefault(message_id, []).extend(values)
    assert Counter(tuple(sorted(found[message_id])) for message_id in shared) == {
        ("duplicate", "processed"): 200
    }
    assert all(values == ["processed"] for message_id, values in found.items() if message_id not in shared)

    # ... with the same outputs in both, and a version for each
    both = Counter(output for each in outcomes for output in published(each))
    ids = Counter(output[0] for output in both)
    assert set(ids.values()) == {1}
    assert sum(versions for versions, _ in heads(place.store, place.table).values()) == 600


@pytest.mark.thorough
def test_with_an_outbox_each_message_is_processed_by_one_of_them_and_nothing_is_left(place):
    logs, _ = overlapping_logs(place.folder)

    outcomes = run_at_once(place, logs, algorithm="deduplication-store", cascade=True)

    found = Counter(
        (row.handler, row.message_id)
        for each in outcomes
        for row in each.where("status = 'processed'").collect()
    )
    assert set(found.values()) == {1}
    hits = len({output[:3] for each in outcomes for output in published(each)})
    assert len(found) == 600 + hits
    assert len({output[0] for each in outcomes for output in published(each)}) == hits
    assert left(place.store, place.table) == Left({"ShootingRange": 600, "LeaderBoard": hits}, 0, 0)


def overlapping_logs(folder):
    """Write two logs for the same few games, and return them with the ids of the messages that are in both."""
    first = generated(folder / "1.jsonl", games=4, messages=400, shuffle=True)
    rows = [json.loads(line) for line in Path(first).read_text().splitlines()]
    second = folder / "2.jsonl"
    generated(folder / "more.jsonl", games=4, messages=200, begin=datetime(2026, 1, 2, tzinfo=UTC))
    second.write_text(
        "".join(json.dumps(row) + "\n" for row in rows[:200]) + (folder / "more.jsonl").read_text()
    )
    return [first, str(second)], {row["message_id"] for row in rows[:200]}


def run_at_once(place, logs, **options):
    """Run a batch over each log, all at the same time, and return their outcomes."""
    with ThreadPoolExecutor(len(logs)) as threads:
        running = [
            threads.submit(place.run, log, batch_id=name, **options)
            for name, log in zip("ab", logs, strict=True)
        ]
        return [each.result() for each in running]


@pytest.mark.thorough
def test_a_name_in_the_out_folder_that_is_gone_when_it_is_opened_stops_no_batch(place):
    # Given a name without a file in the folder that two batches write to, as when one cleans up while the other looks
    log = generated(place.folder / "log.jsonl", games=2, messages=20)
    out = place.folder / "out"
    out.mkdir()
    (out / "gone").symlink_to(place.folder / "nowhere")

    # When a batch puts its outcomes in place
    outcomes = place.run(log)

    # Then it ends as ever
    assert {status for values in statuses(outcomes).values() for status in values} == {"processed"}

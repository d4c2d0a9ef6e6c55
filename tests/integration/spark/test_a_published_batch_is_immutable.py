"""A batch runs once: its outcomes are written once, put in place whole, and never change."""

from pathlib import Path
from typing import Any

import pytest

from eventstore import InterceptedTable
from runtime.errors import BatchRefusedError
from runtime.spark.connection import open_table
from tests.support.faults import CountCalls
from tests.support.logs import fire, generated, start, write_lines
from tests.support.outcomes import all_outcomes, by_status


def test_running_it_again_returns_what_was_published(place):
    # Given a published batch
    log = generated(place.folder / "log.jsonl", games=5, messages=50)
    first = all_outcomes(place.run(log, batch_id="night", cascade=True))

    # When it is run again with its id
    counter = CountCalls(str(place.folder))
    again = place.run(log, batch_id="night", cascade=True, wrap=counter)

    # Then nothing is handled, and the outcomes are those of the first time
    assert all_outcomes(again) == first
    assert not list(place.folder.glob("*.calls"))


def test_the_outcomes_are_read_from_what_was_written(place):
    # Given a batch that has run
    log = generated(place.folder / "log.jsonl", games=5, messages=50)
    counter = CountCalls(str(place.folder))
    outcomes = place.run(log, wrap=counter)
    calls = counter.calls("query")

    # When its outcomes are looked at twice, and sorted
    assert outcomes.count() == outcomes.orderBy("message_id").count() == 50
    outcomes.toPandas()

    # Then no handler ran again
    assert counter.calls("query") == calls == 5


@pytest.mark.parametrize("change", ["content", "option", "folder"])
def test_the_same_id_with_something_else_is_refused(place, change):
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 5)])
    place.run(log, batch_id="night")
    options: dict[str, Any] = {
        "option": {"cascade": True},
        "folder": {"out": str(place.folder / "elsewhere")},
    }.get(change, {})
    if change == "content":
        log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 6)])
    with pytest.raises(BatchRefusedError, match="Batch night"):
        place.run(log, batch_id="night", **options)


def test_outcomes_of_another_store_under_the_same_id_are_not_taken_for_ones_own(place):
    # Given the outcomes of a batch, whose store is gone
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 5)])
    place.run(log, batch_id="night")
    place.store = f"sqlite:///{place.folder}/new.db"

    # When the batch runs on a new store, then it is refused
    with pytest.raises(BatchRefusedError, match="from another store"):
        place.run(log, batch_id="night")


def test_a_batch_that_stops_leaves_nothing_in_place_and_no_staging_once_it_is_resumed(place):
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 5)])
    batch = Path(place.out) / "batch_id=night"

    def stop(step: str) -> None:
        if step == "Round 0: committing outcomes":
            raise KeyboardInterrupt

    # Given a batch that was stopped with its outcomes staged
    with pytest.raises(KeyboardInterrupt):
        place.run(log, batch_id="night", step=stop)
    assert not batch.exists()
    assert list((Path(place.out) / "_staging").iterdir())

    # When it is run again, then its outcomes are in place, and what was staged is gone
    assert by_status(place.run(log, batch_id="night")) == {("ShootingRange", "processed"): 2}
    assert batch.is_dir()
    assert not (Path(place.out) / "_staging").exists()


def test_what_was_stored_is_made_durable_before_its_outcomes_are_in_place(place):
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 5)])
    connection = open_table(place.store, place.table)
    in_place = Path(place.out) / "batch_id=night" / "round=0"
    seen: list[tuple[str, bool]] = []

    def before(call, *_):
        if getattr(call, "name", call) == "barrier":
            seen.append(("barrier", in_place.exists()))

    connection.table = InterceptedTable(connection.table, before)
    place.run(log, batch_id="night", step=lambda step: seen.append((step, in_place.exists())))

    # The barrier stands between the appends and the renaming
    committing = seen.index(("Round 0: committing outcomes", False))
    assert seen[committing + 1] == ("barrier", False)
    assert ("Round 0: counting outcomes", True) in seen

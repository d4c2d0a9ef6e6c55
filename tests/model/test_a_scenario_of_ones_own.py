"""Any coroutine that awaits tables and `publish` can be explored; a scenario for it takes some thirty lines."""

from functools import partial

from eventstore import ANY_ETAG, Operation, RowChangedError, RowExistsError
from runtime.versions.properties import number
from tests.model.calls import SteppedTable, publish
from tests.model.explorer import explore
from tests.model.facts import Invariant, Scenario, View
from tests.model.histories import Job
from tests.model.schedule import replay, seed
from tests.model.world import Bounds


async def count(process, *, guarded: bool) -> int:
    """Count one more, in a row that everybody counts in, and tell it."""
    table = SteppedTable("counters")
    while True:
        row = await table.get("all", "visitors")
        counted = number(row.properties, "Number") + 1 if row else 1
        etag = row.etag if row and guarded else ANY_ETAG
        properties = {"Number": counted}
        operation = (
            Operation.insert("visitors", properties)
            if row is None
            else Operation.replace("visitors", properties, etag)
        )
        try:
            await table.transact("all", [operation])
        except (RowExistsError, RowChangedError):
            continue
        await publish(counted)
        return counted


def _counted_twice(view: View) -> str | None:
    numbers = [done.result for done in view.facts.done]
    if view.is_quiescent and sorted(numbers) != list(range(1, 4)):
        return f"three visitors were counted as {sorted(numbers)}"
    return None


def committed(snapshot):
    rows = snapshot.tables.get("counters", {}).get("all", {})
    return {key: row.properties["Number"] for key, row in rows.items()}


def visitors(*, guarded: bool) -> Scenario:
    jobs = [Job(name, partial(count, guarded=guarded)) for name in "abc"]
    return Scenario("three visitors", jobs, [Invariant("EachCounts", _counted_twice)], committed)


def test_what_is_right_is_found_right():
    report = explore(visitors(guarded=True), Bounds(workers=3))

    assert report.violation is None
    assert report.ends > 0


def test_what_is_wrong_is_found_with_its_shortest_schedule():
    scenario = visitors(guarded=False)

    found = explore(scenario, Bounds(workers=3)).violation

    # The first visitor makes the row; then two read the same number and both write the next one.
    assert found is not None
    assert found.invariant == "EachCounts"
    assert len(found.schedule) == 3 * len(["delivered", "get", "transact", "publish", "acknowledged"])
    assert replay(scenario, seed(scenario, found.schedule)).problem == found.problem


def test_a_crash_shows_that_counting_is_not_idempotent():
    assert explore(visitors(guarded=True), Bounds(workers=1, crashes=1)).violation is not None

"""A batch runs once, its outcomes never change, and a version whose outputs are unpublished is replayed as it was."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from eventstore import InterceptedTable, connect, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime.clock import system_clock
from runtime.errors import BatchFailedError, BatchRefusedError
from runtime.ledger.ledger import Ledger
from runtime.spark.worker.connection import open_table
from tests.support.faults import CountCalls
from tests.support.logs import fire, generated, row, start, write_lines
from tests.support.outcomes import all_outcomes, by_status, published, statuses


def test_running_it_again_returns_what_was_published(place):
    log = generated(place.folder / "log.jsonl", games=5, messages=50)
    outcomes = place.run(log, batch_id="night", cascade=True)
    copied = shutil.copy(log, place.folder / "copied.jsonl")

    for each in (log, copied):
        again = place.run(each, batch_id="night", cascade=True, wrap=CountCalls(str(place.folder)))

        # Nothing is handled, and the outcomes are those of the first time
        assert all_outcomes(again) == all_outcomes(outcomes)
        assert not list(place.folder.glob("*.calls"))


@pytest.mark.thorough
def test_an_id_that_was_pruned_needs_another_folder_and_gives_the_outputs_as_duplicates(place):
    # Given a batch whose row the ledger has forgotten
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 5)])
    first = place.run(log, batch_id="night")
    given = sorted(Path(place.out).rglob("*"))
    connection = open_table(place.store, place.table)
    assert connection.run(Ledger(connection.table, system_clock).prune(system_clock() + 1)) == 1

    # When its id is used again, then its folder is refused, and nothing is written
    with pytest.raises(BatchRefusedError, match="or was pruned from this ledger: choose another --out"):
        place.run(log, batch_id="night")
    assert sorted(Path(place.out).rglob("*")) == given
    assert connection.run(Ledger(connection.table, system_clock).batches(9)) == []

    # And in another folder it is a new batch, to which all messages are duplicates
    again = place.run(log, batch_id="night", out=str(place.folder / "elsewhere"))
    assert {row.status for row in again.collect()} == {"duplicate"}
    assert published(again) == published(first)


def test_a_batch_that_stops_leaves_nothing_in_place_and_no_staging_once_it_is_resumed(place):
    log = write_lines(place.folder / "log.jsonl", [start(1, 5), fire(2, 5)])
    batch = Path(place.out) / "batch_id=night"

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
    # ... with staging of a batch with a longer name, which is to be left alone
    other = Path(place.out) / "_staging" / f"night-round-2-round-0-{'0' * 32}"
    other.mkdir(parents=True)
    seen: list[tuple[str, bool]] = []

    def before(call, *_):
        if getattr(call, "name", call) == "barrier":
            seen.append(("barrier", in_place.exists()))

    connection.table = InterceptedTable(connection.table, before)
    place.run(log, batch_id="night", step=lambda step: seen.append((step, in_place.exists())))

    # The barrier stands between the appends and the move into place
    committing = seen.index(("Round 0: committing outcomes", False))
    assert seen[committing + 1] == ("barrier", False)
    assert ("Round 0: recording in the ledger", True) in seen
    assert other.is_dir()


class Said(Message):
    text: str


class Told(Message):
    key: str
    file: str


class Nothing(State):
    pass


class Untrue(Handler[Nothing]):
    """Publishes what stands in a file: not what a handler may do."""

    @handles(by="key")
    def told(self, state: Nothing, message: Told, context: Context) -> Nothing:
        context.publish(Said(text=Path(message.file).read_text()))
        return state


app = App(Untrue)


def stop(step: str) -> None:
    if step == "Round 0: committing outcomes":
        raise KeyboardInterrupt


@pytest.fixture
def told(place):
    """Give a log, and the file whose content its handler publishes."""
    place.app = app
    file = place.folder / "truth"
    file.write_text("yes")
    log = write_lines(place.folder / "log.jsonl", [row(1, "Told", {"key": "k", "file": str(file)})])
    return log, file


@pytest.mark.thorough
def test_what_was_never_published_and_differs_fails_batches_until_it_is_abandoned(place, told):
    # Given a batch that appended and then stopped, after which its handler says something else
    log, file = told
    with pytest.raises(KeyboardInterrupt):
        place.run(log, batch_id="night", step=stop)
    file.write_text("no")

    # Then neither it nor another one can run
    for batch_id in ("night", "morning"):
        with pytest.raises(BatchFailedError, match="batch night, whose outputs were never published"):
            place.run(log, batch_id=batch_id)

    # ... until it is abandoned, and the message is a dead letter
    async def abandon():
        async with connect(place.store) as store:
            await Ledger(await store.table(place.table), system_clock).abandon("night")

    drive(abandon())
    assert list(statuses(place.run(log, batch_id="morning")).values()) == [["nondeterministic"]]
    with pytest.raises(BatchRefusedError, match="abandoned"):
        place.run(log, batch_id="night")

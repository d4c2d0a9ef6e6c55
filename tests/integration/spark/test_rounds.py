"""Rounds: cascades, files of outcomes that workers write, and stores that move no folders."""

import asyncio
import itertools
import random
import shutil
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import dataset
from pyspark.sql import functions as sf

from handlers import App, Context, Handler, Message, State, handles
from runtime.batch_options import BatchOptions
from runtime.cli.commands.outcomes import open_outcomes
from runtime.errors import BatchFailedError, BatchRefusedError
from runtime.file_systems import open_folder
from runtime.ledger.ledger import BatchRecord, BatchStatus
from runtime.outcome_files import OutcomeFilter
from runtime.spark import Batch, outputs, run_batch
from runtime.spark import batch as rounds
from runtime.spark.commit import BatchFolders
from runtime.spark.worker.connection import open_table
from runtime.spark.worker.outcomes import PART, Fold, OutcomeFile, PartJob
from samples.shooting_range import app as shooting_range
from tests.integration.spark.conftest import Place
from tests.support.clocks import FrozenClock
from tests.support.faults import FailOnceAfterWriting, KillOnceAmidAFile, as_outcomes
from tests.support.logs import fire, row, start, write_lines
from tests.support.outcomes import by_status, published
from tests.support.rounds import (
    Steps,
    all_steps,
    overtake,
)


class Ping(Message):
    key: str
    left: int


class Told(Message):
    key: str


class Count(State):
    count: int = 0


class Player(Handler[Count]):
    """Answers itself until nothing is left, and tells somebody outside."""

    @handles(by="key")
    def ping(self, state: Count, message: Ping, context: Context) -> Count:
        context.publish(Told(key=message.key))
        if message.left:
            context.publish(Ping(key=message.key, left=message.left - 1))
        return state.model_copy(update={"count": state.count + 1})


class Listener(Handler[Count]):
    @handles(by="key")
    def told(self, state: Count, message: Told, context: Context) -> Count:
        return state.model_copy(update={"count": state.count + 1})


class Friend(Handler[Count]):
    @handles(by="key")
    def told(self, state: Count, message: Told, context: Context) -> Count:
        return state.model_copy(update={"count": state.count + 1})


app = App(Player)


@pytest.mark.connect
def test_rounds_go_on_until_no_handler_takes_an_output(place):
    place.app = app
    log = write_lines(place.folder / "log.jsonl", [row(1, "Ping", {"key": "a", "left": 3})])
    said: list[str] = []
    outcomes = place.run(log, cascade=True, step=said.append)

    # Each round handles the answer of the one before; what no handler takes is published, not a dead letter
    assert sorted(each.round for each in outcomes.collect()) == [0, 1, 2, 3]
    assert by_status(outcomes) == {("Player", "processed"): 4}
    assert sorted(output[1] for output in published(outcomes)) == ["Ping"] * 3 + ["Told"] * 4
    # and the user is told how much was done in each
    assert sum(": 1 outcomes, " in each for each in said) == 4


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a file is deleted": lambda batch: next((batch / "round=0").glob("*.parquet")).unlink(),
    "a file is cut": lambda batch: cut(next((batch / "round=1").glob("*.parquet"))),
    "all is deleted": shutil.rmtree,
    "a round is deleted": lambda batch: shutil.rmtree(batch / "round=1"),
    "a round is emptied": lambda batch: empty(batch / "round=0"),
    "its mark is deleted": lambda batch: next((batch / "round=1").glob("_batch-*")).unlink(),
}
delete_a_file = DAMAGES["a file is deleted"]


def empty(folder):
    for each in folder.iterdir():
        each.unlink()


def cut(file):
    file.write_bytes(file.read_bytes()[:-9])


@pytest.mark.thorough
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
def test_committed_outcomes_that_were_deleted_while_a_batch_is_open_are_made_again(place, damage):
    # Given a cascade that stopped after two rounds, and the same one undisturbed
    place.app = app
    pings = [row(number, "Ping", {"key": f"{number}", "left": 3}) for number in range(1, 9)]
    bad = row(9, "Ping", {"key": "1", "left": "x"})
    log = write_lines(place.folder / "log.jsonl", [*pings, pings[0], bad])
    beside = replace(place.beside("beside"), app=app)
    options = {"cascade": True, "batch_id": "night", "clock": FrozenClock.at("2026-03-01T12:00:00")}
    undisturbed = beside.run(log, **options)
    with pytest.raises(BatchFailedError, match="has not ended after 2 rounds"):
        place.run(log, **options, max_rounds=2)

    # When some of what it has committed is deleted or changed, and it is resumed
    batch = Path(place.out) / "batch_id=night"
    damage(batch)
    said: list[str] = []
    outcomes = place.run(log, **options, step=said.append)

    # Then its outcomes are all there, and the ledger counts them
    assert by_status(outcomes) == by_status(undisturbed)
    assert sorted(published(outcomes)) == sorted(published(undisturbed))
    assert place.batches()[0].counts == beside.batches()[0].counts
    assert any("were deleted or changed: running all rounds again" in each for each in said)

    # And when they are deleted once it is published, then its outcomes are not returned without them
    delete_a_file(batch)
    with pytest.raises(BatchRefusedError, match=r"is published, but its outcomes in .*round=0 were deleted"):
        place.run(log, **options)


@pytest.mark.thorough
@pytest.mark.parametrize("algorithm", ["outbox", "deduplication-store"])
def test_what_no_replay_can_make_again_is_missed(place, algorithm):
    place.app = app
    log = write_lines(place.folder / "log.jsonl", [row(1, "Ping", {"key": "a", "left": 3})])
    options = {"cascade": True, "batch_id": "night", "algorithm": algorithm}
    with pytest.raises(BatchFailedError, match="has not ended after 2 rounds"):
        place.run(log, **options, max_rounds=2)
    kept = shutil.copytree(Path(place.out) / "batch_id=night", place.folder / "kept")
    delete_a_file(Path(place.out) / "batch_id=night")

    with pytest.raises(BatchFailedError, match="cannot recreate them: restore the files"):
        place.run(log, **options)

    # When it is put back, then the batch goes on
    shutil.copytree(kept, Path(place.out) / "batch_id=night", dirs_exist_ok=True)
    assert by_status(place.run(log, **options)) == {("Player", "processed"): 4}


@pytest.mark.connect
@pytest.mark.thorough
def test_an_output_that_the_log_holds_for_one_handler_reaches_the_others(place):
    # Given what a player told somebody in an earlier batch
    ping = row(1, "Ping", {"key": "a", "left": 0})
    place.app = app
    ((message_id, type_, body, *_),) = published(place.run(write_lines(place.folder / "1.jsonl", [ping])))

    # When a log has it for one of its handlers, together with the message that publishes it
    place.app = App(Player, Listener, Friend)
    told = {"message_id": message_id, "type": type_, "body": body, "handler": "Friend"}
    outcomes = place.run(write_lines(place.folder / "2.jsonl", [ping, told]), cascade=True)

    # Then each handler has processed it once
    found = sorted((each.round, each.handler, each.status) for each in outcomes.collect())
    assert found == [(0, "Friend", "processed"), (0, "Player", "duplicate"), (1, "Listener", "processed")]


@pytest.mark.connect
@pytest.mark.thorough
def test_outputs_of_a_clock_that_was_ahead_are_handled_all_the_same(place):
    # Given a batch whose first round ran while the clock was two hours ahead
    place.app = app
    log = write_lines(place.folder / "log.jsonl", [row(1, "Ping", {"key": "a", "left": 1})])

    def die(step: str) -> None:
        if step == "Round 1: handling messages":
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        place.run(log, cascade=True, batch_id="night", clock=FrozenClock.at("2026-03-01T14:00:00"), step=die)

    # When it is resumed after the clock was put right
    outcomes = place.run(log, cascade=True, batch_id="night", clock=FrozenClock.at("2026-03-01T12:00:00"))

    assert by_status(outcomes) == {("Player", "processed"): 2}


@pytest.mark.connect
@pytest.mark.thorough
def test_a_store_on_the_network_can_be_used_from_a_notebook(azurite_url):
    # A notebook has an event loop under way
    async def cell():
        connection = open_table(azurite_url, "notebook")
        return connection.run(connection.table.get("a", "b"))

    assert asyncio.run(cell()) is None


def mixed_log(place: Place, chance: random.Random) -> str:
    """Write a log of hits, misses, duplicates and messages that cannot be handled."""
    rows = [start(1, 5)]
    for number in range(2, 60):
        rows.append(fire(number, chance.choice([5, 6]), headers={"trace": str(number)}))
        rows += [rows[-1]] * chance.choice([0, 0, 1])
    rows += [row(100, "Unheard", {}), row(101, "FireAt", "{"), row(102, "FireAt", {"game_id": None})]
    chance.shuffle(rows)
    return write_lines(place.folder / "log.jsonl", [*rows, "this is no message"])


def run(place: Place, log: str, **options) -> BatchRecord:
    batch = Batch(place.spark, shooting_range, place.store, place.table, place.out, BatchOptions(**options))
    return batch.run(log, "night").record


def test_what_the_ledger_counts_is_what_the_files_hold(place, chance):
    record = run(place, mixed_log(place, chance), cascade=True, partitions=3)

    read = place.spark.read.parquet(place.out)
    counts = Counter(each.status for each in read.collect())
    counts["outputs"] = read.select(sf.explode("outputs")).count()
    assert record.counts == counts
    assert counts["outputs"] > 10
    assert record.rounds == 2

    # ... and what a plain reader finds is in the folders of the batch, and nothing else is left
    assert {path.name for path in Path(place.out).iterdir()} == {"batch_id=night"}


def killed_amid_its_file(staged: str, marker: str) -> Fold:
    return PartJob(KillOnceAmidAFile(marker), staged, ()).run


def failed_after_its_file(staged: str, marker: str) -> Fold:
    return FailOnceAfterWriting(PartJob(as_outcomes, staged, ()), marker)


@pytest.mark.parametrize(
    "fault", [failed_after_its_file, pytest.param(killed_amid_its_file, marks=pytest.mark.thorough)]
)
def test_what_a_worker_left_behind_is_not_seen(place, fault):
    moment = datetime(2026, 3, 1, tzinfo=UTC)
    record = BatchRecord("night", "", place.out, "token", BatchStatus.STARTED, 0, moment, moment, {})
    folders = BatchFolders(place.spark, record)
    attempt, marker = folders.stage(), place.folder / "died"
    staged = folders.staged(attempt)

    # Given tasks, one of which dies and is run again
    work = fault(staged, str(marker))
    rows = place.spark.range(4).repartition(2).mapInArrow(work, PART).collect()
    assert marker.exists()
    assert len(rows) == 2
    assert len(list(Path(staged).iterdir())) == 3

    # When what they tell of is put in place
    folders.propose(attempt, [OutcomeFile(**each.asDict()) for each in rows])
    replace(folders, record=replace(folders.record, attempt=attempt)).put_in_place()
    folders.discard(attempt)

    # Then each outcome is there once, and nothing is left of the other attempt
    assert sorted(row.message_id for row in place.spark.read.parquet(place.out).collect()) == [*"0123"]
    assert not list((Path(place.out) / "_staging").iterdir())


@pytest.fixture
def out(object_store: str) -> str:
    return object_store


@pytest.mark.thorough
def test_of_two_drivers_one_has_all_in_place_and_what_it_committed_stays(out, monkeypatch):
    monkeypatch.setattr(rounds, "MERGED_UP_TO", 0)
    steps = Steps(monkeypatch)
    for number, where in itertools.islice(all_steps(out, steps), None, None, 4):
        overtake(number, where, steps)


@pytest.mark.thorough
@pytest.mark.connect(thorough=True)
def test_a_batch_with_a_cascade_is_run_there_and_read_by_all(spark, tmp_path, out):
    # Given a batch whose OUT is a url that Spark has no package for
    log = pa.Table.from_pylist([shot(number) for number in range(40)])

    def run() -> Any:
        return run_batch(
            spark, log, shooting_range, store=f"sqlite:///{tmp_path}/store.db", table="games", out=out, batch_id="one",
            cascade=True, partitions=2, clock=FrozenClock(NOW),
        )  # fmt: skip

    # When it is run, and found published when it is run again
    outcomes, again = run(), run()

    # Then Spark, pyarrow and the command line see the same, and nothing is left beside it
    found = outcomes.toArrow().sort_by(ORDER)
    assert found.num_rows > len(log)
    assert set(found["round"].to_pylist()) == {0, 1}
    assert again.toArrow().sort_by(ORDER).equals(found)
    folder = open_folder(out)
    plain = dataset.dataset(folder.path, filesystem=folder.files, partitioning="hive").to_table()
    assert plain.sort_by(ORDER)["message_id"].to_pylist() == found["message_id"].to_pylist()
    files = open_outcomes(out, "one", OutcomeFilter())
    assert sum(files.counts().values()) == found.num_rows
    assert outputs(outcomes).count() == len(list(files.published()))
    assert folder.sub("_staging").names() == []


NOW = 1_772_366_400_000_000
ORDER = [("round", "ascending"), ("message_id", "ascending")]


def shot(number: int) -> dict[str, str]:
    id_ = "00000000-0000-4000-8000-{:012d}".format
    body = f'{{"game_id": "{id_(number % 7)}", "position": {number % 10}}}'
    return {"message_id": id_(number), "type": "FireAt", "body": body}

"""Streams: epochs are in OUT all at once, wherever a driver dies, and what cannot begin is refused."""

from contextlib import nullcontext
from datetime import timedelta
from types import SimpleNamespace

import pytest
from pyarrow import parquet

from runtime.batch_options import BatchOptions, TablePlace
from runtime.errors import BatchFailedError, BatchRefusedError, UsageError
from runtime.file_systems import Folder, open_folder
from runtime.publishing.publisher import TargetOptions
from runtime.publishing.targets.sql import SqliteTarget
from runtime.spark import redrive, run_batch, run_stream, verify
from runtime.spark.publishing import PublishTo
from runtime.spark.streaming import CheckpointOwner, EpochPlaces, Stream
from runtime.spark.worker.outcomes import OutcomeFileWriter
from samples.shooting_range import app
from tests.support.checkpoints import WrittenCheckpoint
from tests.support.outcome_rows import batch, outcome, output
from tests.support.rounds import KilledError, Steps, die, visible


@pytest.fixture
def out(tmp_path):
    return str(tmp_path / "out")


@pytest.fixture
def steps(monkeypatch):
    return Steps(monkeypatch)


def publish(places, epoch, rounds=2):
    """Write the outcomes of an epoch where its micro-batch does."""
    for number in range(rounds):
        folder = open_folder(f"{places.working}/batch_id={places.query}-{epoch}/round={number}")
        folder.create()
        for _ in range(2):
            file = OutcomeFileWriter(folder, ())
            file.add(batch([outcome(outputs=[output()]) | {"version": epoch}]))
            file.close()
        folder.touch("_batch-token-0")


def seen(out):
    """Return how many outcomes of each epoch a plain reader of OUT sees."""
    if not visible(out):
        return {}
    read = parquet.ParquetDataset(out).read(["version"]).column("version").to_pylist()
    return {epoch: read.count(epoch) for epoch in sorted(set(read))}


def whole(*epochs):
    return dict.fromkeys(epochs, 4)


def test_an_epoch_is_hidden_until_it_is_put_in_place_and_others_that_are_under_way_stay_so(out):
    places = EpochPlaces(out, "shots")
    publish(places, 0)
    publish(places, 1)
    assert seen(out) == {}

    places.show(0)

    assert seen(out) == whole(0)


def test_epochs_that_wait_are_let_through_by_a_smaller_number_and_at_the_end_but_for_one_that_is_open(out):
    places = EpochPlaces(out, "shots", compact_after=9)
    for epoch in range(3):
        publish(places, epoch)
    places.show(1)
    assert seen(out) == {}

    places.show_all(lambda epoch: epoch < 2)
    assert (seen(out), seen(places.working)) == (whole(0, 1), whole(2))

    EpochPlaces(out, "shots").show(2)
    assert seen(out) == whole(0, 1, 2)


def test_epochs_wait_until_there_are_enough_and_are_one_file_for_each_round(out, tmp_path):
    places = EpochPlaces(out, "shots", compact_after=3)
    for epoch, expected in ((0, {}), (1, {}), (2, whole(0, 1, 2)), (3, whole(0, 1, 2))):
        publish(places, epoch)
        places.show(epoch)
        assert seen(out) == expected

    assert len(list((tmp_path / "out" / "batch_id=shots-0..2").rglob("*.parquet"))) == 2
    places.show_all(lambda _: True)
    assert seen(out) == whole(0, 1, 2, 3)


@pytest.mark.parametrize("rounds", [(1, 1), (1, 3)])
def test_what_is_compacted_is_what_was_written(out, rounds):
    places = EpochPlaces(out, "shots", compact_after=2)
    before = []
    for epoch, number in enumerate(rounds):
        publish(places, epoch, number)
        before += parquet.ParquetDataset(f"{places.working}/batch_id=shots-{epoch}").read().to_pylist()

    places.show(1)

    after = parquet.ParquetDataset(f"{out}/batch_id=shots-0..1").read().to_pylist()
    assert sorted(after, key=repr) == sorted(before, key=repr)
    assert len(after) == 2 * sum(rounds)


def test_epochs_of_other_queries_are_left_alone(out):
    others = EpochPlaces(out, "shots-2", compact_after=2)
    publish(others, 0)
    places = EpochPlaces(out, "shots")
    publish(places, 20)

    places.show(20)
    assert seen(out) == whole(20)
    others.show_all(lambda _: True)
    assert seen(out) == whole(0, 20)


@pytest.mark.parametrize("compact_after", [1, 2])
def test_wherever_a_driver_dies_readers_see_all_or_nothing_and_the_next_one_goes_on(
    tmp_path, steps, compact_after
):
    last = compact_after - 1
    expected = whole(*range(compact_after))
    number, died = 0, True
    while died:
        # Given a driver that dies at a step while it puts epochs in place
        out = str(tmp_path / f"step-{number}")
        places = EpochPlaces(out, "shots", compact_after)
        for epoch in range(compact_after):
            publish(places, epoch)
        steps.before(number, die)
        died = False
        try:
            places.show(last)
        except KilledError:
            died = True
        assert seen(out) in ({}, expected)

        # When Spark hands the last epoch over again
        steps.before(-1, die)
        EpochPlaces(out, "shots", compact_after).show(last)

        # Then all of them are there, once, and nothing else is left
        assert seen(out) == expected
        assert open_folder(f"{out}/_epochs").names() == []
        number += 1
    assert number > compact_after


@pytest.mark.parametrize("compact_after", [1, 2])
def test_an_epoch_that_the_ledger_does_not_know_is_refused_a_folder_that_has_its_outcomes(out, compact_after):
    places = EpochPlaces(out, "shots", compact_after)
    publish(places, 0)
    publish(places, 1)
    for epoch in range(2):
        places.show(epoch)

    for epoch in range(2):
        with pytest.raises(
            BatchRefusedError, match=f"epoch {epoch} of the query shots, which is not in the ledger"
        ):
            EpochPlaces(out, "shots").check_unused(epoch)
    EpochPlaces(out, "shots").check_unused(2)


def test_where_folders_are_not_moved_as_a_whole_epochs_are_not_compacted(out, monkeypatch):
    monkeypatch.setattr(Folder, "moves_whole", False)

    assert EpochPlaces(out, "shots").working == out
    with pytest.raises(UsageError, match="omit --compact-after"):
        EpochPlaces(out, "shots", compact_after=2)


RemoteSession = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})


def stream(tmp_path, query="shots", **more):
    place = TablePlace(f"sqlite:///{tmp_path}/store.db", "games")
    return Stream(app, place, str(tmp_path / "out"), query, str(tmp_path / "checkpoint"), **more)


@pytest.mark.parametrize("name", ["", "a b", "shots/../x", "q" * 60])
def test_a_name_of_which_no_batch_ids_can_be_made(tmp_path, name):
    with pytest.raises(BatchRefusedError):
        stream(tmp_path, query=name)


@pytest.mark.parametrize("trigger", ["available_now", "5 seconds", 5, timedelta(seconds=-1)])
def test_a_trigger_that_is_none(tmp_path, trigger):
    df = SimpleNamespace(isStreaming=True, sparkSession=None)

    with pytest.raises(UsageError, match='A trigger must be None, a timedelta, or "available-now", not '):
        stream(tmp_path).start(df, trigger)


def test_what_is_no_stream_or_cannot_be_one(tmp_path):
    (tmp_path / "checkpoint").touch()
    of_connect = SimpleNamespace(isStreaming=True, sparkSession=RemoteSession())
    for start, sentence in [
        (
            lambda: stream(tmp_path).start(SimpleNamespace(isStreaming=False, sparkSession=None)),
            "is not a stream",
        ),
        (lambda: stream(tmp_path).start(of_connect), "Spark Connect would run them on its server"),
        (lambda: stream(tmp_path, compact_after=0), "compact_after must be at least 1, not 0"),
        (
            lambda: Stream(app, TablePlace("memory:", "games"), "out[1]", "shots", "c"),
            "in its name are a pattern",
        ),
        (
            lambda: stream(tmp_path).admission.check_start(US, lambda _: None),
            "is a file: choose a folder",
        ),
    ]:
        with pytest.raises(UsageError, match=sentence):
            start()


US = CheckpointOwner("shots", "sqlite:///store.db", "games")


@pytest.mark.parametrize(
    ("owner", "epochs", "known", "problem"),
    [
        (US, 1, (), None),  # pruned
        (US._replace(store="sqlite:///moved.db"), 0, (), None),
        (US._replace(store="sqlite:///moved.db"), 2, ("shots-0",), None),
        (US._replace(query="board"), 0, ("shots-0",), "belongs to the query board"),
        (
            US._replace(store="sqlite:///other.db"),
            1,
            (),
            "has epochs that are not in the table games of this store",
        ),
        (
            US._replace(table="others"),
            2,
            ("others-0", "shots-3"),
            "has epochs that are not in the table games of this store",
        ),
    ],
)
def test_a_checkpoint_with_which_it_cannot_go_on_is_refused_at_once(
    tmp_path, monkeypatch, owner, epochs, known, problem
):
    monkeypatch.chdir(tmp_path)
    new, checkpoint = stream(tmp_path), WrittenCheckpoint.begun(tmp_path / "checkpoint")
    for epoch in range(epochs):
        checkpoint.plan_files(epoch, f"{epoch}.jsonl")
    checkpoint.read.claim(owner)
    us = US._replace(store=f"sqlite:///{tmp_path}/store.db")

    with nullcontext() if problem is None else pytest.raises(BatchRefusedError, match=problem):
        new.admission.check_start(us, lambda batch_id: batch_id in known or None)


def test_what_a_stream_is_told_means_the_same_wherever_the_process_goes(tmp_path, monkeypatch):
    # Given a stream that is told all by names that depend on the process
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("STORE", "sqlite:///ids.db")
    monkeypatch.setenv("TARGET", "sqlite:///published.db")
    options = BatchOptions(
        algorithm="deduplication-store", deduplication_store=TablePlace("env:STORE", "ids")
    )
    stream = Stream(app, TablePlace("sqlite:///store.db", "games"), "out", "shots", "checkpoint", 1, options)
    with_documents = BatchOptions(documents="invoices")
    publish = PublishTo("env:TARGET", TargetOptions(keys="sqlite:///keys.db"))

    # When the process has another working directory and environment
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    monkeypatch.delenv("STORE")
    monkeypatch.delenv("TARGET")

    # Then what they named is where it was
    assert stream.place == TablePlace(f"sqlite:///{tmp_path}/store.db", "games")
    assert stream.options.other_table == TablePlace(f"sqlite:///{tmp_path}/ids.db", "ids")
    assert stream.places.out == f"{tmp_path}/out"
    assert with_documents.documents == f"{tmp_path}/invoices"
    publish.check()
    assert callable(publish.to)
    opened = publish.to(publish.target)
    assert isinstance(opened, SqliteTarget)
    assert opened.path == tmp_path / "published.db"
    assert publish.target.keys == f"sqlite:///{tmp_path}/keys.db"
    assert str(tmp_path) not in repr(publish)


@pytest.mark.parametrize("error", [ConnectionRefusedError(111, "Connection refused"), ConnectionResetError()])
def test_java_that_ends_under_a_query_is_told_in_a_sentence(tmp_path, monkeypatch, error):
    class Query:
        @property
        def isActive(self):  # noqa: N802 - the name is Spark's
            raise error

        def stop(self):
            raise error

    new = stream(tmp_path)
    monkeypatch.setattr(new, "start", lambda *_: Query())

    with pytest.raises(BatchFailedError, match=r"Java process has ended.*start the query again"):
        new.run(None)


@pytest.mark.parametrize("door", [run_stream, run_batch, redrive, verify])
@pytest.mark.parametrize(
    ("name", "value"),
    [("sorce", "x"), ("source", 5), ("partitions", True), ("max_rounds", None), ("limits", {})],
)
def test_an_option_that_there_is_not_or_a_value_that_it_has_not_is_named(tmp_path, door, name, value):
    where = {"store": f"sqlite:///{tmp_path}/store.db", "table": "games", "app": app, name: value}
    where |= {} if door is verify else {"out": str(tmp_path / "out")}
    where |= {"query": "shots", "checkpoint": str(tmp_path / "c")} if door is run_stream else {}

    with pytest.raises(UsageError, match=name.replace("sorce", "source")):
        door(*((None,) if door in (run_stream, redrive) else (None, None)), **where)
    assert not list(tmp_path.iterdir())

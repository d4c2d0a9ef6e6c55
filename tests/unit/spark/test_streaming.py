"""Streams: an epoch is run where it follows on the last, is in OUT all at once, and what cannot begin is refused."""

import os
from contextlib import nullcontext
from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace

import pytest
from pyarrow import parquet

from eventstore import drive
from runtime.batch_options import BatchOptions, TablePlace
from runtime.errors import BatchFailedError, BatchRefusedError, UsageError
from runtime.file_systems import Folder, open_folder
from runtime.ledger.ledger import BatchStatus, shown
from runtime.publishing.publisher import TargetOptions
from runtime.publishing.targets.sql import SqliteTarget
from runtime.spark import redrive, run_batch, run_stream, streaming, verify
from runtime.spark.batch import Rounds
from runtime.spark.publishing import PublishTo
from runtime.spark.streaming import Admission, CheckpointOwner, EpochPlaces, Planned, Stream
from runtime.spark.worker.connection import Connection
from runtime.spark.worker.outcomes import OutcomeFileWriter
from samples.shooting_range import app
from tests.support.checkpoints import TIME, WrittenCheckpoint
from tests.support.clocks import FrozenClock
from tests.support.outcome_rows import batch, outcome, output
from tests.support.rounds import NO_SPARK, KilledError, Steps, die, visible


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


def test_epochs_that_were_merged_are_kept_until_no_power_cut_undoes_the_merge(out, monkeypatch):
    places, waiting, flush = EpochPlaces(out, "shots", compact_after=2), {}, Folder.flush
    publish(places, 0)
    publish(places, 1)

    def flushed(folder, name=None):
        waiting[folder.name.partition("-")[0]] = len(places._waiting())
        flush(folder, name)

    monkeypatch.setattr(Folder, "flush", flushed)
    places.show(1)

    assert (waiting["_merging"], waiting["out"]) == (2, 2)


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


def test_the_options_in_the_url_of_a_folder_stay_at_its_end(monkeypatch):
    monkeypatch.setattr(streaming, "open_folder", lambda _: SimpleNamespace(moves_whole=True))
    places = EpochPlaces("hdfs://host/out?user=me", "shots")

    assert places.working == "hdfs://host/out/_epochs?user=me"
    assert shown(places.working) == places.out


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


@pytest.fixture
def written(tmp_path):
    return WrittenCheckpoint.begun(tmp_path / "checkpoint")


def at(end, **settings):
    return lambda checkpoint: checkpoint.plan(0, end, **settings)


def after(begin):
    """Plan an epoch, which is to be told from others by where it begins: the second one."""

    def plan(checkpoint):
        checkpoint.plan(0, {"topic": {"0": begin}})
        checkpoint.plan(1, {"topic": {"0": 10}})

    return plan


def of_lists(first, second):
    def plan(checkpoint):
        checkpoint.list_files("0", [(0, first)])
        checkpoint.list_files("1", [(1, second)])
        checkpoint.plan(0, {"logOffset": 1})

    return plan


TEN = {"topic": {"0": 10}}


@pytest.mark.parametrize(
    ("one", "other", "epoch", "id_", "is_same"),
    [
        (at(TEN), at(TEN), 0, "4021d5cb", True),
        (
            at(TEN, watermark=1),
            at(TEN, watermark=2),
            0,
            "4021d5cb",
            True,
        ),  # a setting such as the parallelism
        (at(TEN), at(TEN), 0, "33edb353", False),  # a checkpoint made anew
        (at(TEN), at({"topic": {"0": 11}}), 0, "4021d5cb", False),
        (at(TEN), at("12"), 0, "4021d5cb", False),
        (at(TEN), at("-"), 0, "4021d5cb", False),
        (after(5), after(6), 1, "4021d5cb", False),
        (of_lists("b.jsonl", "a.jsonl"), of_lists("c.jsonl", "a.jsonl"), 0, "4021d5cb", False),
        (
            lambda checkpoint: checkpoint.plan_files(0, "a.jsonl", "b.jsonl"),
            lambda checkpoint: checkpoint.plan_files(0, "a.jsonl", "c.jsonl"),
            *(0, "4021d5cb", False),
        ),
    ],
)
def test_the_content_of_an_epoch_is_its_checkpoint_its_offsets_and_its_files(
    written, tmp_path, one, other, epoch, id_, is_same
):
    beside = WrittenCheckpoint.begun(tmp_path / "another", id_)
    one(written)
    other(beside)

    assert (written.read.planned(epoch)[:2] == beside.read.planned(epoch)[:2]) is is_same


def test_files_that_were_listed_with_those_before_are_the_same(written):
    # Given an epoch over files
    written.plan_files(0, "a.jsonl")
    written.plan_files(1, "b.jsonl", "c.jsonl")
    before = written.read.planned(1)[:2]

    # When Spark compacts the lists, and deletes the single ones
    written.list_files("2.compact", [(1, "c.jsonl"), (0, "a.jsonl"), (1, "b.jsonl"), (2, "d.jsonl")])
    written.unlist_files("1")

    # Then its content is the same, and that of the epoch whose list this is has the new file only
    assert written.read.planned(1)[:2] == before
    written.plan(2, {"logOffset": 2})
    compacted = written.read.planned(2)[:2]
    written.list_files("2", [(2, "d.jsonl")])
    assert written.read.planned(2)[:2] == compacted


def test_a_form_that_is_not_known_is_refused(written):
    written.plan(0, "{}", version="v2")

    with pytest.raises(UsageError, match="in the format v2, but only v1 is supported"):
        written.read.planned(0)


def test_a_checkpoint_says_whose_it_is(written):
    assert written.read.owner() is None

    written.read.claim(CheckpointOwner("shots", "sqlite:///store.db", "games"))
    written.read.claim(CheckpointOwner("shots", "sqlite:///moved.db", "games"))

    assert written.read.owner() == CheckpointOwner("shots", "sqlite:///moved.db", "games")
    assert not list(written.folder.glob("_aside*"))


@pytest.mark.parametrize(
    ("name", "epoch", "lacks"),
    [
        ("sources/0/0", 0, "sources/0/0, a list of files"),
        ("metadata", 1, "metadata"),
        ("offsets/0", 1, "offsets/0"),
    ],
)
def test_a_file_of_the_checkpoint_that_is_gone_is_told(written, name, epoch, lacks):
    written.plan_files(0, "a.jsonl")
    written.plan_files(1, "b.jsonl")
    (written.folder / name).unlink()

    with pytest.raises(BatchRefusedError, match=f"It lacks {lacks}"):
        written.read.planned(epoch)


@pytest.mark.parametrize("content", ["", "[]", '{"query": "shots"}'])
def test_a_note_of_the_owner_that_cannot_be_read_is_told(written, content):
    (written.folder / "consistent-query.json").write_text(content)

    with pytest.raises(BatchRefusedError, match=r"Its .* cannot be read"):
        written.read.owner()


def times_of(folder, *names):
    """Return the times of files as Spark notes them, by their urls."""
    return {(folder / name).as_uri(): (folder / name).stat().st_mtime_ns // 10**6 for name in names}


def rewrite_in_place(file):
    file.write_text("other messages")
    os.utime(file, ns=(1, 1_700_000_000_001_000_000))


def replace_by_another(file):
    (another := file.with_name("another")).touch()
    another.replace(file)


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda file: file.unlink(), "is missing"),
        (rewrite_in_place, "was replaced"),
        (replace_by_another, "was replaced"),
        (lambda file: os.utime(file, (1_700_000_001,) * 2), "was replaced"),
    ],
    ids=["gone", "rewritten", "replaced", "touched"],
)
def test_files_that_are_not_those_of_the_epoch_are_told(written, tmp_path, change, what):
    # Given an epoch over files with odd names, of which some are where this process does not look
    names = "a b%20\u00fc#1.jsonl", "same.jsonl"
    for name in names:
        (tmp_path / name).touch()
        os.utime(tmp_path / name, (1_700_000_000,) * 2)
    elsewhere = {"dbfs:/x.jsonl": 1, "s3a://bucket/x.jsonl": 1}
    planned = Planned("a", "b", {**elsewhere, **times_of(tmp_path, *names)})
    started(written).check_files(7, planned)

    change(tmp_path / names[0])

    with pytest.raises(BatchRefusedError) as caught:
        started(written).check_files(7, planned)
    assert f"{tmp_path}/{names[0]} {what}. Nothing of the epoch is published" in str(caught.value)
    assert "same.jsonl" not in str(caught.value)

    # When a file has its time again, then the epoch may be run
    (tmp_path / names[0]).touch()
    os.utime(tmp_path / names[0], (1_700_000_000,) * 2)
    started(written).check_files(7, planned)


OPTIONS = BatchOptions(clock=FrozenClock.at("2026-03-01T12:00:00"))


@pytest.fixture
def rounds(tmp_path):
    yield (made := rounds_in(tmp_path / "store.db"))
    made.connection.close()


def rounds_in(file, table="games"):
    place = TablePlace(f"sqlite:///{file}", table)
    return Rounds(NO_SPARK, app, place, str(file.parent), OPTIONS, Connection(place))


def started(written, query="shots"):
    """Return what looks at the epochs of a query from one start of it on."""
    return Admission(query, written.read)


def run(admission, rounds, epoch, *, publish=True):
    """Admit an epoch and note in the ledger that it was begun, and published; return what the ledger had of it."""
    planned = admission.checkpoint.planned(epoch)
    found = admission.find(rounds, epoch, planned)
    if found is None:
        input_ = f"{admission.what(epoch, planned)}; handlers A; cascade=False"
        record = drive(rounds.ledger.begin(admission.batch_id(epoch), input_, rounds.out))
        if publish:
            drive(rounds.ledger.publish(record))
    return found


def refused(admission, rounds, epoch):
    with pytest.raises(BatchRefusedError) as caught:
        run(admission, rounds, epoch)
    sentence = str(caught.value)
    assert "Nothing was handled." in sentence
    return sentence


def test_a_published_epoch_that_is_handed_over_again_is_published_and_shown_where_it_is(
    written, rounds, tmp_path, monkeypatch
):
    # Given a driver that died before it showed an epoch, while the one before waits to be merged
    old = EpochPlaces(str(tmp_path / "old"), "shots")
    for epoch in range(2):
        written.plan_files(epoch, f"{epoch}.jsonl")
        run(started(written), replace(rounds, out=old.working), epoch)
        publish(old, epoch)

    # When the query is started with another OUT
    sent = []
    monkeypatch.setattr(Stream, "_prepare_once", lambda *_: None)
    moved = stream(tmp_path, options=BatchOptions(partitions=1), publish=lambda *what: sent.append(what[1:]))
    moved(SimpleNamespace(sparkSession=NO_SPARK), 1)

    # Then readers of the former one see it, after its outputs were published from there
    assert (seen(old.out), seen(moved.out)) == (whole(0, 1), {})
    assert sent == [("shots-1", old.working)]


def test_epochs_follow_each_other(written, rounds):
    query = started(written)
    for epoch in range(3):
        written.plan_files(epoch, f"{epoch}.jsonl")
        assert run(query, rounds, epoch) is None
    assert written.read.planned(0).files == {"0.jsonl": TIME}

    assert {each.batch_id for each in drive(rounds.ledger.batches(5))} == {"shots-0", "shots-1", "shots-2"}


def test_an_epoch_is_refused_under_another_name_and_in_another_table_and_store(written, rounds, tmp_path):
    written.plan_files(0, "a.jsonl")
    run(started(written), rounds, 0)
    written.plan_files(1, "b.jsonl")

    assert "belongs to the query shots" in refused(started(written, query="others"), rounds, 1)
    for each in (rounds_in(tmp_path / "anew.db"), rounds_in(tmp_path / "store.db", "others")):
        assert "has epochs that are not in the table" in refused(started(written), each, 1)
        each.connection.close()

    # ... and goes on when the ledger has pruned those before it
    drive(rounds.ledger.prune(OPTIONS.clock() + 1))
    assert run(started(written), rounds, 1) is None

    # ... but not in a store that was made anew in the same place
    written.plan_files(2, "c.jsonl")
    (tmp_path / "store.db").unlink()
    assert "has epochs that are not in the table games" in refused(
        started(written), rounds_in(tmp_path / "store.db"), 2
    )


def test_an_epoch_that_is_handed_over_again_is_found(written, rounds):
    written.plan_files(0, "a.jsonl")
    run(started(written), rounds, 0)
    written.plan_files(1, "b.jsonl")
    run(started(written), rounds, 1, publish=False)

    assert run(started(written), rounds, 0).status is BatchStatus.PUBLISHED
    assert run(started(written), rounds, 1).status is BatchStatus.STARTED


def test_a_checkpoint_that_was_deleted_is_refused_though_the_files_are_the_same(written, rounds, tmp_path):
    written.plan_files(0, "a.jsonl")
    run(started(written), rounds, 0)

    anew = WrittenCheckpoint.begun(tmp_path / "anew", id_="33edb353")
    anew.plan_files(0, "a.jsonl")

    sentence = refused(started(anew), rounds, 0)
    assert sentence.startswith(
        "Epoch 0 of the query shots has different content than before: its checkpoint "
    )
    assert "33edb353" in sentence
    assert "4021d5cb" in sentence


def test_a_checkpoint_restored_from_a_backup_is_refused(written, rounds):
    # Given a query that ran three epochs
    query = started(written)
    for epoch in range(3):
        written.plan_files(epoch, f"{epoch}.jsonl")
        run(query, rounds, epoch)

    # When the checkpoint is as it was after the first, and Spark plans the second with what is there by now
    written.plan_files(1, "1.jsonl", "2.jsonl")

    assert "has different content than before" in refused(started(written), rounds, 1)


def test_two_queries_of_one_name_are_refused(written, rounds, tmp_path):
    # Given two queries with checkpoints of their own, of which the first is at its second epoch
    written.plan_files(0, "a.jsonl")
    run(started(written), rounds, 0)
    other = WrittenCheckpoint.begun(tmp_path / "other", id_="33edb353")
    other.plan_files(0, "a.jsonl")
    other.plan_files(1, "b.jsonl")

    # Then the other one may not take over under its name
    assert "is not the one of the previous epoch" in refused(started(other), rounds, 1)


def test_a_batch_of_the_same_name_is_not_taken_for_an_epoch(written, rounds):
    drive(rounds.ledger.begin("shots-0", "7 messages with checksum 1; handlers A", rounds.out))
    written.plan_files(0, "a.jsonl")

    assert "7 messages" in refused(started(written), rounds, 0)

"""An epoch is identified by its checkpoint and by what Spark has planned, and is run where it follows on the last."""

import os

import pytest

from eventstore import drive
from runtime.batch_options import BatchOptions, TablePlace
from runtime.errors import BatchRefusedError, UsageError
from runtime.ledger.ledger import BatchStatus
from runtime.spark.batch import Rounds
from runtime.spark.streaming import Admission, CheckpointOwner, Planned
from runtime.spark.worker.connection import Connection
from samples.shooting_range import app
from tests.support.checkpoints import TIME, WrittenCheckpoint
from tests.support.clocks import FrozenClock
from tests.support.rounds import NO_SPARK


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
    assert not list(written.folder.glob("_claimed*"))


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

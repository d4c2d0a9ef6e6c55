"""A micro-batch is identified by its checkpoint, and by what Spark has planned for its epoch, which is never read."""

import pytest

from runtime.errors import UsageError
from runtime.spark.streaming.checkpoint import Owner
from tests.support.checkpoints import WrittenCheckpoint


@pytest.fixture
def written(tmp_path):
    return WrittenCheckpoint.begun(tmp_path / "checkpoint")


def another(tmp_path, id_="4021d5cb"):
    return WrittenCheckpoint.begun(tmp_path / "another", id_)


def test_an_epoch_that_spark_hands_over_again_is_the_same(written):
    written.plan(0, {"topic": {"0": 10}})
    before = written.read.content(0)
    written.plan(1, {"topic": {"0": 20}})

    assert written.read.content(0) == before
    assert written.read.content(1) != before


def test_settings_such_as_the_parallelism_do_not_count(written, tmp_path):
    written.plan(0, {"topic": {"0": 10}}, watermark=1)
    other = another(tmp_path)
    other.plan(0, {"topic": {"0": 10}}, watermark=2)

    assert written.read.content(0) == other.read.content(0)


@pytest.mark.parametrize("end", [{"topic": {"0": 11}}, "12", "-"])
def test_other_offsets_are_other_content(written, tmp_path, end):
    written.plan(0, {"topic": {"0": 10}})
    other = another(tmp_path)
    other.plan(0, end)

    assert written.read.content(0) != other.read.content(0)


def test_another_begin_is_other_content(written, tmp_path):
    other = another(tmp_path)
    for each, begin in ((written, 5), (other, 6)):
        each.plan(0, {"topic": {"0": begin}})
        each.plan(1, {"topic": {"0": 10}})

    assert written.read.content(1) != other.read.content(1)


def test_the_same_offsets_in_a_checkpoint_made_anew_are_other_content(written, tmp_path):
    other = another(tmp_path, id_="33edb353")
    for each in (written, other):
        each.plan(0, {"topic": {"0": 10}})

    assert written.read.content(0) != other.read.content(0)


def test_other_files_under_the_same_number_are_other_content(written, tmp_path):
    written.plan_files(0, "a.jsonl", "b.jsonl")
    other = another(tmp_path)
    other.plan_files(0, "a.jsonl", "c.jsonl")

    assert written.read.content(0) != other.read.content(0)


def test_files_that_were_listed_with_those_before_are_the_same(written):
    # Given an epoch over files
    written.plan_files(0, "a.jsonl")
    written.plan_files(1, "b.jsonl", "c.jsonl")
    before = written.read.content(1)

    # When Spark compacts the lists, and deletes the single ones
    written.list_files("2.compact", [(1, "c.jsonl"), (0, "a.jsonl"), (1, "b.jsonl"), (2, "d.jsonl")])
    written.unlist_files("1")

    # Then its content is the same, and that of the epoch whose list this is has the new file only
    assert written.read.content(1) == before
    written.plan(2, {"logOffset": 2})
    compacted = written.read.content(2)
    written.list_files("2", [(2, "d.jsonl")])
    assert written.read.content(2) == compacted


def test_an_epoch_over_several_lists_of_files_has_the_files_of_all(written, tmp_path):
    other = another(tmp_path)
    for each, file in ((written, "b.jsonl"), (other, "c.jsonl")):
        each.list_files("0", [(0, file)])
        each.list_files("1", [(1, "a.jsonl")])
        each.plan(0, {"logOffset": 1})

    assert written.read.content(0) != other.read.content(0)


def test_a_form_that_is_not_known_is_refused(written):
    written.plan(0, "{}", version="v2")

    with pytest.raises(UsageError, match="in the form v2, of which only v1 is known"):
        written.read.content(0)


def test_a_checkpoint_says_whose_it_is(written):
    assert written.read.owner() is None

    written.read.claim(Owner("shots", "sqlite:///store.db", "games"))
    written.read.claim(Owner("shots", "sqlite:///moved.db", "games"))

    assert written.read.owner() == Owner("shots", "sqlite:///moved.db", "games")
    assert not list(written.folder.glob("_claimed*"))

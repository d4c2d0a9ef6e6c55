"""A micro-batch is identified by its checkpoint, and by what Spark has planned for its epoch, which is never read."""

import pytest

from runtime.errors import BatchRefusedError, UsageError
from runtime.spark.streaming.admission import Owner
from tests.support.checkpoints import WrittenCheckpoint


@pytest.fixture
def written(tmp_path):
    return WrittenCheckpoint.begun(tmp_path / "checkpoint")


def another(tmp_path, id_="4021d5cb"):
    return WrittenCheckpoint.begun(tmp_path / "another", id_)


def test_an_epoch_that_spark_hands_over_again_is_the_same(written):
    written.plan(0, {"topic": {"0": 10}})
    before = written.read.planned(0).content
    written.plan(1, {"topic": {"0": 20}})

    assert written.read.planned(0).content == before
    assert written.read.planned(1).content != before


def test_settings_such_as_the_parallelism_do_not_count(written, tmp_path):
    written.plan(0, {"topic": {"0": 10}}, watermark=1)
    other = another(tmp_path)
    other.plan(0, {"topic": {"0": 10}}, watermark=2)

    assert written.read.planned(0).content == other.read.planned(0).content


@pytest.mark.parametrize("end", [{"topic": {"0": 11}}, "12", "-"])
def test_other_offsets_are_other_content(written, tmp_path, end):
    written.plan(0, {"topic": {"0": 10}})
    other = another(tmp_path)
    other.plan(0, end)

    assert written.read.planned(0).content != other.read.planned(0).content


def test_another_begin_is_other_content(written, tmp_path):
    other = another(tmp_path)
    for each, begin in ((written, 5), (other, 6)):
        each.plan(0, {"topic": {"0": begin}})
        each.plan(1, {"topic": {"0": 10}})

    assert written.read.planned(1).content != other.read.planned(1).content


def test_the_same_offsets_in_a_checkpoint_made_anew_are_other_content(written, tmp_path):
    other = another(tmp_path, id_="33edb353")
    for each in (written, other):
        each.plan(0, {"topic": {"0": 10}})

    assert written.read.planned(0).content != other.read.planned(0).content


def test_other_files_under_the_same_number_are_other_content(written, tmp_path):
    written.plan_files(0, "a.jsonl", "b.jsonl")
    other = another(tmp_path)
    other.plan_files(0, "a.jsonl", "c.jsonl")

    assert written.read.planned(0).content != other.read.planned(0).content


def test_files_that_were_listed_with_those_before_are_the_same(written):
    # Given an epoch over files
    written.plan_files(0, "a.jsonl")
    written.plan_files(1, "b.jsonl", "c.jsonl")
    before = written.read.planned(1).content

    # When Spark compacts the lists, and deletes the single ones
    written.list_files("2.compact", [(1, "c.jsonl"), (0, "a.jsonl"), (1, "b.jsonl"), (2, "d.jsonl")])
    written.unlist_files("1")

    # Then its content is the same, and that of the epoch whose list this is has the new file only
    assert written.read.planned(1).content == before
    written.plan(2, {"logOffset": 2})
    compacted = written.read.planned(2).content
    written.list_files("2", [(2, "d.jsonl")])
    assert written.read.planned(2).content == compacted


def test_an_epoch_over_several_lists_of_files_has_the_files_of_all(written, tmp_path):
    other = another(tmp_path)
    for each, file in ((written, "b.jsonl"), (other, "c.jsonl")):
        each.list_files("0", [(0, file)])
        each.list_files("1", [(1, "a.jsonl")])
        each.plan(0, {"logOffset": 1})

    assert written.read.planned(0).content != other.read.planned(0).content


def test_a_form_that_is_not_known_is_refused(written):
    written.plan(0, "{}", version="v2")

    with pytest.raises(UsageError, match="in the form v2, of which only v1 is known"):
        written.read.planned(0)


def test_a_checkpoint_says_whose_it_is(written):
    assert written.read.owner() is None

    written.read.claim(Owner("shots", "sqlite:///store.db", "games"))
    written.read.claim(Owner("shots", "sqlite:///moved.db", "games"))

    assert written.read.owner() == Owner("shots", "sqlite:///moved.db", "games")
    assert not list(written.folder.glob("_claimed*"))


def test_a_list_of_files_that_is_gone_is_told(written):
    written.plan_files(0, "a.jsonl")
    written.unlist_files("0")

    with pytest.raises(BatchRefusedError, match="It lacks sources/0/0, a list of files"):
        written.read.planned(0)


@pytest.mark.parametrize("name", ["metadata", "offsets/0"])
def test_a_file_of_the_checkpoint_that_is_gone_is_told(written, name):
    written.plan_files(0, "a.jsonl")
    written.plan_files(1, "b.jsonl")
    (written.folder / name).unlink()

    with pytest.raises(BatchRefusedError, match=f"It lacks {name}"):
        written.read.planned(1)


@pytest.mark.parametrize("content", ["", "[]", '{"query": "shots"}'])
def test_a_note_of_the_owner_that_cannot_be_read_is_told(written, content):
    (written.folder / "consistent-query.json").write_text(content)

    with pytest.raises(BatchRefusedError, match=r"Its .* cannot be read"):
        written.read.owner()


def test_files_that_are_gone(written, tmp_path):
    here = tmp_path / "a b%20\u00fc#1.jsonl"
    here.touch()
    elsewhere = "dbfs:/x.jsonl", "s3a://bucket/x.jsonl"

    found = written.read.gone([here.as_uri(), (tmp_path / "b c.jsonl").as_uri(), *elsewhere])

    assert found == [f"file://{tmp_path}/b c.jsonl"]

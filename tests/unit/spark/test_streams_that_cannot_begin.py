"""What cannot be run as a stream is refused before Spark starts anything."""

from datetime import timedelta
from types import SimpleNamespace

import pytest

from runtime.batch_options import TablePlace
from runtime.errors import BatchRefusedError, UsageError
from runtime.spark.streaming.admission import Owner
from runtime.spark.streaming.query import Stream
from samples.shooting_range import app
from tests.support.checkpoints import WrittenCheckpoint

RemoteSession = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session"})


def stream(tmp_path, query="shots", **more):
    place = TablePlace(f"sqlite:///{tmp_path}/store.db", "games")
    return Stream(app, place, str(tmp_path / "out"), query, str(tmp_path / "checkpoint"), **more)


def test_a_table_that_is_no_stream(tmp_path):
    with pytest.raises(UsageError, match="This DataFrame is no stream"):
        stream(tmp_path).start(SimpleNamespace(isStreaming=False, sparkSession=None))


def test_a_session_of_spark_connect(tmp_path):
    df = SimpleNamespace(isStreaming=True, sparkSession=RemoteSession())

    with pytest.raises(UsageError, match="Spark Connect would run them on its server"):
        stream(tmp_path).start(df)


@pytest.mark.parametrize("name", ["", "a b", "shots/../x", "q" * 60])
def test_a_name_of_which_no_batch_ids_can_be_made(tmp_path, name):
    with pytest.raises(BatchRefusedError, match="is not usable"):
        stream(tmp_path, query=name)


def test_no_epochs_to_compact(tmp_path):
    with pytest.raises(UsageError, match="a number of epochs from 1, not 0"):
        stream(tmp_path, compact_after=0)


def test_a_folder_that_spark_would_read_as_a_pattern(tmp_path):
    with pytest.raises(UsageError, match="a pattern to Spark"):
        Stream(app, TablePlace("memory:", "games"), "out[1]", "shots", str(tmp_path / "checkpoint"))


@pytest.mark.parametrize("trigger", ["available_now", "5 seconds", 5, timedelta(seconds=-1)])
def test_a_trigger_that_is_none(tmp_path, trigger):
    df = SimpleNamespace(isStreaming=True, sparkSession=None)

    with pytest.raises(UsageError, match='A trigger is None, a timedelta, or "available-now", not '):
        stream(tmp_path).start(df, trigger)


def test_the_checkpoint_of_another_query(tmp_path):
    new = stream(tmp_path)
    checkpoint = WrittenCheckpoint.begun(tmp_path / "checkpoint").read
    new.work.admission.check_start()
    checkpoint.claim(Owner("board", "sqlite:///store.db", "games"))

    with pytest.raises(BatchRefusedError, match="is that of the query board"):
        new.work.admission.check_start()


def test_a_checkpoint_that_is_a_file(tmp_path):
    (tmp_path / "checkpoint").touch()

    with pytest.raises(UsageError, match="checkpoint is a file: it is to be a folder"):
        stream(tmp_path).work.admission.check_start()

"""A driver that dies between publishing and sweeping up: whoever runs the batch again sweeps up in its place."""

from unittest.mock import patch

import pytest

from runtime.batch_options import BatchOptions, TablePlace
from runtime.spark.commit import BatchFolders
from runtime.spark.worker.connection import Connection
from samples.shooting_range import app
from tests.faults.without_spark import NO_SPARK, BatchWithoutSpark
from tests.faults.worlds import NOW


class KilledError(BaseException):
    """Stands for the end of the driver."""


def test_folders_of_attempts_at_a_published_batch_are_removed_when_it_is_run_again(tmp_path):
    # Given a driver that died when its batch was published, with the folder of an attempt that failed
    place, out = TablePlace(f"sqlite:///{tmp_path}/store.db", "games"), tmp_path / "out"
    connection = Connection(place)
    batch = BatchWithoutSpark(NO_SPARK, app, place, str(out), BatchOptions(clock=NOW), connection, [])
    with patch.object(BatchFolders, "remove_staging", side_effect=KilledError), pytest.raises(KilledError):
        batch.drive("night")
    left = out / "_staging" / f"night-round-0-{'0' * 32}"
    left.mkdir(parents=True)
    (left / "part-0.parquet").touch()

    # When the batch is run again
    batch.drive("night")

    # Then nothing is left of it
    assert [path.name for path in out.iterdir()] == ["batch_id=night"]
    connection.close()

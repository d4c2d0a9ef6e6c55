"""Masters: which ones try a failed task again, and which share the files of the driver."""

import pytest

from runtime.spark.session import DEFAULT_MASTER, is_local, with_retries


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ("local", "local[1,4]"),
        ("local[2]", "local[2,4]"),
        ("local[*]", "local[*,4]"),
        ("local[2,1]", "local[2,1]"),
        (DEFAULT_MASTER, "local[*,4]"),
        ("local-cluster[2,1,1024]", "local-cluster[2,1,1024]"),
        ("spark://somewhere:7077", "spark://somewhere:7077"),
    ],
)
def test_a_local_master_tries_a_failed_task_again(given, used):
    assert with_retries(given) == used


@pytest.mark.parametrize(
    ("master", "local"),
    [("local", True), ("local[*,4]", True), ("local-cluster[2,1,1024]", False), ("spark://host:7077", False)],
)
def test_only_local_masters_share_the_files_of_the_driver(master, local):
    assert is_local(master) is local

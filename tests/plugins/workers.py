"""Which worker of a parallel run a test goes to: tests that share something expensive stay together.

All tests with a Spark session share one of them, on one worker; so do the tests of the model their walks, and those of
a package what they build. All others stay with those of their file, and so with its fixtures. The Spark group takes
longest, and so begins first.
"""

from __future__ import annotations

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

SPARK = "spark"
_TOGETHER = {
    SPARK: (
        "tests/integration/spark/",
        "tests/integration/cli/test_a_batch_from_the_command_line.py",
        "tests/integration/cli/test_batches_with_other_algorithms.py",
        "tests/integration/cli/test_logs_that_cannot_be_run.py",
        "tests/integration/cli/test_the_demo.py",
        "tests/integration/cli/test_verifying_from_the_command_line.py",
        "tests/docs/test_changing_handlers.py",
        "tests/docs/test_testing_handlers.py",
        "tests/docs/test_the_algorithms.py",
        "tests/docs/test_the_readme.py",
    ),
    "model": ("tests/model/",),
    "packaging": ("tests/packaging/",),
}


def group(path: str) -> str:
    """Return the name of the tests with which those of a file stay together."""
    return next((name for name, begins in _TOGETHER.items() if path.startswith(begins)), path)


class GroupScheduling(LoadScopeScheduling):
    """Gives a worker one group after another."""

    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid.partition("::")[0])


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    config.option.loadscopereorder = False  # groups come in the order in which they are collected
    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and group(item.location[0]) != SPARK:
            problem = f"{item.location[0]} uses a Spark session: name it in tests/plugins/workers.py."
            raise pytest.UsageError(problem)
    items.sort(key=lambda item: group(item.location[0]) != SPARK)

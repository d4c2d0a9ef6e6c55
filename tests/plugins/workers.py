"""Assigns tests of a parallel run to workers: tests that share something expensive stay together.

Tests with a Spark session are in two groups, jobs and commands, each of which shares a session. In a run of quick tests
both groups go to one worker, as a second JVM costs twenty seconds of processor time to start. Tests of the model share
their walks, and tests of packaging share distributions. All other tests stay with their file, and so with its fixtures.
Tests with Spark take longest, so they begin first.
"""

import pytest
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

_JOBS, _COMMANDS = SPARK = ("jobs on Spark", "commands on Spark")
_QUICK = "not thorough"
"""How `make test` chooses its tests."""

_TOGETHER = {
    _JOBS: ("tests/integration/spark/", "tests/golden/", "tests/faults/hostile/test_hostile_logs.py"),
    _COMMANDS: (
        "tests/integration/cli/test_a_batch_from_the_command_line.py",
        "tests/integration/cli/test_batches_with_other_algorithms.py",
        "tests/integration/cli/test_the_demo.py",
        "tests/integration/cli/test_the_sample_of_orders.py",
        "tests/integration/cli/test_telemetry_of_commands.py",
        "tests/docs/test_the_pages.py",
    ),
    "model": ("tests/model/",),
    "packaging": ("tests/packaging/",),
}


def group(path: str) -> str:
    """Return the name of the group of a file's tests, by default the path."""
    return next((name for name, begins in _TOGETHER.items() if path.startswith(begins)), path)


class GroupScheduling(LoadScopeScheduling):
    """Assigns whole groups to workers."""

    def _split_scope(self, nodeid: str) -> str:
        found = group(nodeid.partition("::")[0])
        return _JOBS if found in SPARK and self.config.option.markexpr == _QUICK else found


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    config.option.loadscopereorder = False  # groups come in the order in which they are collected
    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()) and group(item.location[0]) not in SPARK:
            problem = f"{item.location[0]} uses a Spark session: name it in tests/plugins/workers.py."
            raise pytest.UsageError(problem)
    items.sort(key=lambda item: group(item.location[0]) not in SPARK)

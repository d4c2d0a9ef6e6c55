"""Which worker of a parallel run a test goes to: tests that share something expensive stay together.

Tests with a Spark session are in two groups, jobs and commands, which share one session each. Of the quick tests both
groups go to one worker: a second JVM would start, load its classes and warm up for twenty seconds of processor time,
and none of them waits for long. The tests of the model share their walks, and those of a package what they build. All
others stay with those of their file, and so with its fixtures. Those with Spark take longest, and so begin first.
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
    """Return the name of the tests with which those of a file stay together."""
    return next((name for name, begins in _TOGETHER.items() if path.startswith(begins)), path)


class GroupScheduling(LoadScopeScheduling):
    """Gives a worker one group after another."""

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

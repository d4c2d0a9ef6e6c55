"""Which worker of a parallel run a test goes to: tests that share something expensive stay together.

All tests with a Spark session share one of them, on one worker; the tests of the model share their walks; all others
stay with those of their file, and so with its fixtures. The Spark group takes longest, and so begins first.
"""

from __future__ import annotations

import pytest

SPARK = "spark"
_TOGETHER = ("tests/model/", "tests/packaging/")


@pytest.hookimpl(tryfirst=True)  # before xdist looks for its marks
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if not hasattr(config, "workerinput"):
        return
    groups = {item: _group(item) for item in items}
    for item, group in groups.items():
        item.add_marker(pytest.mark.xdist_group(group))
    items.sort(key=lambda item: groups[item] != SPARK)


def _group(item: pytest.Item) -> str:
    if "spark" in getattr(item, "fixturenames", ()):
        return SPARK
    path = item.location[0]
    return next((folder for folder in _TOGETHER if path.startswith(folder)), path)

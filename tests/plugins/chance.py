"""Chance: all random numbers of the tests follow from one seed, which the head of each run shows.

Choose another seed by `--seed N`, or `make test SEED=N`. Each test draws the same numbers, whichever tests ran before
and on any worker. Tests do not see what others leave behind: modules in the folders of tests are forgotten. The
garbage collector skips the collected tests themselves, which saves a quarter of the time of collecting.
"""

import gc
import os
import random
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes depends on what else the machine does, and what is filtered out depends on the seed.
_UNSTEADY = [HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large]

_FEW, _MOST = 10, 30
"""The examples of a property by default, and the most that it may ask for unless the profile is thorough."""

settings.register_profile(
    "quick", max_examples=_FEW, deadline=None, database=None, print_blob=True, suppress_health_check=_UNSTEADY
)
settings.register_profile("thorough", settings.get_profile("quick"), max_examples=400)
settings.load_profile("quick")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--seed", type=int, default=1, metavar="N", help="the seed of all random numbers")


@pytest.hookimpl(tryfirst=True)  # before Hypothesis looks at its own option
def pytest_configure(config: pytest.Config) -> None:
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(config.option.seed)
    gc.disable()


def pytest_report_header(config: pytest.Config) -> str:
    return f"seed: {config.option.seed}"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if settings().max_examples == _FEW:
        for item in items:
            function: Any = getattr(item, "obj", None)
            function = getattr(function, "__func__", function)
            own = getattr(function, "_hypothesis_internal_use_settings", None)
            if own is not None and own.max_examples > _MOST:
                function._hypothesis_internal_use_settings = settings(own, max_examples=_MOST)


@pytest.hookimpl(tryfirst=True)  # before the fixtures of the test
def pytest_runtest_setup(item: pytest.Item) -> None:
    random.seed(_seed_of(item))


@pytest.fixture
def chance(request: pytest.FixtureRequest) -> random.Random:
    """Return a generator of random numbers that is seeded for this test."""
    return random.Random(_seed_of(request.node))


def _seed_of(item: pytest.Item) -> str:
    return f"{item.config.option.seed} {item.location[0]} {item.name}"


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000)  # new objects between two collections of the youngest; Python's default is 700
    gc.enable()


@pytest.fixture(autouse=True, scope="module")
def _modules_of_folders(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    yield
    forget_modules(tmp_path_factory.getbasetemp())


def forget_modules(folder: Path) -> None:
    """Forget the modules that were imported from a folder, so that the next import runs them again."""
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(f"{folder}{os.sep}"):
            del sys.modules[name]

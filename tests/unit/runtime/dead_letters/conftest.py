"""Parcels are damaged within one test only."""

from collections.abc import Iterator

import pytest

from tests.unit.runtime.dead_letters.post import DAMAGED


@pytest.fixture(autouse=True)
def nothing_stays_damaged() -> Iterator[None]:
    yield
    DAMAGED.clear()

"""While streams are folded, Python's garbage collector runs rarely; it still runs, and afterwards as before."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from runtime.spark.worker.job import rare_collections


@pytest.fixture(autouse=True)
def pythons_own_threshold() -> Iterator[None]:
    before = gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    yield
    gc.set_threshold(*before)


def test_the_threshold_is_higher_inside_and_as_before_afterwards() -> None:
    before = gc.get_threshold()

    with rare_collections():
        inside = gc.get_threshold()

    assert inside[0] > before[0]
    assert gc.get_threshold() == before


def test_the_threshold_is_as_before_after_an_error() -> None:
    before = gc.get_threshold()

    with pytest.raises(KeyError), rare_collections():
        raise KeyError

    assert gc.get_threshold() == before


def test_cycles_are_still_collected() -> None:
    with rare_collections():
        cycle = _Cycle()
        gone = weakref.ref(cycle)
        del cycle
        kept: list[list[int]] = [[] for _ in range(2 * gc.get_threshold()[0])]

    assert kept
    assert gone() is None


class _Cycle:
    def __init__(self) -> None:
        self.itself = self

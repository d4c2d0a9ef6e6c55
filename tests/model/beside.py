"""Walks beside each other: each in a process of its own, which gives its memory back when it has ended."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

from tests.model.catalogue import CHECKS
from tests.model.report import Report

_AT_MOST = 2
"""The largest walks need a few GB each."""


def reports(numbers: Sequence[int]) -> Iterator[Report]:
    """Give the reports of checks, by their places in the catalogue, in their order."""
    at_once = min(_AT_MOST, os.cpu_count() or 1)
    with ProcessPoolExecutor(at_once, get_context("spawn"), max_tasks_per_child=1) as processes:
        yield from processes.map(_report, numbers)


def _report(number: int) -> Report:
    return CHECKS[number].explore()

"""Python looks for garbage among what the tests make, and not again and again among the tests themselves.

Thousands of collected tests, and all imported modules, stay until the end. A full collection of garbage goes through
them all, and finds nothing: that took a quarter of the time in which tests are collected, and much of what followed.
"""

from __future__ import annotations

import gc

_NEW_OBJECTS = 10_000  # between two collections of the youngest; Python's own number is 700


def pytest_configure() -> None:
    gc.disable()


def pytest_collection_finish() -> None:
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS)
    gc.enable()

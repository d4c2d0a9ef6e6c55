"""Processes of one's own: each holds one contender, or sends for one, and ends when the process that made it does."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context, parent_process


def own_process(begin: Callable[..., None] | None = None, *arguments: object) -> ProcessPoolExecutor:
    """Return a single new process, which calls `begin` first; it shares nothing with this one."""
    return ProcessPoolExecutor(1, get_context("spawn"), initializer=_begin, initargs=(begin, arguments))


def _begin(begin: Callable[..., None] | None, arguments: tuple[object, ...]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if begin is not None:
        begin(*arguments)


def _end_with_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
    os._exit(1)

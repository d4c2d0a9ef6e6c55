"""How handlers are supervised in a worker of Spark, which may be ended: its task is tried again in another one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import TaskContext

from handlers import App
from runtime.supervision import Watch, bounded_memory, supervised


@dataclass(frozen=True, slots=True)
class Supervision:
    """How long a handler may take, in seconds, and how many bytes its worker may take."""

    seconds: float
    memory: int | None


@contextmanager
def supervising(app: App, how: Supervision | None, tell: Callable[[str], None]) -> Iterator[App]:
    """Yield the app with its handlers under supervision; `tell` is told the ids of messages that take long."""
    if how is None or threading.current_thread() is not threading.main_thread():
        yield app
        return
    context = TaskContext.get()
    is_retry = context is not None and context.attemptNumber() > 0
    with bounded_memory(how.memory), Watch(how.seconds, tell, is_retry=is_retry) as watch:
        yield supervised(app, watch)

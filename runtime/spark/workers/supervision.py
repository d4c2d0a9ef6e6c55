"""How handlers are supervised in a worker of Spark, which may be ended: its task is tried again in another one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from pyspark import TaskContext

from handlers import App
from runtime.supervision.memory import bounded_memory
from runtime.supervision.note import Note, read_notes
from runtime.supervision.supervised import supervised
from runtime.supervision.watch import Watch


@dataclass(frozen=True, slots=True)
class Supervision:
    """How long a handler may take, in seconds; how many bytes its worker may take; and where notes of the dead are."""

    seconds: float
    memory: int | None
    notes: str | None


@contextmanager
def supervising(app: App, how: Supervision | None) -> Iterator[App]:
    """Yield the app with its handlers under supervision.

    Costs a process at the first task of a worker, a list of the folder of notes at each task, and less than a
    microsecond for each message.
    """
    if how is None or threading.current_thread() is not threading.main_thread():
        yield app
        return
    suspects = frozenset[str]() if how.notes is None else read_notes(how.notes, wait=_is_retry())
    with (
        bounded_memory(how.memory),
        Note(how.notes) as note,
        Watch(how.seconds, note, suspects) as watch,
    ):
        yield supervised(app, watch)


def _is_retry() -> bool:
    context = TaskContext.get()
    return context is not None and context.attemptNumber() > 0

"""The tasks of a session are those of all its active stages; counting them ends with the session."""

import threading
from types import SimpleNamespace
from typing import Any

from py4j.protocol import Py4JError

from runtime.spark.sessions.progress import TaskWatch, count_tasks

STAGES = {
    1: SimpleNamespace(numTasks=8, numCompletedTasks=3),
    2: SimpleNamespace(numTasks=4, numCompletedTasks=0),
}


def session(active: Any) -> Any:
    tracker = SimpleNamespace(getActiveStageIds=active, getStageInfo=STAGES.get)
    return SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))


def test_tasks_are_those_of_all_active_stages():
    assert count_tasks(session(lambda: [1, 2, 3])) == (3, 12)


def test_they_are_shown_until_the_watch_is_closed():
    shown: list[tuple[int, int]] = []
    seen = threading.Event()

    def show(done: int, total: int) -> None:
        shown.append((done, total))
        seen.set()

    watch = TaskWatch(session(lambda: [1, 2]), show)
    assert seen.wait(60)
    watch.close()

    assert set(shown) == {(3, 12)}
    assert "spark-progress" not in {thread.name for thread in threading.enumerate()}


def test_a_session_that_is_gone_ends_the_watch():
    asked = threading.Event()

    def gone() -> None:
        asked.set()
        raise Py4JError("the JVM is gone")

    watch = TaskWatch(session(gone), lambda *_: None)
    assert asked.wait(60)
    watch.close()

"""The event loop of a connection: several coroutines are under way at once, as many as the store answers quickly."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Coroutine, Generator, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from runtime.spark.workers.concurrency import ConcurrencyLimit, Wait

T = TypeVar("T")


class EventLoop:
    """Runs coroutines of one thread, one by one or several at once."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()

    def run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run one coroutine to its end. Ctrl-C cancels it."""
        if asyncio._get_running_loop() is None:  # noqa: SLF001 - asks without raising
            return self._run(coroutine)
        with ThreadPoolExecutor(1) as thread:  # a notebook has a loop of its own under way
            return thread.submit(self._run, coroutine).result()

    def run_all(
        self, work: Iterable[Coroutine[Any, Any, T] | Wait], concurrency: ConcurrencyLimit
    ) -> Iterator[T]:
        """Run coroutines as `Connection.run_all` does."""
        running: set[asyncio.Task[T]] = set()
        try:
            for each in work:
                if each is Wait.FOR_ONE:
                    running = yield from self._take_finished(running)
                elif each is Wait.FOR_ALL:
                    while running:
                        running = yield from self._take_finished(running)
                elif not isinstance(each, Wait):
                    running.add(self._loop.create_task(each))
                    while len(running) >= concurrency.limit:
                        running = yield from self._take_finished(running)
            while running:
                running = yield from self._take_finished(running)
        finally:
            self._cancel(running)

    def close(self) -> None:
        """End it."""
        self._loop.close()

    def _run(self, coroutine: Coroutine[Any, Any, T]) -> T:
        task = self._loop.create_task(coroutine)
        try:
            return self._loop.run_until_complete(task)
        except BaseException:
            if not task.done():
                self._cancel([task])
            raise

    def _cancel(self, tasks: Collection[asyncio.Task[Any]]) -> None:
        """End tasks that nobody waits for any more: one left pending would go on when the loop runs again."""
        for task in tasks:
            task.cancel()
        if tasks:
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def _take_finished(self, running: set[asyncio.Task[T]]) -> Generator[T, None, set[asyncio.Task[T]]]:
        done, waiting = self._loop.run_until_complete(
            asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
        )
        while done:
            yield done.pop().result()
        return waiting

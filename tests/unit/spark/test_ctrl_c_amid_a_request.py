"""Ctrl-C while the driver waits for a store ends the request, and leaves nothing that goes on or complains later."""

from __future__ import annotations

import asyncio
import os
import signal
import threading

import pytest

from runtime.spark.worker.connection import EventLoop


@pytest.fixture(autouse=True)
def interrupted_as_in_a_terminal():
    """Let Python raise KeyboardInterrupt: a process that was started in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def loop():
    made = EventLoop()
    yield made
    made.close()


@pytest.mark.parametrize("interrupts", ["the wait", "the code of the request"])
def test_it_ends_the_request_and_the_next_one_runs(loop, interrupts, caplog):
    steps = []

    async def request():
        try:
            steps.append("sent")
            interrupt = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
            interrupt.start()
            if interrupts == "the wait":
                await asyncio.sleep(60)
            else:
                await asyncio.sleep(0)
                while True:
                    steps.append("reading") if steps[-1] != "reading" else None
        finally:
            steps.append("closed")

    async def answer():
        return len(asyncio.all_tasks())

    with pytest.raises(KeyboardInterrupt):
        loop.run(request())

    assert steps[-1] == "closed"
    assert loop.run(answer()) == 1
    assert not caplog.records

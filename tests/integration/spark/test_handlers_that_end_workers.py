"""A worker that dies during a message, or hangs in it, is replaced, and the batch goes on without the message."""

from __future__ import annotations

import ctypes
import os
import signal
from collections.abc import Callable
from datetime import timedelta

import pytest

from handlers import App, Context, Handler, Message, State, handles
from tests.support.logs import write_lines

DEEDS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "leave": lambda: os._exit(0),
    "keep the interpreter": lambda: sum(range(10**13)),
}


class Do(Message):
    room: str
    deed: str


class Count(State):
    count: int = 0


class Doer(Handler[Count]):
    @handles(by="room")
    def do(self, state: Count, message: Do, context: Context) -> Count:
        DEEDS[message.deed]()
        return Count(count=state.count + 1)


@pytest.mark.parametrize(
    ("deed", "reason"),
    [
        pytest.param("kill", "handler_crashed", marks=pytest.mark.thorough),
        pytest.param("segfault", "handler_crashed", marks=pytest.mark.thorough),
        pytest.param("leave", "handler_crashed", marks=pytest.mark.thorough),
        pytest.param("keep the interpreter", "handler_timeout", marks=pytest.mark.thorough),
    ],
)
def test_the_batch_goes_on_without_the_message(place, deed, reason):
    place.app = App(Doer)
    deeds = ["nothing", "nothing", deed, "nothing"]
    rows = [
        {
            "message_id": f"m-{number}",
            "type": "Do",
            "sequence": number,
            "body": {"room": "hall", "deed": each},
        }
        for number, each in enumerate(deeds)
    ]
    log = write_lines(place.folder / "log.jsonl", rows)

    outcomes = place.run(log, batch_id="night", handler_timeout=timedelta(seconds=3), partitions=1)

    ends = {row.message_id: row.reason or row.status for row in outcomes.collect()}
    assert ends == {"m-0": "processed", "m-1": "processed", "m-2": reason, "m-3": "processed"}
    # ... and so it stays: the next batch finds the refusal recorded
    again = place.run(log, handler_timeout=timedelta(seconds=3), partitions=1)
    assert {row.reason for row in again.collect()} == {None, reason}

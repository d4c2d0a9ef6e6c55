"""A handler that hangs, dies or takes all memory makes a dead letter of its message, and of no other one."""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from unittest.mock import Mock

import pytest
from pydantic import field_validator

from eventstore import connect, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Processor
from runtime.batches.context import BatchContext
from runtime.messages.envelope import Envelope
from runtime.messages.envelopes import Envelopes
from runtime.messages.parsing import prepare_all
from runtime.spark.workers.job import FoldJob
from runtime.spark.workers.supervision import Supervision
from runtime.supervision.note import Note, leave, read_notes, remove_notes
from runtime.supervision.supervised import supervised
from runtime.supervision.watch import Watch
from tests.support.routed import routed

QUICK = 0.4
MEMORY = 2**28


def _for_ever() -> None:
    while True:
        pass


def _for_ever_whatever_comes() -> None:
    end = time.monotonic() + 3 * QUICK
    while time.monotonic() < end:
        with contextlib.suppress(BaseException):
            _for_ever()


def _asleep() -> None:
    time.sleep(60)


def _raise(error: BaseException) -> Callable[[], None]:
    def run() -> None:
        raise error

    return run


def _of_memory() -> None:
    held = []
    while True:
        held.append(bytearray(2**24))


DEEDS: dict[str, Callable[[], object]] = {
    "nothing": lambda: None,
    "loop": _for_ever,
    "loop and catch": _for_ever_whatever_comes,
    "sleep": _asleep,
    "cancel": _raise(asyncio.CancelledError()),
    "generator exit": _raise(GeneratorExit()),
    "interrupt": _raise(KeyboardInterrupt()),
    "exit": _raise(SystemExit(3)),
    "group": _raise(BaseExceptionGroup("all", [KeyboardInterrupt()])),
    "pause": lambda: time.sleep(QUICK / 4),
    "be interrupted": lambda: os.kill(os.getpid(), signal.SIGINT),
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "segfault": lambda: ctypes.string_at(0),
    "leave": lambda: os._exit(0),
    "take all memory": _of_memory,
}
OF_BASE = ["cancel", "generator exit", "interrupt", "exit", "group"]
HANGING = ["loop", "loop and catch", "sleep"]
DYING = ["kill", "segfault", "leave"]


class Do(Message):
    room: str
    deed: str

    @field_validator("room")
    @classmethod
    def does(cls, room: str) -> str:
        DEEDS.get(room.partition(" ")[0] if "pause" in room else room, DEEDS["nothing"])()
        return room


class Count(State):
    count: int = 0


class Doer(Handler[Count]):
    @handles(by="room")
    def do(self, state: Count, message: Do, context: Context) -> Count:
        DEEDS[message.deed]()
        return Count(count=state.count + 1)


app = App(Doer)


def log(*deeds: str) -> list[dict[str, object]]:
    return [
        {"message_id": f"m-{number}", "type": "Do", "body": f'{{"room":"hall","deed":"{deed}"}}'}
        for number, deed in enumerate(deeds)
    ]


def fold(
    tmp_path: Path, *deeds: str, algorithm: str = "state-based", seconds: float = QUICK
) -> list[tuple[str, str | None]]:
    """Handle messages in this process, as a worker does, and return status or reason with the error of each."""
    job = FoldJob(
        app,
        f"sqlite:///{tmp_path}/store.db",
        "rooms",
        BatchContext("night"),
        algorithm=algorithm,  # type: ignore[arg-type]
        supervision=Supervision(seconds, MEMORY, str(tmp_path / "notes")),
    )
    rows = [row for batch in job.fold(routed(app, log(*deeds))) for row in batch.to_pylist()]
    return [(row["reason"] or row["status"], row["error"]) for row in rows]


@pytest.fixture
def _own_alarm() -> Iterator[None]:
    """Give the signal to the test, which whoever bounds the time of tests may use."""
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("algorithm", ["state-based", "outbox"])
@pytest.mark.parametrize("deed", HANGING)
def test_a_handler_that_hangs_is_interrupted(tmp_path, deed, algorithm):
    found = fold(tmp_path, "nothing", deed, "nothing", algorithm=algorithm)

    assert [end for end, _ in found] == ["processed", "handler_timeout", "processed"]
    assert "longer than 0.4 s" in str(found[1][1])
    # ... and the next attempt finds that recorded
    assert fold(tmp_path, "nothing", deed, "nothing", algorithm=algorithm)[1] == found[1]


@pytest.mark.parametrize("deed", ["loop", "sleep"])
def test_a_validator_that_hangs_is_interrupted(deed):
    bodies = [f'{{"room":"{room}","deed":"nothing"}}' for room in ("hall", deed, deed, "hall")]
    given = Envelopes.of([Envelope(f"m-{number}", "Do", body) for number, body in enumerate(bodies)])

    with Note() as note, Watch(QUICK, note) as watch:
        handler = supervised(app, watch).handlers["Doer"]
        messages = prepare_all(handler, "hall", given).messages

    assert [getattr(each, "reason", None) for each in messages] == [None, *["handler_timeout"] * 2, None]
    assert "validators of the message took longer than 0.4 s" in str(messages[1])


def test_messages_that_take_long_together_are_parsed():
    bodies = [f'{{"room":"pause {number}","deed":"nothing"}}' for number in range(6)]
    given = Envelopes.of([Envelope(f"m-{number}", "Do", body) for number, body in enumerate(bodies)])

    with Note() as note, Watch(QUICK, note) as watch:
        handler = supervised(app, watch).handlers["Doer"]
        messages = prepare_all(handler, "hall", given).messages

    assert {str(getattr(each, "reason", None)) for each in messages} == {"business_id_mismatch"}


@pytest.mark.parametrize("deed", OF_BASE)
def test_what_ends_programs_ends_no_worker(tmp_path, deed):
    found = fold(tmp_path, "nothing", deed, "nothing")

    assert [end for end, _ in found] == ["processed", "handler_error", "processed"]


def test_a_handler_that_takes_all_memory_fails(tmp_path):
    found = fold(tmp_path, "nothing", "take all memory", "nothing", seconds=60)

    assert [end for end, _ in found] == ["processed", "handler_error", "processed"]
    assert "MemoryError" in str(found[1][1])


@pytest.mark.parametrize("algorithm", ["state-based", "outbox"])
@pytest.mark.parametrize("deed", DYING)
def test_a_message_of_which_there_is_a_note_is_tried_apart(tmp_path, deed, algorithm):
    leave(str(tmp_path / "notes"), b"m-1")
    leave(str(tmp_path / "notes"), b"m-2")

    found = fold(tmp_path, "nothing", deed, "nothing", algorithm=algorithm, seconds=60)

    assert [end for end, _ in found] == ["processed", "handler_crashed", "processed"]


@pytest.mark.parametrize("deed", HANGING)
def test_and_so_is_one_that_hung(tmp_path, deed):
    leave(str(tmp_path / "notes"), b"m-0")

    assert fold(tmp_path, deed, "nothing")[0][0] == "handler_timeout"


def test_a_worker_that_is_killed_leaves_a_note_of_its_message(tmp_path):
    for deed in DYING:
        copy = os.fork()
        if copy == 0:
            faulthandler.disable()
            fold(tmp_path, "nothing", deed, seconds=60)
            os._exit(1)
        os.waitpid(copy, 0)

        assert read_notes(str(tmp_path / "notes"), wait=True) == {"m-1"}
        remove_notes(str(tmp_path / "notes"))


def test_a_worker_has_one_keeper_for_the_tasks_of_all_batches(tmp_path, monkeypatch):
    # Given a worker with tasks of two batches, which dies in the second
    first, second = str(tmp_path / "first"), str(tmp_path / "second")
    copy = os.fork()
    if copy == 0:
        faulthandler.disable()
        started = Mock(wraps=subprocess.Popen)
        monkeypatch.setattr(subprocess, "Popen", started)
        with Note(first) as note:
            note.write("m-1")
        with Note(second) as note:
            note.write(f"m-{started.call_count + 1}")
            os._exit(1)

    # When it has died
    os.waitpid(copy, 0)

    # Then its only keeper has left a note in the second batch
    assert read_notes(second, wait=True) == {"m-2"}
    assert read_notes(first, wait=False) == frozenset()


def test_a_keeper_ends_with_a_process_that_ends_in_good_order(tmp_path):
    program = """
import sys
from runtime.supervision.keeper import _keepers
from runtime.supervision.note import Note
with Note(sys.argv[1]) as note:
    note.write("m-1")
(keeper,) = _keepers.values()
print(keeper.process.pid)
"""

    command = [sys.executable, "-W", "error::ResourceWarning", "-c", program, str(tmp_path / "notes")]
    ended = subprocess.run(command, capture_output=True, text=True, check=True)

    assert ended.stderr == ""
    assert not Path(f"/proc/{int(ended.stdout)}").exists()
    assert read_notes(str(tmp_path / "notes"), wait=False) == frozenset()


def test_a_keeper_that_is_killed_is_replaced(tmp_path):
    copy = os.fork()
    if copy == 0:
        faulthandler.disable()
        for number in range(2):
            with Note(str(tmp_path / "notes")) as note:
                note.write(f"m-{number}")
                (children,) = Path(f"/proc/self/task/{os.getpid()}/children").read_text().splitlines()
                if number:
                    os._exit(1)
                os.kill(int(children), signal.SIGKILL)
                os.waitid(os.P_PID, int(children), os.WEXITED | os.WNOWAIT)

    os.waitpid(copy, 0)

    assert read_notes(str(tmp_path / "notes"), wait=True) == {"m-1"}


def test_a_worker_that_ends_leaves_none(tmp_path):
    fold(tmp_path, "nothing", "loop", "exit")

    assert read_notes(str(tmp_path / "notes"), wait=False) == frozenset()


async def forward(_: object) -> None: ...


def consume(deed: str) -> str | None:
    processor = Processor(
        app, drive(connect("memory:").table("rooms")), forward, handler_timeout=timedelta(seconds=QUICK)
    )
    body = f'{{"room":"hall","deed":"{deed}"}}'
    (outcome,) = drive(processor.process(Envelope("m-1", "Do", body)))
    (good,) = drive(processor.process(Envelope("m-2", "Do", '{"room":"hall","deed":"nothing"}')))
    assert good.status == "processed"
    return outcome.reason


@pytest.mark.parametrize("deed", OF_BASE)
def test_nor_does_a_validator_stop_a_consumer(deed):
    processor = Processor(app, drive(connect("memory:").table("rooms")), forward)

    (outcome,) = drive(processor.process(Envelope("m-1", "Do", f'{{"room":"{deed}","deed":"nothing"}}')))

    assert outcome.reason == "invalid_body"


@pytest.mark.usefixtures("_own_alarm")
@pytest.mark.parametrize("deed", HANGING)
def test_a_consumer_goes_on_after_a_handler_that_hangs(deed):
    assert consume(deed) == "handler_timeout"
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


@pytest.mark.usefixtures("_own_alarm")
def test_a_consumer_goes_on_after_a_validator_that_hangs():
    table = drive(connect("memory:").table("rooms"))
    processor = Processor(app, table, forward, handler_timeout=timedelta(seconds=QUICK))

    (outcome,) = drive(processor.process(Envelope("m-1", "Do", '{"room":"sleep","deed":"nothing"}')))

    assert outcome.reason == "handler_timeout"
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


@pytest.mark.parametrize("deed", OF_BASE)
def test_a_consumer_goes_on_after_what_ends_programs(deed):
    assert consume(deed) == "handler_error"


def test_a_consumer_is_stopped_by_who_interrupts_it():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            consume("be interrupted")
    finally:
        signal.signal(signal.SIGINT, before)


def test_supervision_costs_microseconds_at_most():
    context = Context("Doer", "hall", "00000000-0000-4000-8000-000000000001", 0)
    state, message = Count(), Do(room="hall", deed="nothing")
    do = app.handlers["Doer"].routes["Do"].revisions[1]

    def cost(call: Callable[[], object], times: int = 20_000) -> float:
        begun = time.process_time()
        for _ in range(times):
            call()
        return (time.process_time() - begun) / times

    with Note() as note, Watch(30, note) as watch:
        call = watch.supervise(do)
        watched = min(cost(lambda: call(state, message, context)) for _ in range(5))
    alone = min(cost(lambda: do(state, message, context)) for _ in range(5))

    assert watched - alone < 5e-6

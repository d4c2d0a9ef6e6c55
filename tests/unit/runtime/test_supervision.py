"""A handler that hangs, dies or takes all memory makes a dead letter of its message, and of no other one."""

import asyncio
import contextlib
import ctypes
import json
import os
import signal
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
from runtime.algorithms.choice import AlgorithmName
from runtime.batch_options import BatchOptions
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import Envelope, Envelopes
from runtime.messages.outcome import Outcome
from runtime.messages.parsing import prepare_all
from runtime.spark.worker import job as supervising
from runtime.spark.worker.job import FoldJob
from runtime.supervision import Watch, supervised
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
    "sleep": lambda: time.sleep(60),
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
    "keep the interpreter": lambda: sum(range(10**11)),
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


def fold(
    tmp_path: Path,
    *deeds: str,
    algorithm: AlgorithmName = "state-based",
    room: str = "hall",
    seconds: float = QUICK,
) -> list[tuple[str, str | None]]:
    """Handle messages in this process, as a worker does, and return status or reason with the error of each."""
    timeout = timedelta(seconds=seconds)
    options = BatchOptions(algorithm=algorithm, handler_timeout=timeout, worker_memory=MEMORY)
    store = f"sqlite:///{tmp_path}/store.db"
    job = FoldJob(app, store, "rooms", BatchContext("night"), options, is_supervised=True)
    log = [
        {"message_id": f"m-{n}", "type": "Do", "body": json.dumps({"room": room.format(n), "deed": deed})}
        for n, deed in enumerate(deeds)
    ]
    rows = [row for batch in job.fold(routed(app, log)) for row in batch.to_pylist()]
    rows.sort(key=lambda row: row["message_id"])
    return [(row["reason"] or row["status"], row["error"]) for row in rows]


@pytest.fixture
def _own_alarm() -> Iterator[None]:
    """Give the signal to the test, which whoever bounds the time of tests may use."""
    before = signal.signal(signal.SIGALRM, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("algorithm", ["state-based", pytest.param("outbox", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("deed", HANGING)
def test_a_handler_that_hangs_is_interrupted(tmp_path, deed, algorithm):
    found = fold(tmp_path, "nothing", deed, "nothing", algorithm=algorithm)

    assert [end for end, _ in found] == ["processed", "handler_timeout", "processed"]
    assert "interrupted after 0.4 s" in str(found[1][1])
    # ... and the next attempt finds that recorded
    assert fold(tmp_path, "nothing", deed, "nothing", algorithm=algorithm)[1] == found[1]


def parsed(*rooms: str) -> list[str]:
    """Return what becomes of messages to rooms when they are parsed."""
    bodies = [f'{{"room":"{room}","deed":"nothing"}}' for room in rooms]
    given = Envelopes.of([Envelope(f"m-{number}", "Do", body) for number, body in enumerate(bodies)])
    with Watch(QUICK) as watch:
        messages = prepare_all(supervised(app, watch).handlers["Doer"], "hall", given).messages
    return [f"{each.reason}: {each.error}" if isinstance(each, Outcome) else "ready" for each in messages]


@pytest.mark.parametrize("deed", ["loop", "sleep"])
def test_a_validator_that_hangs_is_interrupted(deed):
    first, *hung, last = parsed("hall", deed, deed, "hall")

    assert (first, last) == ("ready", "ready")
    assert hung == ["handler_timeout: The message's validators were interrupted after 0.4 s."] * 2


def test_messages_that_take_long_together_are_parsed():
    found = parsed(*(f"pause {number}" for number in range(6)))

    assert {each.partition(":")[0] for each in found} == {"business_id_mismatch"}


def test_calls_that_parse_one_message_each_are_not_taken_for_one_that_hangs():
    polled = []
    with Watch(QUICK) as watch:
        for _ in range(2):
            watch.parse(lambda: polled.append(watch._under_way()), [])
    assert polled[0] != polled[1]


@pytest.mark.parametrize("deed", OF_BASE)
def test_what_ends_programs_ends_no_worker(tmp_path, deed):
    found = fold(tmp_path, "nothing", deed, "nothing")

    assert [end for end, _ in found] == ["processed", "handler_error", "processed"]


def test_a_handler_that_takes_all_memory_fails(tmp_path):
    found = fold(tmp_path, "nothing", "take all memory", "nothing", seconds=60)

    assert [end for end, _ in found] == ["processed", "handler_error", "processed"]
    assert "MemoryError" in str(found[1][1])


@pytest.fixture
def _retried(monkeypatch) -> None:
    """Make the task one whose worker died before."""
    context = Mock(attemptNumber=lambda: 1, partitionId=lambda: 0)
    monkeypatch.setattr(supervising, "TaskContext", Mock(get=lambda: context))


@pytest.mark.usefixtures("_retried")
@pytest.mark.parametrize("algorithm", ["state-based", pytest.param("outbox", marks=pytest.mark.thorough)])
@pytest.mark.parametrize("deed", DYING)
def test_on_a_retry_a_message_that_ends_its_process_is_refused(tmp_path, deed, algorithm):
    deeds = ["nothing", deed, "nothing", deed, "cancel", "nothing"]

    found = fold(tmp_path, *deeds, algorithm=algorithm, seconds=60)

    ends = ["processed", "handler_crashed", "processed", "handler_crashed", "handler_error", "processed"]
    assert [end for end, _ in found] == ends
    assert "The message crashed a worker" in str(found[1][1])


@pytest.mark.usefixtures("_retried")
def test_on_a_retry_several_streams_of_a_chunk_may_end_the_process(tmp_path):
    deeds = ["nothing", "kill", "nothing", "kill", "nothing", "nothing"]

    found = fold(tmp_path, *deeds, room="hall-{}", seconds=60)

    ends = ["handler_crashed" if deed == "kill" else "processed" for deed in deeds]
    assert [end for end, _ in found] == ends


@pytest.mark.usefixtures("_retried")
@pytest.mark.parametrize("deed", ["loop", "keep the interpreter"])
def test_on_a_retry_a_message_that_hangs_is_refused(tmp_path, deed):
    found = fold(tmp_path, "nothing", deed, "nothing")

    assert [end for end, _ in found] == ["processed", "handler_timeout", "processed"]


@pytest.mark.usefixtures("_retried")
def test_on_a_retry_a_replay_that_ends_its_process_is_refused(tmp_path, monkeypatch):
    fold(tmp_path, "nothing", "pause", "nothing")
    monkeypatch.setitem(DEEDS, "pause", DEEDS["kill"])

    found = fold(tmp_path, "nothing", "pause", "nothing", seconds=60)

    assert [end for end, _ in found] == ["processed", "replay_failed", "processed"]


@pytest.mark.usefixtures("_retried")
def test_on_a_retry_a_copy_that_something_else_has_killed_convicts_nobody(tmp_path, monkeypatch):
    # Given a message whose handler ends its process once
    killed = tmp_path / "killed"

    def die_once() -> None:
        if not killed.exists():
            killed.touch()
            os._exit(1)

    monkeypatch.setitem(DEEDS, "kill", die_once)

    assert [end for end, _ in fold(tmp_path, "nothing", "kill")] == ["processed", "processed"]


async def forward(_: object) -> None: ...


def consume(deed: str = "nothing", room: str = "hall") -> str | None:
    """Return what a consumer says of a message, once it has handled another one after it."""
    table, timeout = drive(connect("memory:").table("rooms")), timedelta(seconds=QUICK)
    processor = Processor(app, table, forward, handler_timeout=timeout)
    (outcome,) = drive(processor.process(Envelope("m-1", "Do", f'{{"room":"{room}","deed":"{deed}"}}')))
    (good,) = drive(processor.process(Envelope("m-2", "Do", '{"room":"hall","deed":"nothing"}')))
    assert good.status == "processed"
    return outcome.reason


@pytest.mark.usefixtures("_own_alarm")
@pytest.mark.parametrize("given", [*({"deed": deed} for deed in HANGING), {"room": "sleep"}], ids=str)
def test_a_consumer_goes_on_after_a_handler_or_a_validator_that_hangs(given):
    assert consume(**given) == "handler_timeout"
    assert signal.getsignal(signal.SIGALRM) is signal.SIG_DFL


@pytest.mark.parametrize("deed", OF_BASE)
def test_a_consumer_goes_on_after_what_ends_programs(deed):
    assert consume(deed) == "handler_error"
    assert consume(room=deed) == "invalid_body"


def test_a_consumer_is_stopped_by_who_interrupts_it():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            consume("be interrupted")
    finally:
        signal.signal(signal.SIGINT, before)


def test_supervision_costs_nothing_for_a_call():
    method = app.handlers["Doer"].routes["Do"].revisions[1]

    with Watch(30) as watch:
        assert supervised(app, watch).handlers["Doer"].routes["Do"].revisions[1] is method

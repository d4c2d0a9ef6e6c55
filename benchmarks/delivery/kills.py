"""Deliveries that are killed again and again until all is delivered, and what their receiver has seen by then."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from multiprocessing.connection import wait
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.delivery.receiver import Receiver
from benchmarks.delivery.sender import Work, work

_SHARE = 0.8
"""The share of messages that are sent while there are kills to come."""
_LOOK_EVERY = 0.001
_LONGEST_DELAY = 0.006
_PRELOADED = [
    "benchmarks.delivery.sender",
    "eventstore.backends.sqlite",
    "pandas",  # which PyArrow looks for
    "pyarrow.dataset",
    "runtime.delivery.redis_keys",
]
"""What the processes that are killed have imported when they begin."""


class BrokenPromiseError(Exception):
    """Raised when a delivery did what its strategy excludes."""


@dataclass(frozen=True, slots=True)
class Seen:
    """What became of the messages: as the receiver has counted them, and as they are recorded."""

    strategy: str
    keys: str
    messages: int
    kills: int
    requests: int
    lost: int
    duplicates: int
    recorded: Counter[str]
    seconds: float

    def check(self) -> Seen:
        """Return this. Raises `BrokenPromiseError` for what the strategy excludes."""
        broken = []
        if self.recorded.total() != self.messages:
            broken.append(f"{self.recorded.total()} of {self.messages} messages have a record")
        if self.strategy == "at most once" and self.duplicates:
            broken.append(f"{self.duplicates} were sent twice")
        if self.strategy == "at most once" and self.lost > self.recorded["unknown"]:
            broken.append(f"{self.lost} were lost, but only {self.recorded['unknown']} are unknown")
        if self.strategy == "at least once" and self.lost:
            broken.append(f"{self.lost} were lost")
        if broken:
            raise BrokenPromiseError(f"{self.strategy}, keys in {self.keys}: {'; '.join(broken)}.")
        return self


def deliver_and_kill(given: Work, kills: int, receiver: Receiver, chance: random.Random, keys: str) -> Seen:
    """Deliver the messages, kill the process that does so `kills` times at random moments, and then let it end.

    Raises `BrokenPromiseError` when a message that is recorded as sent never arrived.
    """
    begun, killed = time.monotonic(), 0
    context = get_context("forkserver")
    context.set_forkserver_preload(_PRELOADED)
    receiver.counts()
    for sends in _drawn(given.messages, kills, chance):
        process = context.Process(target=work, args=(given,))
        process.start()
        until = receiver.received + sends
        while receiver.received < until and not wait([process.sentinel], _LOOK_EVERY):
            pass
        time.sleep(chance.uniform(0, _LONGEST_DELAY))
        killed += process.is_alive()
        process.kill()
        process.join()
    process = context.Process(target=work, args=(given,))
    process.start()
    process.join()
    if process.exitcode:
        message = f"The delivery that was not killed ended with {process.exitcode}."
        raise BrokenPromiseError(message)
    return _seen(given, killed, receiver.counts(), keys, time.monotonic() - begun)


def _drawn(messages: int, kills: int, chance: random.Random) -> Iterator[int]:
    """Give after how many sends each process is killed, so that some messages are left for the last one."""
    most = max(round(2 * _SHARE * messages / max(kills, 1)) - 1, 1)
    for _ in range(kills):
        yield chance.randint(1, most)


def _seen(given: Work, kills: int, counts: Counter[str], keys: str, seconds: float) -> Seen:
    results = _final_results(Path(given.records))
    missing = [name for name, result in results.items() if result == "sent" and not counts[name]]
    if missing:
        raise BrokenPromiseError(f"{len(missing)} messages are recorded as sent, but never arrived.")
    return Seen(
        given.strategy,
        keys,
        given.messages,
        kills,
        counts.total(),
        given.messages - len(+counts),
        counts.total() - len(+counts),
        Counter(results.values()),
        seconds,
    ).check()


def _final_results(records: Path) -> dict[str, str]:
    """Return the result of each message. Raises `BrokenPromiseError` when one has two final records that differ."""
    found: dict[str, str] = {}
    for row in pq.read_table(records).to_pylist():
        if row["is_final"] and found.setdefault(row["message_id"], row["result"]) != row["result"]:
            raise BrokenPromiseError(f"{row['message_id']} has two records that differ.")
    return found

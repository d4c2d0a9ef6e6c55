"""`python -m tests.serve_kills --kills 100`: kill consumers at random moments, and look for what is lost or twice.

Two consumers handle entries of accounts on an SQLite file, while a producer sends them, some of them twice. At moments
drawn from the seed a consumer is sent SIGKILL, or SIGSTOP until its session has expired, or SIGTERM while another one
joins, so that partitions move with keys in flight. `--broker kafka-1-killed` and `kafka-3-killed` kill the only
broker, or one of three, and start it again. Then all that was published is read, of Kafka with `read_committed`,
and compared with what was sent. The exit code is 1 when something differs.
"""

from __future__ import annotations

import argparse
import re
import signal
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.serve_kills.world import (
    BROKERS,
    REPOSITORY,
    SESSION_SECONDS,
    Broker,
    Served,
    differences,
    entries,
    wait_until,
)

_CONSUMERS = 2
_KILLED, _PAUSED, _MOVED = "killed", "paused beyond the session", "ended while another joined"
_BROKER = "brokers killed"
_DEEDS = (_KILLED, _KILLED, _KILLED, _KILLED, _PAUSED, _MOVED)
_SENT, _TWICE, _OUTPUTS, _COPIES = "messages sent", "sent twice", "outputs", "copies of outputs"
_COLUMNS = (_KILLED, _PAUSED, _MOVED, _BROKER, _SENT, _TWICE, _OUTPUTS, _COPIES)
_PAGE = REPOSITORY / "docs" / "serve.md"
_END_SECONDS = 300


class Sending(threading.Thread):
    """Sends entries until it is told to stop."""

    def __init__(self, broker: Broker, chance: Random, rate: int) -> None:
        super().__init__(daemon=True)
        self._broker, self._chance, self._rate = broker, chance, rate
        self.sent: list[dict[str, Any]] = []
        self._ends = threading.Event()

    def run(self) -> None:
        messages = entries(self._chance, accounts=17, count=10**9)
        while not self._ends.wait(0.05):
            some = [next(messages) for _ in range(self._rate // 20)]
            self._broker.send(some)
            self.sent += some

    def end(self) -> None:
        self._ends.set()
        self.join()


def campaign(
    broker: Broker, folder: Path, kills: int, seed: int, rate: int
) -> tuple[Counter[str], list[str]]:
    """Disturb consumers so often; return what was done, and what is wrong at the end."""
    chance, store, log = Random(seed), folder / "store.db", folder / "log"
    sending = Sending(broker, Random(seed), rate)
    started: list[Served] = []

    def start() -> Served:
        started.append(Served(broker, store, log))
        return started[-1]

    try:
        return _disturb(broker, start, sending, chance, kills, log)
    finally:
        for each in started:
            each.kill()


def _disturb(
    broker: Broker, start: Callable[[], Served], sending: Sending, chance: Random, kills: int, log: Path
) -> tuple[Counter[str], list[str]]:
    totals = Counter[str]()
    consumers = [start() for _ in range(_CONSUMERS)]
    sending.start()
    time.sleep(2)
    while totals[_KILLED] < kills:
        time.sleep(chance.uniform(0.05, 2.5))
        place = chance.randrange(_CONSUMERS)
        deed = chance.choice(_DEEDS + (_BROKER,) * 4 if broker.nodes else _DEEDS)
        victim = consumers[place]
        if victim.has_ended:
            return totals, [f"a consumer ended by itself:\n{log.read_text()[-4000:]}"]
        if deed == _PAUSED:
            victim.signal(signal.SIGSTOP)
            time.sleep(chance.uniform(1, 2) * SESSION_SECONDS)
            victim.signal(signal.SIGCONT)
        elif deed == _BROKER:
            node = chance.choice(broker.nodes)
            node.kill()
            time.sleep(chance.uniform(0, 2))
            node.start()
        elif deed == _MOVED:
            consumers[place] = start()
            victim.signal(signal.SIGTERM)
            if not wait_until(lambda victim=victim: victim.has_ended, 60):
                victim.signal(signal.SIGUSR1)
                time.sleep(1)
                return totals, [f"a consumer did not end after SIGTERM:\n{log.read_text()[-8000:]}"]
        else:
            victim.kill()
            consumers[place] = start()
        totals[deed] += 1
        print(f"\r{dict(totals)}", end="", file=sys.stderr, flush=True)
    sending.end()
    if not wait_until(broker.is_idle, _END_SECONDS):
        for each in consumers:
            each.signal(signal.SIGUSR1)
        time.sleep(1)
        return totals, [f"not all was acknowledged within {_END_SECONDS} s:\n{log.read_text()[-12_000:]}"]
    for each in consumers:
        each.signal(signal.SIGTERM)
        each.process.wait(60)
    published = broker.published()
    totals[_SENT] = len(sending.sent)
    totals[_TWICE] = len(sending.sent) - len({each["message_id"] for each in sending.sent})
    totals[_OUTPUTS] = len({each.message_id for each in published})
    totals[_COPIES] = len(published) - totals[_OUTPUTS]
    return totals, differences(sending.sent, published, is_exact=broker.is_exact)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a campaign and print its totals."""
    parser = argparse.ArgumentParser(prog="python -m tests.serve_kills", description=__doc__)
    parser.add_argument("--kills", type=int, default=20, help="how many consumers are sent SIGKILL")
    parser.add_argument("--broker", choices=BROKERS, default="kafka")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--rate", type=int, default=200, help="messages a second")
    parser.add_argument("--write", action="store_true", help="write the totals into docs/serve.md")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, BROKERS[given.broker]() as broker:
        totals, wrong = campaign(broker, Path(folder), given.kills, given.seed, given.rate)
    print(f"\n{given.broker}, seed {given.seed}")
    for name, count in totals.items():
        print(f"{name:<32} {count:>8,}")
    for each in wrong[:20]:
        print(each)
    if given.write and not wrong:
        row = " | ".join([given.broker, *(f"{totals[name]:,}" for name in _COLUMNS)])
        page = re.sub(rf"^\| {given.broker} \|.*$", f"| {row} |", _PAGE.read_text(), flags=re.MULTILINE)
        _PAGE.write_text(page)
    print("Nothing differs." if not wrong else f"{len(wrong)} differences.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

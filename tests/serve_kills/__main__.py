"""`python -m tests.serve_kills --kills 100`: kill consumers at random, and look for lost, repeated or changed outputs.

Two consumers handle entries of accounts in an SQLite file, while a producer sends entries, some of them twice. At
random moments a consumer is sent SIGKILL, or SIGSTOP until its session has expired, or SIGTERM while another one joins,
so that partitions move with keys in flight. `--broker kafka-1-killed` and `kafka-3-killed` also kill the only broker,
or one of three, and restart it. At the end all outputs are read, from Kafka with `read_committed`, and compared with
the entries that were sent. The exit code is 1 if anything differs.
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
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Any

from tests.serve_kills.world import BROKERS, SESSION_SECONDS, Broker, Served, differences, entries
from tests.support.campaigns import ROOT, wait_until

_KILLED, _PAUSED, _MOVED = "killed", "paused beyond the session", "ended while another joined"
_BROKER = "brokers killed"
_ACCIDENTS = (_KILLED, _KILLED, _KILLED, _KILLED, _PAUSED, _MOVED)
_SENT, _TWICE, _OUTPUTS, _COPIES = "messages sent", "sent twice", "outputs", "copies of outputs"
_COLUMNS = (_KILLED, _PAUSED, _MOVED, _BROKER, _SENT, _TWICE, _OUTPUTS, _COPIES)
_PAGE = ROOT / "docs" / "serve.md"
_END_SECONDS = 300


class Sending(threading.Thread):
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


class Campaign:
    """Two consumers of a broker that are disturbed. `log` is what they write, `totals` what was done."""

    def __init__(self, broker: Broker, folder: Path) -> None:
        self.totals = Counter[str]()
        self._broker, self._store, self._log = broker, folder / "store.db", folder / "log"
        self._started: list[Served] = []

    def run(self, kills: int, seed: int, rate: int) -> list[str]:
        """Disturb the consumers until so many were killed; return what is wrong at the end."""
        sending = Sending(self._broker, Random(seed), rate)
        try:
            consumers = [self._start() for _ in range(2)]
            sending.start()
            time.sleep(2)
            return self._disturb(consumers, Random(seed), kills) or self._end(consumers, sending)
        finally:
            for each in self._started:
                each.kill()

    def _start(self) -> Served:
        self._started.append(Served(self._broker, self._store, self._log))
        return self._started[-1]

    def _disturb(self, consumers: list[Served], chance: Random, kills: int) -> list[str]:
        accidents = _ACCIDENTS + (_BROKER,) * 4 if self._broker.nodes else _ACCIDENTS
        while self.totals[_KILLED] < kills:
            time.sleep(chance.uniform(0.05, 2.5))
            place = chance.randrange(len(consumers))
            accident, victim = chance.choice(accidents), consumers[place]
            if victim.has_ended:
                return self._problem("a consumer ended by itself")
            if accident == _PAUSED:
                victim.signal(signal.SIGSTOP)
                time.sleep(chance.uniform(1, 2) * SESSION_SECONDS)
                victim.signal(signal.SIGCONT)
            elif accident == _BROKER:
                node = chance.choice(self._broker.nodes)
                node.kill()
                time.sleep(chance.uniform(0, 2))
                node.start()
            elif accident == _MOVED:
                consumers[place] = self._start()
                victim.signal(signal.SIGTERM)
                if not wait_until(lambda victim=victim: victim.has_ended, 60):  # type: ignore[misc]
                    return self._problem("a consumer did not end after SIGTERM", victim)
            else:
                victim.kill()
                consumers[place] = self._start()
            self.totals[accident] += 1
            print(f"\r{dict(self.totals)}", end="", file=sys.stderr, flush=True)
        return []

    def _end(self, consumers: list[Served], sending: Sending) -> list[str]:
        sending.end()
        if not wait_until(self._broker.is_idle, _END_SECONDS):
            return self._problem(f"not all was acknowledged within {_END_SECONDS} s", *consumers)
        for each in consumers:
            each.signal(signal.SIGTERM)
            each.process.wait(60)
        sent, published = sending.sent, self._broker.published()
        outputs = len({each.message_id for each in published})
        self.totals[_SENT] = len(sent)
        self.totals[_TWICE] = len(sent) - len({each["message_id"] for each in sent})
        self.totals[_OUTPUTS], self.totals[_COPIES] = outputs, len(published) - outputs
        return differences(sent, published, is_exact=self._broker.is_exact)

    def _problem(self, sentence: str, *hanging: Served) -> list[str]:
        """Return a problem with the end of the log, in which hanging consumers show their stacks."""
        for each in hanging:
            each.signal(signal.SIGUSR1)
        time.sleep(1)
        return [f"{sentence}:\n{self._log.read_text()[-12_000:]}"]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.serve_kills", description=__doc__)
    parser.add_argument("--seed", type=int, default=1, help="determines all that is drawn at random")
    parser.add_argument("--kills", type=int, default=20, help="the number of consumers that are sent SIGKILL")
    parser.add_argument("--broker", choices=BROKERS, default="kafka")
    parser.add_argument("--rate", type=int, default=200, help="messages a second")
    parser.add_argument("--write", action="store_true", help="write the totals into docs/serve.md")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder, BROKERS[given.broker]() as broker:
        campaign = Campaign(broker, Path(folder))
        wrong = campaign.run(given.kills, given.seed, given.rate)
    print(f"\n{given.broker}, seed {given.seed}")
    for name, count in campaign.totals.items():
        print(f"{name:<32} {count:>8,}")
    print(*wrong[:20], sep="\n", end="\n" if wrong else "")
    if given.write and not wrong:
        row = " | ".join([given.broker, *(f"{campaign.totals[name]:,}" for name in _COLUMNS)])
        page = re.sub(rf"^\| {given.broker} \|.*$", f"| {row} |", _PAGE.read_text(), flags=re.MULTILINE)
        _PAGE.write_text(page)
    print("Nothing differs." if not wrong else f"{len(wrong)} differences.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())

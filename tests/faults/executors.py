"""Executors of a cluster that are killed, while Spark runs slow tasks on two of them: the batch ends as it should."""

import json
import threading
import time
from collections import Counter
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from random import Random

from tests.faults.children import Child
from tests.faults.cluster import Cluster
from tests.faults.killed_stores import KilledStore
from tests.faults.trial import TRANSIENT, Bench, Trial, Undisturbed
from tests.faults.world import Shape, World

EXECUTOR = "an executor"
_GAMES, _MESSAGES = 4, 32
_MOST_KILLS = 10
_MOST_RUNS = 6
_SHARE_OF_THE_STORE = 0.3


def kill_executors(bench: Bench, shape: Shape, name: str, chance: Random) -> Trial:
    """Kill executors while a batch runs on a cluster; run it again until it has ended, and compare."""
    cluster = bench.cluster
    assert cluster is not None
    shape = replace(shape, games=_GAMES, messages=_MESSAGES)
    expected = _undisturbed(bench, cluster, shape)
    trial, orphans = Trial(), set[Path]()
    with bench.world(shape, name) as world:
        kills = chance.randint(4, _MOST_KILLS)
        for _ in range(_MOST_RUNS):
            cluster.order(_order(world))
            killer = _Killer(cluster, chance, kills, expected.seconds, bench.server)
            error = killer.watch()
            orphans |= killer.folders
            kills -= killer.kills.total()
            trial.kills += killer.kills
            if error is None:
                break
            if not error.startswith(TRANSIENT):
                trial.differences.append(error)
        else:
            trial.differences.append("the batch has not ended")
        cluster.wait_for_orphans(orphans)
        found = Child(world.look).end().result
        trial.differences += found.differences(expected.found)
    return trial


def _undisturbed(bench: Bench, cluster: Cluster, shape: Shape) -> Undisturbed:
    if shape not in bench.known:
        with bench.world(shape, f"undisturbed-{len(bench.known)}") as world:
            begun = time.monotonic()
            cluster.order(_order(world))
            error = cluster.answer()["error"]
            assert error is None, error
            found = Child(world.look).end().result
            bench.known[shape] = Undisturbed(found, time.monotonic() - begun, 0)
    return bench.known[shape]


def _order(world: World) -> dict[str, object]:
    log = world.folder / "log.jsonl"
    log.write_text("".join(json.dumps(row, default=datetime.isoformat) + "\n" for row in world.log))
    return {
        "algorithm": world.shape.algorithm,
        "store": world.place.store,
        "table": world.place.table,
        "out": str(world.out),
        "log": str(log),
    }


class _Killer:
    """Kills executors at random moments until the driver answers, and the store now and then if it is to be killed."""

    def __init__(
        self, cluster: Cluster, chance: Random, kills: int, seconds: float, store: KilledStore | None
    ) -> None:
        self._cluster = cluster
        self._chance = chance
        self._kills = kills
        self._seconds = seconds
        self._store = store
        self.kills = Counter[str]()
        self.folders = set[Path]()

    def watch(self) -> str | None:
        """Return the error with which the batch ended."""
        answers: list[str | None] = []
        waiting = threading.Thread(target=lambda: answers.append(self._cluster.answer()["error"]))
        waiting.start()
        while waiting.is_alive():
            waiting.join(self._chance.uniform(0, self._seconds / 4))
            executors = self._cluster.executors()
            if not waiting.is_alive() or self.kills.total() >= self._kills:
                continue
            if self._store is not None and self._chance.random() < _SHARE_OF_THE_STORE:
                self._store.kill()
                time.sleep(self._chance.uniform(0, 1))
                self._store.start()
                self.kills[self._store.name] += 1
            elif executors:
                folder = self._cluster.kill(self._chance.choice(executors))
                if folder is not None:
                    self.folders.add(folder)
                    self.kills[EXECUTOR] += 1
        return answers[0]

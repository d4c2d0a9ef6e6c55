"""`python -m tests.faults`: kill what batches consist of at random moments, and compare how they end.

Exit code 0 when each batch ended as an undisturbed one does, 1 otherwise. It goes on where it was stopped: what was
done is kept in a folder, by the seed. The seed draws the logs, the victims and the moments; what a process is doing at
such a moment depends on the machine's load, too. It needs Linux.
"""

import argparse
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from typing import Any
from unittest.mock import patch

from runtime import file_systems
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.algorithms.state_based.decide import Decider
from runtime.messages.envelope import id_key
from runtime.messages.outcome import Outcome, Status
from runtime.spark.commit import BatchFolders
from tests.faults.children import adopt_orphans, get_ready_to_fork
from tests.faults.cluster import running_cluster
from tests.faults.disturbances import (
    Bench,
    fill_disks,
    kill_and_compare,
    kill_executors,
    kill_store,
    run_rivals,
)
from tests.faults.killed_stores import KilledStore, durable_azurite, killed_postgresql
from tests.faults.marks import Marks
from tests.faults.worlds import ALGORITHMS, OutOfTime, Shape, Streamed, Truncated, World, shapes
from tests.plugins.azurite import running_azurite
from tests.support.campaigns import ROOT, Record, Trial, options, rewrite, section
from tests.support.servers import postgresql

IN_MEMORY = Path("/dev/shm")
_SAVE_SECONDS = 5
_MOST_KILLS = 20
SQLITE, AZURITE, POSTGRESQL = "SQLite", "Azurite", "PostgreSQL"

Attempt = Callable[[Bench, Shape, str, Random], Trial]
"""One trial of a batch, with a name and a source of chance of its own."""


@dataclass(frozen=True, slots=True)
class Part:
    """One kind of trouble. `goal` is the number of kills, or of other faults, after which it is done.

    There are `logs` batches for each of the algorithms.
    """

    name: str
    store: str
    sentence: str
    goal: int
    attempt: Attempt
    kind: type[World] = World
    algorithms: Sequence[AlgorithmName] = ALGORITHMS
    logs: int = 3
    needs_cluster: bool = False
    kills_store: bool = False

    def shapes(self, seed: int) -> list[Shape]:
        return [shape for shape in shapes(seed, self.logs) if shape.algorithm in self.algorithms]


def _kill(bench: Bench, shape: Shape, name: str, chance: Random) -> Trial:
    return kill_and_compare(bench, shape, name, chance, chance.randint(1, _MOST_KILLS))


_KILLED = "workers, drivers, batches killed"

_CLUSTERED: tuple[AlgorithmName, ...] = ("state-based", "outbox")
_RESTARTED = "killed and started again in the middle of batches"
_ALL = (
    Part("batches", SQLITE, _KILLED, 9_000, _kill),
    Part("truncations", SQLITE, "workers and drivers of truncations killed", 1_000, _kill, Truncated, ("state-based",)),
    Part("streams", SQLITE, f"epoch by epoch; {_KILLED}", 500, _kill, Streamed),
    Part("rivals", SQLITE, "two drivers of one batch at once, one of them killed now and then", 300, run_rivals),
    Part("clocks", SQLITE, f"clocks that jump by years; {_KILLED}", 300, _kill, OutOfTime),
    Part("disks", SQLITE, "disks that are full, or read-only", 200, fill_disks),
    Part("azurite", AZURITE, _KILLED, 1_000, _kill),
    Part("azurite-killed", AZURITE, f"Azurite itself {_RESTARTED}", 100, kill_store, logs=1, kills_store=True),
    Part(
        "executors", AZURITE, "executors of a standalone cluster killed, one of three slow, with speculation", 200,
        kill_executors, algorithms=_CLUSTERED, logs=1, needs_cluster=True,
    ),
    Part("postgresql", POSTGRESQL, _KILLED, 500, _kill),
    Part("postgresql-killed", POSTGRESQL, f"PostgreSQL itself {_RESTARTED}", 60, kill_store, logs=1, kills_store=True),
    Part(
        "postgresql-executors", POSTGRESQL, "the same cluster; executors and PostgreSQL itself killed", 25,
        kill_executors, algorithms=_CLUSTERED, logs=1, needs_cluster=True, kills_store=True,
    ),
)  # fmt: skip
PARTS = {part.name: part for part in _ALL}


_conclude, _process = Decider._conclude, OutboxAlgorithm.process


def _replay_without_outputs(decider, known, published, draft) -> None:
    _conclude(decider, known, published, draft)
    draft.outcomes.published[-1] = ()


async def _finish_at_once(batch: OutboxAlgorithm, business_id: str, *given: Any) -> list[Outcome]:
    outcomes = await _process(batch, business_id, *given)
    known = [id_key(each.envelope.message_id) for each in outcomes if each.status is Status.PROCESSED]
    await batch.finish(business_id, known)
    return outcomes


MISTAKES: Mapping[str, Callable[[], Any]] = {
    "a replay gives no outputs": lambda: patch.object(Decider, "_conclude", _replay_without_outputs),
    "the first pass finishes messages": lambda: patch.object(OutboxAlgorithm, "process", _finish_at_once),
    "attempts are not swept up": lambda: patch.object(BatchFolders, "remove_staging", lambda _: None),
}


PAGE = ROOT / "docs" / "faults.md"
KILLS = Path(__file__).with_name("README.md")


def write_pages(records: Mapping[str, Record], page: Path = PAGE, by_victim: Path = KILLS) -> None:
    """Write the totals of each part to the page, and the kills by victim to the other one."""
    shown = read_pages(page, by_victim)
    all_ = {name: record if record.trials else shown.get(name, record) for name, record in records.items()}
    rewrite("totals", "\n".join(_totals(all_)), page)
    rewrite("kills", "\n".join(_kills(all_)), by_victim)


def read_pages(page: Path = PAGE, by_victim: Path = KILLS) -> dict[str, Record]:
    records = {}
    for name, *_, compared, differing, minutes in _cells("totals", page):
        records[name.strip("`")] = Record(_number(compared), 60.0 * _number(minutes), _number(differing))
    (_, *names), _, *rows = _cells("kills", by_victim, whole=True)
    for what, *counts in rows:
        for name, count in zip(names, counts, strict=True):
            if count:
                records[name.strip("`")].kills[what] = _number(count)
    return records


def _number(shown: str) -> int:
    return int(shown.replace(",", ""))


def _cells(mark: str, page: Path, *, whole: bool = False) -> list[list[str]]:
    """Return the cells of the rows of a table, without its head unless the `whole` is wanted."""
    lines = section(mark, page).strip().splitlines()
    table = [line for line in lines if line.startswith("|")]
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return cells if whole else cells[2:]


def _totals(records: Mapping[str, Record]) -> Iterator[str]:
    yield "| part | store | disturbance | faults | batches compared | that differ | minutes |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for name, record in records.items():
        part = PARTS[name]
        counts = (
            f"{record.kills.total():,} | {record.trials:,} | {record.differing} | {record.seconds / 60:.0f}"
        )
        yield f"| `{name}` | {part.store} | {part.sentence} | {counts} |"


def _kills(records: Mapping[str, Record]) -> Iterator[str]:
    yield f"| victim and moment | {' | '.join(f'`{name}`' for name in records)} |"
    yield f"|---|{'---:|' * len(records)}"
    for what in sorted({what for record in records.values() for what in record.kills}):
        counts = [f"{record.kills[what]:,}" if record.kills[what] else "" for record in records.values()]
        yield f"| {what} | {' | '.join(counts)} |"


def main(arguments: Sequence[str] | None = None) -> int:
    parser = options("tests.faults", "Kill batches at random moments, and compare how they end.")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; may be repeated")
    parser.add_argument("--mistake", action="append", choices=MISTAKES, help="plant a mistake: it is found")
    parser.add_argument(
        "--copy", action="store_true", help="copy outcomes into place, as if folders could not move"
    )
    parser.add_argument("--share", type=float, default=1.0, help="the share of each part: 0.01 is short")
    given = parser.parse_args(arguments)
    if not Path("/proc/self/task").exists():
        sys.exit("Children of a process are looked up in /proc, which this system does not have.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that clusters and stores are ended too
    adopt_orphans()
    get_ready_to_fork()
    folder = given.results / f"seed-{given.seed}"
    with ExitStack() as stack:
        for mistake in given.mistake or ():
            stack.enter_context(MISTAKES[mistake]())
        if given.copy:
            stack.enter_context(patch.object(file_systems, "_MOVE_FOLDERS", ()))
        for name in given.only or PARTS:
            _run(PARTS[name], folder, given)
    records = {name: Record.read(folder / f"{name}.json") for name in PARTS}
    if not (given.dry or given.mistake or given.copy):
        write_pages(records)
        print("Written to docs/faults.md and tests/faults/README.md.")
    return 1 if any(record.differing for record in records.values()) else 0


def _run(part: Part, folder: Path, given: argparse.Namespace) -> None:
    file = folder / f"{part.name}.json"
    record, saved, wanted = Record.read(file), time.monotonic(), part.goal * given.share
    shapes = part.shapes(given.seed)
    with ExitStack() as stack:
        bench = _bench(part, stack) if record.kills.total() < wanted else None
        while bench is not None and record.kills.total() < wanted:
            name = f"{part.name}-{record.trials}"
            chance, begun = Random(f"{given.seed} {name}"), time.monotonic()
            trial = part.attempt(bench, chance.choice(shapes), name, chance)
            record.add(trial, time.monotonic() - begun)
            if time.monotonic() - saved > _SAVE_SECONDS:
                record.write(file)
                saved = _tell(part, record, wanted)
    record.write(file)
    _tell(part, record, wanted)
    print(*record.differences, sep="\n", end="\n" if record.differences else "")


def _bench(part: Part, stack: ExitStack) -> Bench:
    where = IN_MEMORY if IN_MEMORY.exists() else None
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="faults-", dir=where)))
    bench = Bench(folder, Marks(), kind=part.kind)
    if part.kills_store:
        server: KilledStore
        if part.store == AZURITE:
            server = stack.enter_context(durable_azurite())
        else:
            server = stack.enter_context(killed_postgresql())
        bench = replace(bench, url=server.url, server=server)
    elif part.store == AZURITE:
        bench = replace(bench, url=f"azurite://{stack.enter_context(running_azurite('table'))}")
    elif part.store == POSTGRESQL:
        bench = replace(bench, url=stack.enter_context(postgresql()))
    if not part.needs_cluster:
        return bench
    (folder / "cluster").mkdir()
    return replace(bench, cluster=stack.enter_context(running_cluster(folder / "cluster")))


def _tell(part: Part, record: Record, wanted: float) -> float:
    print(
        f"{part.name}: {record.kills.total():,} of {wanted:,.0f} in {record.trials:,} batches, "
        f"{record.differing} of them differ, {record.seconds:,.0f} s",
        flush=True,
    )
    return time.monotonic()


if __name__ == "__main__":
    sys.exit(main())

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
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import patch

from runtime import file_systems
from tests.faults.campaign import (
    AZURITE,
    MISTAKES,
    PARTS,
    POSTGRESQL,
    Part,
    Record,
    planted,
    running_store,
    write_pages,
)
from tests.faults.children import adopt_orphans, get_ready_to_fork
from tests.faults.cluster import running_cluster
from tests.faults.killed_stores import KilledStore, durable_azurite, killed_postgresql
from tests.faults.marks import Marks
from tests.faults.trial import Bench

ROOT = Path(__file__).parents[2]
IN_MEMORY = Path("/dev/shm")
_SAVE_SECONDS = 5


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the program and return the exit code."""
    options = _options().parse_args(arguments)
    if not Path("/proc/self/task").exists():
        sys.exit("Children of a process are looked up in /proc, which this system does not have.")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that clusters and stores are ended too
    adopt_orphans()
    get_ready_to_fork()
    folder = options.results / f"seed-{options.seed}"
    moving = () if options.copy else file_systems._MOVE_FOLDERS
    with planted(options.mistake or ()), patch.object(file_systems, "_MOVE_FOLDERS", moving):
        for name in options.only or PARTS:
            _run(PARTS[name], folder, options)
    records = {name: Record.read(folder / f"{name}.json") for name in PARTS}
    if not (options.dry or options.mistake or options.copy):
        write_pages(records)
        print("Written to docs/faults.md and tests/faults/README.md.")
    return 1 if any(record.differing for record in records.values()) else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m tests.faults", description="Kill batches at random moments, and compare how they end."
    )
    parser.add_argument("--seed", type=int, default=1, help="what is drawn at random follows from it")
    parser.add_argument("--only", action="append", choices=PARTS, help="a part; may be given more than once")
    parser.add_argument("--mistake", action="append", choices=MISTAKES, help="plant a mistake: it is found")
    parser.add_argument(
        "--copy",
        action="store_true",
        help="say that the disk moves no folders: outcomes are copied into place",
    )
    parser.add_argument(
        "--share", type=float, default=1.0, help="how much of each part is wanted: 0.01 is short"
    )
    parser.add_argument("--results", type=Path, default=ROOT / ".faults", help="folder of finished trials")
    parser.add_argument("--dry", action="store_true", help="leave the pages unchanged")
    return parser


def _run(part: Part, folder: Path, options: argparse.Namespace) -> None:
    """Go on with a part until it has as many kills as are wanted."""
    file = folder / f"{part.name}.json"
    record, saved, wanted = Record.read(file), time.monotonic(), part.goal * options.share
    shapes = part.shapes(options.seed)
    with ExitStack() as stack:
        bench = _bench(part, stack) if record.kills.total() < wanted else None
        while bench is not None and record.kills.total() < wanted:
            name = f"{part.name}-{record.trials}"
            chance, begun = Random(f"{options.seed} {name}"), time.monotonic()
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
        running: Mapping[str, Callable[[], AbstractContextManager[KilledStore]]]
        running = {AZURITE: durable_azurite, POSTGRESQL: killed_postgresql}
        server = stack.enter_context(running[part.store]())
        bench = replace(bench, url=server.url, server=server)
    else:
        bench = replace(bench, url=stack.enter_context(running_store(part.store)))
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

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
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from random import Random
from unittest.mock import patch

from runtime import file_systems
from tests.faults.campaign import AZURITE, MISTAKES, PARTS, POSTGRESQL, Part, write_pages
from tests.faults.children import adopt_orphans, get_ready_to_fork
from tests.faults.cluster import running_cluster
from tests.faults.killed_stores import KilledStore, durable_azurite, killed_postgresql
from tests.faults.marks import Marks
from tests.faults.trial import Bench
from tests.plugins.azurite import running_azurite
from tests.support.campaigns import Record, options
from tests.support.servers import postgresql

IN_MEMORY = Path("/dev/shm")
_SAVE_SECONDS = 5


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

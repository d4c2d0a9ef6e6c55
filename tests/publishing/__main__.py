"""`python -m tests.publishing`: kill a runner before each of its calls, for each target; write the counts into docs.

With `--spark SQLite HTTP` it kills the workers of Spark instead, for the targets that are named, or all.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import astuple
from functools import partial
from pathlib import Path

from runtime.spark import build_session
from tests.plugins.kafka import running_cluster, running_kafka
from tests.publishing.cases import (
    AT_LEAST_ONCE,
    AT_MOST_ONCE,
    FunctionCase,
    HttpCase,
    KafkaCase,
    KafkaWithoutABroker,
    PostgresCase,
    SqliteCase,
)
from tests.publishing.kills import Case, Killed, die, kill_everywhere, kill_workers_everywhere
from tests.publishing.servers import http_receiver, postgres_server
from tests.support.campaigns import rewrite

DOCUMENT = Path(__file__).with_name("README.md")
PART, PART_ON_SPARK = "kills", "kills on Spark"
ON_SPARK = "--spark"
_HEAD = (
    "| target | kills | outputs | lost | duplicates | recognised as sent before | out of order | reported in doubt |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


@contextmanager
def cases(folder: Path) -> Iterator[dict[str, Case]]:
    with (
        http_receiver() as receiver,
        postgres_server() as postgres,
        running_kafka() as kafka,
        running_cluster() as cluster,
    ):
        yield {
            "SQLite": SqliteCase(folder / "target.db"),
            "PostgreSQL": PostgresCase(postgres),
            "Kafka": KafkaCase([kafka]),
            "Kafka, brokers killed": KafkaWithoutABroker(cluster),
            "HTTP": HttpCase(receiver),
            "function, at least once": FunctionCase(folder / "sent-at-least-once", AT_LEAST_ONCE),
            "function, at most once": FunctionCase(folder / "sent-at-most-once", AT_MOST_ONCE),
        }


def kill(case: Case, folder: Path, every: int = 1) -> Killed:
    strike = case.strike if isinstance(case, KafkaWithoutABroker) else die
    return kill_everywhere(case, folder, every, strike=strike)


def main(arguments: list[str]) -> None:
    """Measure all targets or those named, print the table, and put it into the docs; with --dry do not."""
    is_dry, is_on_spark = "--dry" in arguments, ON_SPARK in arguments
    names = [each for each in arguments if not each.startswith("--")]
    part = PART_ON_SPARK if is_on_spark else PART
    with tempfile.TemporaryDirectory() as folder, cases(Path(folder)) as found:
        wanted = {name: found[name] for name in names or found}
        if is_on_spark:
            spark = build_session("local[2]", log_file=Path(folder, "spark.log"))
            table = measured(wanted, Path(folder), partial(kill_workers_everywhere, spark))
            spark.stop()
        else:
            table = measured(wanted, Path(folder), kill)
    if not is_dry:
        rewrite(part, table, DOCUMENT)
        print(f"Written to {DOCUMENT}.")


def measured(found: Mapping[str, Case], folder: Path, kill: Callable[[Case, Path], Killed]) -> str:
    """Return the table of all targets, and print each row when it is there."""
    table = _HEAD
    for number, (name, case) in enumerate(found.items()):
        place = folder / str(number)
        place.mkdir()
        done = kill(case, place)
        cells = (name, done.kills, done.outputs, *astuple(done.counts), done.refused)
        table += f"| {' | '.join(map(str, cells))} |\n"
        print(table.splitlines()[-1], flush=True)
    return table


if __name__ == "__main__":
    main(sys.argv[1:])

"""`make publishing`: kill a runner before each of its calls, for each target, and write the counts into the docs."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.marks import check_marks, put_parts
from runtime.publishing.publisher import Promise
from tests.publishing.cases import FunctionCase, HttpCase, KafkaCase, PostgresCase, SqliteCase
from tests.publishing.kills import Case, Killed, kill_everywhere
from tests.publishing.servers import http_receiver, kafka_brokers, postgres_server

DOCUMENT = Path(__file__).parents[2] / "docs" / "publishing.md"
PART = "kills"
_HEAD = (
    "| target | kills | outputs | lost | duplicates | recognised as sent before | out of order | reported in doubt |\n"
    "|---|---|---|---|---|---|---|---|\n"
)


@contextmanager
def cases(folder: Path) -> Iterator[dict[str, Case]]:
    """Run all servers, and give the targets by their names in the docs."""
    with http_receiver() as receiver, postgres_server() as postgres, kafka_brokers() as brokers:
        yield {
            "SQLite": SqliteCase(folder / "target.db"),
            "PostgreSQL": PostgresCase(postgres),
            "Kafka (mock brokers)": KafkaCase(brokers),
            "HTTP": HttpCase(receiver),
            "function, at least once": FunctionCase(folder / "sent", Promise.AT_LEAST_ONCE),
            "function, at most once": FunctionCase(folder / "sent", Promise.AT_MOST_ONCE),
        }


def row(name: str, found: Killed) -> str:
    """Return a row of the table."""
    counts = found.counts
    cells = (
        name, found.kills, found.outputs, counts.lost, counts.duplicates, counts.recognised, counts.disorder,
        found.refused,
    )  # fmt: skip
    return f"| {' | '.join(map(str, cells))} |\n"


def main(arguments: list[str]) -> None:
    """Measure all targets, print the table, and put it into the docs; with --dry do not."""
    check_marks(DOCUMENT, [PART])
    table = _HEAD
    with tempfile.TemporaryDirectory() as folder, cases(Path(folder)) as found:
        for number, (name, case) in enumerate(found.items()):
            place = Path(folder, str(number))
            place.mkdir()
            table += row(name, kill_everywhere(case, place))
            print(table.splitlines()[-1], flush=True)
    if "--dry" not in arguments:
        put_parts(DOCUMENT, {PART: table})
        print(f"Written to {DOCUMENT}.")


if __name__ == "__main__":
    main(sys.argv[1:])

"""Every command and every program of README and docs/ runs as it stands, and prints what the page tells."""

import itertools
import json
import re
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from eventstore import connect, drive
from runtime import Envelope, Output, Processor
from runtime.cli.checks import load_app
from runtime.cli.commands.project import template
from tests.docs.pages import PAGES
from tests.docs.pasting import beside_the_project, of_outcomes, paste, statuses, write_files, write_raffle
from tests.docs.running import Reader, follow
from tests.plugins.spark import Workplace
from tests.support.done_batches import games, make_batch
from tests.unit.cli.stores import on_store, play

# tests/unit/eventstore/test_the_documentation.py runs the programs of docs/event-store.md, and test_the_comparisons.py
# those of docs/compare.
OTHERS = ("docs/decisions", "docs/compare/", "docs/event-store.md")
QUICK = {
    "docs/determinism.md",
    "docs/tutorial.md",
    "docs/how-to/web-hook.md",
    "docs/how-to/sizing-and-cost.md",
}


@pytest.fixture
def place(workplace: Workplace) -> Workplace:
    """Return the folder of the session, emptied."""
    for path in workplace.path.iterdir():
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    return workplace


def played(place: Workplace) -> None:
    """Play games on the table that a page names."""
    on_store(f"sqlite:///{place.path}/store.db", play)


def raffled(place: Workplace) -> None:
    """Play games, and the raffle of the project message by message."""
    played(place)
    write_raffle(place.path)
    (place.path / "outcomes").mkdir()

    async def publish(_: Output) -> None: ...

    async def enter() -> None:
        async with connect(f"sqlite:///{place.path}/raffle.db") as store:
            processor = Processor(load_app("raffle:app"), await store.table("raffle"), publish)
            for line in (place.path / "raffle.jsonl").read_text().splitlines():
                row = json.loads(line)
                sent = row["message_id"], row["type"], json.dumps(row["body"])
                await processor.process(Envelope.of(*sent, sequence=row["sequence"]))

    with place.at_work():
        drive(enter())


def project(place: Workplace) -> None:
    """Write what `consistent init` writes."""
    for name, content in template("raffle").items():
        (place.path / name).parent.mkdir(parents=True, exist_ok=True)
        (place.path / name).write_text(content)


BATCH = "20260301T120000-3f9a1c"


def batch(place: Workplace) -> None:
    """Publish a batch of games."""
    with place.at_work():
        make_batch("sqlite:///store.db", place.path / "outcomes", games(6, 6), batch_id=BATCH)


BEFORE: dict[str, Callable[[Workplace], None]] = {
    **{page: project for page in PAGES if page.startswith("docs/how-to/")},
    "docs/check-and-export.md": raffled,
    "docs/forgetting.md": raffled,
    "docs/policies.md": raffled,
    "docs/publishing.md": batch,
    "docs/streaming.md": lambda place: (place.path / "incoming").mkdir(),
    "docs/tables.md": played,
    "docs/testing.md": lambda place: write_raffle(place.path),
    "docs/truncation.md": played,
}
"""What a page takes for granted."""

PRINTED: dict[str, tuple[str, ...]] = {
    "docs/algorithms.md": (
        r"^processed$",
        r"^0 messages were left unfinished",
        r"^Hit 8eb31639-85b3-88aa-a13b-c22c6b218af1$",
        r"No unfinished messages are older than",
        r"Wrote 440 deliveries with tokens",
    ),
    "docs/evolution.md": (
        r"2 of 2 deliveries differ; 0 match\.",
        r"No stored version differs: 2 of 2 deliveries match\.",
        r"2 versions in 1 run were cut",
        r"not_kept: Messages whose versions may be truncated",
    ),
    "docs/check-and-export.md": (r" of raffle into raffle, with the digest",),
    "docs/forgetting.md": (r"raffle-export/rows-00000\.parquet", r"rejects all messages for spring"),
    "docs/policies.md": (
        r"^the table +180d +- +0 +no +- +- +20",
        r"^LeaderBoard +30d +1 +0 +no +- +- +20",
        r"^LeaderBoard 7d444840-9dc0-11d1-b245-5ffdce74fad2 +- +- +- +- +- +held +20",
        r"2 streams by that of the table",
        r"2 versions in 2 runs were cut",
    ),
    "docs/assistants.md": (r"3 passed", r"Warehouse"),
    "docs/project.md": (
        r"published",
        r"Won",
        r"^truncate\.older-than +30d +consistent\.toml:11",
        r"^truncate\.keep-last +5 +command line",
    ),
    "docs/publishing.md": (
        r"is published to sqlite:///",
        r"is published to post:send",
        r"There are no dead letters",
        r"8 slices, of which 8 were sent now, with 36 outputs",
        r"36 outputs in 8 slices",
    ),
    "docs/side-effects.md": (r"There are no orphaned documents\.", r"InvoiceIssued"),
    "docs/streaming.md": (r"shots-0: ", r"shots-1: ", r"handler='LeaderBoard', status='duplicate'"),
    "docs/tables.md": (r"StartNewRound", r"FireAt"),
    "docs/truncation.md": (r"recognised after",),
}
"""What a page makes commands and programs print, as regular expressions."""


@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    "page",
    [
        pytest.param(page, marks=[] if page in QUICK else [pytest.mark.thorough])
        for page in PAGES
        if not page.startswith(OTHERS)
    ],
)
def test_what_it_shows_runs(place: Workplace, page: str):
    BEFORE.get(page, lambda _: None)(place)
    write_files(page, place.path)
    reader = Reader(place)

    follow(page, reader)

    missing = [line for line in PRINTED.get(page, ()) if not re.search(line, reader.printed, re.MULTILINE)]
    assert not missing, f"{missing} in\n{reader.printed}"
    AFTER.get(page, lambda _: None)(place.path)


def _testing(folder: Path, count: int = 5) -> None:
    """Run the tests that a page shows."""
    told = paste("python -m pytest -q -p no:cacheprovider test_raffle.py", folder, beside_the_project())
    assert f"{count} passed" in told


def _project(folder: Path) -> None:
    _testing(folder, 2)
    assert statuses(folder / "outcomes") == ["duplicate"] * 3 + ["processed"] * 4
    outputs = itertools.chain.from_iterable(of_outcomes(folder / "outcomes", "outputs"))
    assert len({each["message_id"] for each in outputs}) == 1  # there is one winner


def _publishing(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "published.db")) as file:
        assert file.execute("SELECT count(*) FROM hits").fetchone() == (24,)
    with closing(sqlite3.connect(folder / "from-spark.db")) as file:
        assert file.execute("SELECT count(DISTINCT message_id) FROM Hit").fetchone() == (24,)


def _side_effects(folder: Path) -> None:
    assert {path.parent.name for path in (folder / "documents").rglob("*invoice.pdf")} == {"Bob"}
    assert paste("python labels.py", folder, beside_the_project()).splitlines() == ["Shipped True"]


AFTER: dict[str, Callable[[Path], None]] = {
    "docs/project.md": _project,
    "docs/publishing.md": _publishing,
    "docs/side-effects.md": _side_effects,
    "docs/testing.md": _testing,
}
"""What a page leaves behind."""


@pytest.mark.thorough
def test_what_is_held_is_not_cut_by_rules_on_the_command_line(place):
    played(place)
    table = ["--store", "sqlite:///store.db", "--table", "games"]
    assert place.consistent("truncate", "--policy", "set", *table, "--hold").returncode == 0

    rules = [*table, "--older-than", "0s", "--allow-young", "--allow-undated", "--report", "report"]
    done, again = (
        place.consistent("truncate", *rules, "--yes", "--json"),
        place.consistent("truncate", *rules),
    )

    document = json.loads(done.stdout)
    assert (document["streams"], document["cut"], document["held"]) == (3, 0, {"hold": 3})
    assert (document["rows"], document["requests_per_row"]) == (0, None)
    assert (again.returncode, "report exists" in again.stderr) == (2, True)

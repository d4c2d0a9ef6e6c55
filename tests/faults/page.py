"""docs/faults.md: the totals of the campaign, put between marks by the command."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.faults.parts import PARTS
from tests.faults.record import Record
from tests.model.pages import rewrite

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


def write_page(page: Path, records: Mapping[str, Record]) -> None:
    """Put the totals of each part, and the kills by what was killed, into the page."""
    rewrite("totals", "\n".join(_totals(records)), page)
    rewrite("kills", "\n".join(_kills(records)), page)


def _totals(records: Mapping[str, Record]) -> Iterator[str]:
    yield "| part | store | what is done | faults | batches compared | that differ | minutes |"
    yield "|---|---|---|---:|---:|---:|---:|"
    for name, record in records.items():
        part = PARTS[name]
        counts = (
            f"{record.kills.total():,} | {record.trials:,} | {record.differing} | {record.seconds / 60:.0f}"
        )
        yield f"| `{name}` | {part.store} | {part.sentence} | {counts} |"


def _kills(records: Mapping[str, Record]) -> Iterator[str]:
    yield f"| what, and when | {' | '.join(f'`{name}`' for name in records)} |"
    yield f"|---|{'---:|' * len(records)}"
    for what in sorted({what for record in records.values() for what in record.kills}):
        counts = [f"{record.kills[what]:,}" if record.kills[what] else "" for record in records.values()]
        yield f"| {what} | {' | '.join(counts)} |"

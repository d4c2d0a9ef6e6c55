"""docs/faults.md: the totals of the campaign, put between marks by the command.

Parts of which a folder of results has nothing keep the totals that the page shows: they were run elsewhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from tests.faults.parts import PARTS
from tests.faults.record import Record
from tests.model.pages import rewrite, section

PAGE = Path(__file__).parents[2] / "docs" / "faults.md"


def write_page(page: Path, records: Mapping[str, Record]) -> None:
    """Put the totals of each part, and the kills by what was killed, into the page."""
    shown = read_page(page)
    all_ = {name: record if record.trials else shown.get(name, record) for name, record in records.items()}
    rewrite("totals", "\n".join(_totals(all_)), page)
    rewrite("kills", "\n".join(_kills(all_)), page)


def read_page(page: Path) -> dict[str, Record]:
    """Return the totals that a page shows."""
    records = {}
    for name, *_, compared, differing, minutes in _cells("totals", page):
        records[name.strip("`")] = Record(_number(compared), 60.0 * _number(minutes), _number(differing))
    (_, *names), _, *rows = _cells("kills", page, whole=True)
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

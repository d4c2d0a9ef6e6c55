"""The outcomes of batches, for people and for machines."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from runtime.cli.reports.dead_letters import table_of_dead_letters
from runtime.cli.reports.tables import Cell, iso, make_table
from runtime.messages.dead_letters import DeadLetters, group_dead_letters
from runtime.messages.outcome import Status

if TYPE_CHECKING:
    from runtime.cli.outcome_files import OutcomeFiles, Row

_COUNTS = ("handler", *(status.value.replace("_", " ") for status in Status))
_PUBLISHED = ("batch", "message", "type", "body", "published by", "for message")
_DELIVERIES = (
    "batch",
    "round",
    "message",
    "type",
    "handler",
    "business id",
    "status",
    "version",
    "outputs",
    "error",
)


@dataclass(frozen=True, slots=True)
class OutcomesReport:
    """Outcomes that were asked for: counts of all, and the first of them, of the outputs and of the dead letters."""

    counts: Counter[tuple[str | None, str, str | None]]
    deliveries: Sequence[Row]
    published: Sequence[Row]
    dead_letters: Sequence[DeadLetters]
    is_filtered: bool
    limit: int
    held_back: Sequence[str] = ()
    are_held_back: bool = False

    @classmethod
    def of(cls, files: OutcomeFiles, limit: int) -> OutcomesReport:
        """Read the files: once for the counts, and as far as needed for what is listed; `limit` 0 lists all."""
        counts = files.counts()
        dead = group_dead_letters(files.dead_letters().rows()) if _dead(counts) else []
        return cls(
            counts,
            _first(files.rows(), limit),
            _first(files.published(), limit),
            dead[: limit or None],
            not files.wanted.is_all,
            limit,
            files.held_back,
            files.are_held_back,
        )

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        names = ("handler", "status", "reason", "count")
        return {
            "counts": [dict(zip(names, (*kind, count), strict=True)) for kind, count in self._counted()],
            "outcomes": list(map(_plain, self.deliveries)),
            "published": list(map(_plain, self.published)),
            "dead_letters": [asdict(group) for group in self.dead_letters],
            "held_back": list(self.held_back),
        }

    def parts(self) -> Iterator[RenderableType]:
        """Give the report for people."""
        if not self.counts:
            yield "There are no such outcomes."
            return
        yield make_table("Outcomes", _COUNTS, self._count_rows())
        if self.is_filtered:
            yield ""
            title = self._title("Deliveries", len(self.deliveries), sum(self.counts.values()))
            yield make_table(title, _DELIVERIES, map(_delivery, self.deliveries))
        if self.published:
            yield ""
            more = ", the first" if self.limit and len(self.published) == self.limit else ""
            published = "Not published, as the batch is held back" if self.are_held_back else "Published"
            yield make_table(f"{published}{more}", _PUBLISHED, map(_output, self.published))
        if self.dead_letters:
            yield ""
            yield table_of_dead_letters(self.dead_letters, _dead(self.counts))

    def _counted(self) -> list[tuple[tuple[str | None, str, str | None], int]]:
        return sorted(self.counts.items(), key=lambda each: tuple(part or "" for part in each[0]))

    def _count_rows(self) -> Iterator[tuple[Cell, ...]]:
        for handler in sorted({handler or "" for handler, _, _ in self.counts}):
            here = [
                (status, count) for (name, status, _), count in self.counts.items() if (name or "") == handler
            ]
            yield (
                handler or "(none)",
                *(sum(count for found, count in here if found == status.value) for status in Status),
            )

    def _title(self, what: str, shown: int, total: int) -> str:
        return what if shown == total else f"{what}, the first {shown:,} of {total:,}"


def export_rows(files: OutcomeFiles, path: Path) -> int:
    """Write the outcomes to a file as JSON lines, and return how many there are."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in files.rows():
            count += 1
            file.write(f"{json.dumps(_plain(row), ensure_ascii=False)}\n")
    return count


def _dead(counts: Counter[tuple[str | None, str, str | None]]) -> int:
    return sum(count for (_, status, _), count in counts.items() if status == Status.DEAD_LETTER)


def _first(rows: Iterable[Row], limit: int) -> list[Row]:
    return list(islice(rows, limit or None))


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a row
    """Return a row, or a value in it, as JSON has it; `headers` come from Arrow as pairs."""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, dict):
        return {name: dict(item) if name == "headers" else _plain(item) for name, item in value.items()}
    return list(map(_plain, value)) if isinstance(value, list) else value


def _output(row: Row) -> tuple[Cell, ...]:
    return row["batch_id"], row["message_id"], row["type"], row["body"], row["published_by"], row["cause"]


def _delivery(row: Row) -> tuple[Cell, ...]:
    names = ("batch_id", "round", "message_id", "type", "handler", "business_id")
    status = f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]
    return (*(row[name] for name in names), status, row["version"], len(row["outputs"] or ()), row["error"])

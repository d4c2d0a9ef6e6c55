"""What a truncation cut, or would cut, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from runtime.cli.reports.tables import counted, make_table

if TYPE_CHECKING:
    from runtime.spark.summaries import TruncatedCount

_COLUMNS = ("handler", "streams", "streams {}", "versions {}", "runs {}")


@dataclass(frozen=True, slots=True)
class TruncationReport:
    """What was cut of the streams of each handler."""

    counts: Sequence[TruncatedCount]
    dry_run: bool

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {"dry_run": self.dry_run, **self._totals(), "handlers": [asdict(each) for each in self.counts]}

    def table(self) -> RenderableType:
        """Return a row for each handler."""
        verb = "to cut" if self.dry_run else "cut"
        rows = [tuple(asdict(each).values()) for each in self.counts]
        return make_table("What would be cut" if self.dry_run else "What was cut", _headings(verb), rows)

    def parts(self) -> Iterator[RenderableType]:
        """Give the report for people."""
        totals = self._totals()
        if not totals["streams"]:
            yield "The table has no streams: there is nothing to cut."
            return
        yield self.table()
        was = "would be" if self.dry_run else "was" if totals["versions"] == 1 else "were"
        yield (
            f"{counted(totals['versions'], 'version')} in {counted(totals['runs'], 'run')} {was} cut, of "
            f"{totals['cut']:,} out of {counted(totals['streams'], 'stream')}."
        )
        if totals["cut"]:
            yield "An unknown message that is not newer than the horizon of such a stream is too late from then on."
        else:
            yield (
                "Kept are the newest run of each stream, what is too young or among the last by the rules given, and "
                "versions of batches that are not published."
            )

    def _totals(self) -> dict[str, int]:
        names = ("streams", "cut", "versions", "runs")
        return {name: sum(getattr(each, name) for each in self.counts) for name in names}


def _headings(verb: str) -> list[str]:
    return [heading.format(verb) for heading in _COLUMNS]

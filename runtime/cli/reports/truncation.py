"""What a truncation cut, or would cut, for people and for machines."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from runtime.algorithms.state_based.truncation_rules import HeldBy
from runtime.cli.reports.tables import counted, make_table

if TYPE_CHECKING:
    from runtime.spark.truncation import TruncatedCount

_COLUMNS = (
    "handler",
    "streams",
    "streams {}",
    "versions {}",
    "runs {}",
    "rows {}",
    "bytes {}",
    "letters given up",
)
_SUMS = ("streams", "cut", "versions", "runs", "rows", "bytes", "letters")
_HELD = {
    HeldBy.HOLD: "by a hold",
    HeldBy.OPEN_BATCH: "by batches that are not published",
    HeldBy.UNDATED: "by versions without enqueued_at",
    HeldBy.LETTER: ("by letters that wait: redrive or discard them, or add --give-up-letters-older-than AGE"),
    HeldBy.STREAM_DAMAGED: "as they are damaged (`consistent check` says where)",
    HeldBy.UNACKNOWLEDGED: (
        "by single messages whose outputs may be unpublished: let consumers acknowledge (acknowledge_every), or "
        "promise with --acknowledged-after AGE that those handled longer ago were acknowledged"
    ),
}


@dataclass(frozen=True, slots=True)
class TruncationReport:
    """What was cut of the streams of each handler, what was held back, and what that cost."""

    counts: Sequence[TruncatedCount]
    requests: int
    dry_run: bool

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        totals = self._totals()
        rows = totals["rows"]
        return {
            "dry_run": self.dry_run,
            **totals,
            "requests": self.requests,
            "requests_per_row": round(self.requests / rows, 3) if rows else None,
            "held": self._streams_by("held"),
            "rules": self._streams_by("rules"),
            "without_rules": self._without_rules(),
            "handlers": self._handlers(),
        }

    @property
    def damaged(self) -> int:
        """How many streams could not be read."""
        return self._streams_by("held").get(HeldBy.STREAM_DAMAGED, 0)

    def table(self) -> RenderableType:
        """Return a row for each handler."""
        verb = "to cut" if self.dry_run else "cut"
        rows = [tuple(each.values()) for each in self._handlers()]
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
        yield from self._rules()
        yield from self._held()
        yield self._cost(totals["rows"])
        if totals["cut"]:
            yield "An unknown message that is not newer than the horizon of such a stream is too late from then on."
        else:
            yield (
                "Kept are the newest run of each stream, what is too young or among the last by the rules given, and "
                "versions of batches that are not published."
            )

    def _rules(self) -> Iterator[str]:
        by_policy = self._streams_by("rules")
        by_policy.pop("given", None)
        if by_policy:
            shares = [
                f"{counted(number, 'stream')} by that of the {level}" for level, number in by_policy.items()
            ]
            yield f"By the policies of the table: {', '.join(shares)}."
        without = self._without_rules()
        if without:
            yield f"{counted(without, 'stream')} {_have(without)} no policy, and {_were(without)} left alone."

    def _held(self) -> Iterator[str]:
        held = self._streams_by("held")
        if held:
            shares = [f"{counted(number, 'stream')} {_HELD[HeldBy(by)]}" for by, number in held.items()]
            yield f"Held back: {', '.join(shares)}."

    def _cost(self, rows: int) -> str:
        each = f", {self.requests / rows:.2f} for each row" if rows else ""
        would = "would be deleted" if self.dry_run else "deleted"
        return f"{counted(rows, 'row')} {would}. {counted(self.requests, 'request')}{each}."

    def _handlers(self) -> list[dict[str, Any]]:
        sums: Mapping[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(_SUMS, 0))
        for count in self.counts:
            for name in _SUMS:
                sums[count.handler][name] += getattr(count, name)
        return [{"handler": handler, **sums[handler]} for handler in sorted(sums)]

    def _streams_by(self, name: str) -> dict[str, int]:
        """Return the number of streams for each value of a column that is not None."""
        streams: dict[str, int] = defaultdict(int)
        for count in self.counts:
            value = getattr(count, name)
            if value is not None:
                streams[value] += count.streams
        return dict(sorted(streams.items()))

    def _without_rules(self) -> int:
        return sum(count.streams for count in self.counts if count.rules is None and count.held is None)

    def _totals(self) -> dict[str, int]:
        return {name: sum(getattr(each, name) for each in self.counts) for name in _SUMS}


def _headings(verb: str) -> list[str]:
    return [heading.format(verb) for heading in _COLUMNS]


def _have(number: int) -> str:
    return "has" if number == 1 else "have"


def _were(number: int) -> str:
    return "was" if number == 1 else "were"

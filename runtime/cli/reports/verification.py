"""What a verification found, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from runtime.algorithms.state_based.verification import Verdict
from runtime.cli.reports.tables import counted, make_table

if TYPE_CHECKING:
    from runtime.spark.verification import FirstDifference, VerdictCount, Verification

_COLUMNS = ("handler", "type", "revision", "verdict", "deliveries", "streams")
_DIFFERENT = ("handler", "business id", "version", "message", "type", "revision", "what differs")
_ADVICE = {
    Verdict.NONDETERMINISTIC: "A changed rule needs a new revision: keep the old method with its number, and give the "
    "new one @handles(by=..., revision=N).",
    Verdict.REPLAY_FAILED: "A method that handled these messages fails on them now: keep it as the revision that it "
    "was, and add another.",
    Verdict.REVISION_GONE: "Bring these revisions back, until truncation has cut the versions that they made.",
    Verdict.STATE_UNREADABLE: "A changed state needs a new schema version, and an upcaster from each one before.",
    Verdict.REFUSED: "Today's message types no longer take these messages: give new fields defaults.",
    Verdict.STREAM_DAMAGED: "These streams cannot be read, and nothing of them was compared: see `consistent check`.",
}
_REMARKS = {
    Verdict.ID_REUSED: "Messages with the id of another one were not compared: they are dead letters in a batch.",
    Verdict.NOT_KEPT: "Messages whose versions may have been cut were not compared: a batch takes them for too late. "
    "Give what `consistent truncate --export` wrote as --export.",
    Verdict.UNKNOWN: "Messages without a stored version were not compared: a batch would handle them for the first "
    "time, or make them dead letters.",
}


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The counts of a verification, and the first of its differences."""

    is_clean: bool
    counts: Sequence[VerdictCount]
    differences: Sequence[FirstDifference]

    @classmethod
    def of(cls, found: Verification, limit: int) -> VerifyReport:
        """Take up to `limit` differences of a verification; 0 takes all."""
        differences = [] if found.is_clean else found.first_differences(limit)
        return cls(found.is_clean, found.counts, differences)

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            "is_clean": self.is_clean,
            "deliveries": self._total(*Verdict),
            "matches": self._total(Verdict.MATCH),
            "different": self._total(*(verdict for verdict in Verdict if verdict.is_difference)),
            "counts": [asdict(count) for count in self.counts],
            "differences": [asdict(each) for each in self.differences],
        }

    def parts(self) -> Iterator[RenderableType]:
        """Give the report for people: counts, examples of what differs, and what to do about it."""
        rows = [
            (each.handler or "(none)", each.type, each.revision, each.verdict, each.deliveries, each.streams)
            for each in self.counts
        ]
        yield make_table("What today's code gives for these deliveries", _COLUMNS, rows)
        yield ""
        if self.differences:
            yield make_table(self._title(), _DIFFERENT, map(_row, self.differences))
            yield ""
        for verdict, sentence in {**_ADVICE, **_REMARKS}.items():
            if any(each.verdict is verdict for each in self.counts):
                yield f"{verdict}: {sentence}"
        yield from self._reasons()
        yield self._conclusion()

    def _title(self) -> str:
        streams = sum(each.streams for each in self.counts if each.verdict.is_difference)
        shown = len(self.differences)
        more = f" ({shown} of {streams:,})" if streams > shown else ""
        return f"The first version of each stream that differs{more}"

    def _reasons(self) -> Iterator[str]:
        """Give the errors of messages that have no version because they are dead letters, each counted."""
        for each in self.counts:
            for error, count in each.reasons:
                yield f"  {count:,} x {error}"

    def _conclusion(self) -> str:
        matches, all_ = self._total(Verdict.MATCH), self._total(*Verdict)
        if self.is_clean:
            return f"No stored version differs: {matches:,} of {counted(all_, 'delivery')} match."
        different = self._total(*(verdict for verdict in Verdict if verdict.is_difference))
        of_all = counted(all_, "delivery")
        return f"{different:,} of {of_all} would no longer give what they gave; {matches:,} match."

    def _total(self, *verdicts: Verdict) -> int:
        return sum(each.deliveries for each in self.counts if each.verdict in verdicts)


def _row(each: FirstDifference) -> tuple[str | int | None, ...]:
    error = f"{each.verdict}: {each.error}"
    return each.handler, each.business_id, each.version, each.message_id, each.type, each.revision, error

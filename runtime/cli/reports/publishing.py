"""What came of publishing a batch, for people and for machines."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from runtime.cli.reports.tables import counted, make_table

if TYPE_CHECKING:
    from runtime.publishing.publisher import Record
    from runtime.publishing.redriving import Redriven
    from runtime.publishing.runner import Published

_SHOWN = 10


@dataclass(frozen=True, slots=True)
class PublishingReport:
    """A batch of which all slices are sent."""

    batch_id: str
    published: Published

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        found = self.published
        return {
            "batch_id": self.batch_id,
            "target": found.publication.target,
            "publication": found.publication.key,
            "slices": found.publication.slices,
            "slices_sent": found.slices,
            "outputs_sent": found.outputs,
            "results": _results(found.records),
            "refused": [each._asdict() for each in found.refused],
        }

    def parts(self) -> Iterator[RenderableType]:
        """Yield what was sent, and what the target has refused."""
        found = self.published
        total = counted(found.publication.slices, "slice")
        yield (
            f"Batch {self.batch_id} is published to {found.publication.target}: {total}, of which "
            f"{found.slices:,} were sent now, with {counted(found.outputs, 'output')}."
        )
        results = _results(found.records)
        if found.records and len(found.records) > len(found.refused):
            said = ", ".join(f"{count:,} {result.replace('_', ' ')}" for result, count in results.items())
            yield f"Recorded in all: {said}."
        if found.refused:
            yield ""
            yield _table(found.refused[:_SHOWN], len(found.refused))
            yield "The same command with --letters lists all of them, and with --redrive sends them again."


@dataclass(frozen=True, slots=True)
class RedriveReport:
    """The dead letters of a publication, after a redrive or without one."""

    batch_id: str
    redriven: Redriven
    unended: Sequence[tuple[str, str]] = ()
    """Customer and message of keys whose deliveries died while they sent, or send now."""

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        found = self.redriven
        return {
            "batch_id": self.batch_id,
            "target": found.publication.target,
            "publication": found.publication.key,
            "outputs_sent": found.outputs,
            "results": _results(found.records),
            "refused": [each._asdict() for each in found.refused],
            "keys_without_end": [list(each) for each in self.unended],
        }

    def parts(self) -> Iterator[RenderableType]:
        """Yield what was sent again, and all that the target still refuses."""
        found = self.redriven
        place = f"of batch {self.batch_id} at {found.publication.target}"
        if found.outputs:
            yield f"Sent again {place}: {counted(found.outputs, 'output')}."
        if found.refused:
            yield _table(found.refused, len(found.refused))
        else:
            yield f"There are no dead letters {place}."
        if self.unended:
            title = f"Being sent, or left behind by processes that died: {counted(len(self.unended), 'key')}"
            yield make_table(title, ("customer", "output"), self.unended)


def _results(records: Sequence[Record]) -> dict[str, int]:
    return dict(sorted(Counter(each.result.value for each in records).items()))


def _table(refused: Sequence[Record], of: int) -> RenderableType:
    rows = [(each.message_id, each.type, each.business_id, each.why) for each in refused]
    return make_table(f"Not sent: {counted(of, 'output')}", ("output", "type", "business id", "why"), rows)

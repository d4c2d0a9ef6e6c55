"""What came of a batch, for people and for machines."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from shlex import quote
from typing import TYPE_CHECKING, Any

from rich.console import RenderableType

from runtime.cli.reports.batch_record import describe
from runtime.cli.reports.dead_letters import table_of_dead_letters
from runtime.cli.reports.tables import make_table
from runtime.messages.dead_letters import DeadLetters
from runtime.messages.outcome import Reason, Status
from runtime.urls import within

if TYPE_CHECKING:
    from runtime.batches.record import BatchRecord
    from runtime.spark.rounds import BatchResult
    from runtime.spark.summaries import OutcomeCount

GROUPS_SHOWN = 10

_COLUMNS = ("round", "handler", *(status.value.replace("_", " ") for status in Status), "outputs")


@dataclass(frozen=True, slots=True)
class BatchReport:
    """A batch, its outcomes counted, and its dead letters in groups, the largest."""

    record: BatchRecord
    was_published: bool
    counts: Sequence[OutcomeCount]
    dead_letters: Sequence[DeadLetters]

    @classmethod
    def of(cls, result: BatchResult) -> BatchReport:
        """Count the outcomes of a batch. Reads them once, and once more for its dead letters if it has any."""
        from runtime.spark.summaries import count_outcomes, dead_letter_groups

        counts = count_outcomes(result.outcomes)
        has_dead = any(each.status == Status.DEAD_LETTER for each in counts)
        dead = dead_letter_groups(result.outcomes, GROUPS_SHOWN) if has_dead else []
        return cls(result.record, result.was_published, counts, dead)

    def total(self, status: Status) -> int:
        """Return how many outcomes have a status."""
        return sum(each.count for each in self.counts if each.status == status)

    @property
    def damaged(self) -> int:
        """How many deliveries met a stream that cannot be read."""
        return sum(each.count for each in self.counts if each.reason == Reason.STREAM_DAMAGED)

    @property
    def folder(self) -> str:
        """Where the outcomes are."""
        return within(self.record.out, f"batch_id={self.record.batch_id}")

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        return {
            **describe(self.record),
            "was_published": self.was_published,
            "folder": self.folder,
            "outcomes": [asdict(each) for each in self.counts],
            "dead_letters": [asdict(each) for each in self.dead_letters],
        }

    def table(self, title: str) -> RenderableType:
        """Return a row for each round and handler, with the counts by status."""
        return make_table(title, _COLUMNS, self._rows())

    def parts(self) -> Iterator[RenderableType]:
        """Give the report for people: counts, dead letters, and where to look next."""
        batch_id = self.record.batch_id
        if self.was_published:
            yield f"Batch {batch_id} was published already, and a published batch is not changed. This is what it gave:"
        yield self.table(f"Outcomes of batch {batch_id}")
        yield ""
        if self.dead_letters:
            yield from self._dead_letter_parts()
        if self.total(Status.TOO_LATE):
            yield (
                "Too late are unknown messages not newer than the horizon of their stream: whether they were handled "
                "before can no longer be told. They were not handled; --late process handles them."
            )
        yield f"The outcomes are in {self.folder}, as Parquet. To look at them, and at what was published:"
        yield f"  consistent outcomes --out {quote(self.record.out)} --batch-id {batch_id}"
        yield "With Spark, from runtime.spark:"
        yield f"  outputs(spark.read.parquet({self.folder!r}))       # what to publish, each output once"
        yield f"  dead_letters(spark.read.parquet({self.folder!r}))  # what was not handled, and why"

    def _dead_letter_parts(self) -> Iterator[RenderableType]:
        yield table_of_dead_letters(self.dead_letters, self.total(Status.DEAD_LETTER))
        yield ""

    def _rows(self) -> Iterator[tuple[int | str | None, ...]]:
        for round_, handler in dict.fromkeys((each.round, each.handler) for each in self.counts):
            here = [each for each in self.counts if (each.round, each.handler) == (round_, handler)]
            by_status = [sum(each.count for each in here if each.status == status) for status in Status]
            yield (round_, handler or "(none)", *by_status, sum(each.outputs for each in here))

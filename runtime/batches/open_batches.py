"""Which batches may still publish, as the ledger of a table had them at one moment."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class BatchKey(NamedTuple):
    """Names a batch: its id, and the number that it began with, None where the ledger has none."""

    batch_id: str
    number: int | None = None


@dataclass(frozen=True, slots=True)
class OpenBatches:
    """The batches that may still publish: those that were open, and all that begin later.

    `next` is the number that the next batch gets, `numbers` are those of open batches. `names` are the ids of open
    batches without a number: those that were begun before batches had one.
    """

    next: int = 1
    numbers: frozenset[int] = frozenset()
    names: frozenset[str] = frozenset()

    def is_finished(self, batch: str | None, number: int | None) -> bool:
        """Say whether nothing more will be published of a batch. None stands for single messages, which are finished.

        An id can be used again once its row was pruned, a number never: a version that has one is told by it alone.
        """
        if number is None:
            return batch not in self.names
        return number < self.next and number not in self.numbers

"""What an attempt at a round has written is put in place: by a move of its folder, or by a decision in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from runtime.batches.record import BatchRecord
from runtime.spark.decided import MERGED_UP_TO
from runtime.spark.folders import BatchFolders
from runtime.spark.workers.parts import Merge, Part, PartJob


@dataclass(frozen=True)
class RoundPlacing:
    """Puts the next round of a batch in place.

    `decide` has the ledger note that an attempt counts (`Ledger.decide`), `run` has one task write a file.
    """

    folders: BatchFolders
    types: Collection[str]
    decide: Callable[[BatchRecord, str], BatchRecord]
    run: Callable[[PartJob], Sequence[Part]]

    def put_in_place(self, attempt: str, parts: Sequence[Part]) -> tuple[BatchRecord, Sequence[Part]]:
        """Return the batch as the ledger has it now, and the files that are in place: of this attempt, or another.

        A round without outcomes gets a file without rows.
        """
        folders, number = self.folders, self.folders.record.rounds
        parts = parts or [folders.write_empty(attempt, self.types)]
        if folders.moves_whole:
            return folders.record, folders.put_in_place(attempt, number, parts, self.types)
        folders.check_written(attempt, number, parts)
        parts = self._merged(attempt, parts)
        folders.propose(attempt, parts)
        record = self.decide(folders.record, attempt)
        placed = replace(folders, record=record)
        return record, placed.put_in_place(record.attempt or attempt, number, parts, self.types)

    def _merged(self, attempt: str, parts: Sequence[Part]) -> Sequence[Part]:
        """Have the files of an attempt written as one, so that readers see all of it or nothing."""
        if len(parts) == 1 or sum(part.size for part in parts) > MERGED_UP_TO:
            return parts
        staged = self.folders.staged(attempt)
        return self.run(PartJob(Merge(staged, tuple(part.name for part in parts)), staged, self.types))

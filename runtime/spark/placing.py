"""What an attempt at a round has written is put in place: by a move of its folder, or by a decision in the ledger."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace

from runtime.batches.record import BatchRecord
from runtime.errors import BatchFailedError
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
        try:
            parts = self._proposed(attempt, parts)
        except (OSError, BatchFailedError) as error:
            if not folders.is_in_place(number):
                raise folders.failed(number, error) from error
            # Another driver of the batch was faster, and has deleted what was staged.
            return folders.record, folders.parts(number, self.types)
        record = self.decide(folders.record, attempt)
        placed = replace(folders, record=record)
        return record, placed.put_in_place(record.attempt or attempt, number, parts, self.types)

    def _proposed(self, attempt: str, parts: Sequence[Part]) -> Sequence[Part]:
        """Have the files of an attempt written as one, so that readers see all of it or nothing, and propose that."""
        self.folders.check_written(attempt, parts)
        if len(parts) > 1 and sum(part.size for part in parts) <= MERGED_UP_TO:
            staged = self.folders.staged(attempt)
            merge = Merge(staged, tuple(part.name for part in parts))
            parts = self.run(PartJob(merge, staged, self.types))
        self.folders.propose(attempt, parts)
        return parts

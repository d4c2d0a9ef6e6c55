"""Which epochs of a query may be run: those that follow on what the ledger knows of it, and no others.

Spark hands an epoch over again when it died before it could note that it was done: with the same offsets, as it keeps
these. So an epoch that the ledger has with the same content is resumed, or, if it is published, passed over. All else
means that the checkpoint is not the one that the ledger knows, and is refused: it was deleted and made anew, restored
from a backup, or belongs to another query or another table. Spark would skip messages then, or call others by the
number of an epoch that is done.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from eventstore import connect
from runtime.batches.record import EPOCH, BatchRecord
from runtime.errors import BatchRefusedError
from runtime.spark.rounds import Rounds
from runtime.spark.streaming.checkpoint import WHAT_TO_DO, Checkpoint, Content, Owner, Planned


@dataclass
class Admission:
    """Looks at each epoch of a query before it is run. One object is used from one start of the query to its end."""

    query: str
    checkpoint: Checkpoint
    _follows: bool = field(default=False, init=False)

    def batch_id(self, epoch: int) -> str:
        """Return the id of the batch that is the micro-batch of an epoch."""
        return f"{self.query}-{epoch}"

    def what(self, epoch: int, content: Content) -> str:
        """Return what the ledger calls the input of an epoch."""
        return f"{EPOCH}{epoch} of the query {self.query}, {content}"

    def check_start(self) -> None:
        """Look at the checkpoint before Spark does, which would stop the query that it belongs to.

        Raises `BatchRefusedError` when that is another one, or the checkpoint lacks what its last epoch needs, and
        `UsageError` when it is no folder.
        """
        self.checkpoint.check_is_folder()
        self._check_owner(self.checkpoint.owner())
        last = self.checkpoint.last_epoch()
        if last is not None:
            self.checkpoint.planned(last)

    def check_files(self, epoch: int, planned: Planned) -> None:
        """Raise `BatchRefusedError` when files of an epoch are gone: Spark would pass over them without a word."""
        gone = self.checkpoint.gone(planned.files)
        if gone:
            others = f" and {len(gone) - 1:,} others are" if len(gone) > 1 else " is"
            message = (
                f"Epoch {epoch} of the query {self.query} reads files that are not there any more: {gone[0]}{others} "
                f"gone. Nothing was handled. Put back what is gone, and start the query again; a file of that name "
                f"without messages gives up those that were in it."
            )
            raise BatchRefusedError(message)

    def find(self, rounds: Rounds, epoch: int, content: Content) -> BatchRecord | None:
        """Return what the ledger has of an epoch, None when it may begin. Costs a request.

        The first epoch after a start costs two more. Raises `BatchRefusedError`.
        """
        found = rounds.find(self.batch_id(epoch))
        if found is not None:
            self._check_same(found, self.what(epoch, content), epoch)
        elif not self._follows:
            self._check_follows(rounds, epoch, content)
            self._follows = True
        return found

    def _check_same(self, found: BatchRecord, now: str, epoch: int) -> None:
        if not found.input.startswith(f"{now}; "):
            message = (
                f"Epoch {epoch} of the query {self.query} had other content before: its checkpoint "
                f"{self.checkpoint.url} was deleted, restored from a backup, or is that of another query. "
                f"{WHAT_TO_DO} The ledger has: {found.input}. Now it is: {now}."
            )
            raise BatchRefusedError(message)

    def _check_follows(self, rounds: Rounds, epoch: int, content: Content) -> None:
        """Raise `BatchRefusedError` when a new epoch does not follow on what this query has done in this table.

        Needed once: from then on Spark counts the epochs, and each one was done here.
        """
        us = Owner(self.query, connect(rounds.place.store).url, rounds.place.table)
        owner = self.checkpoint.owner()
        self._check_owner(owner)
        if epoch:
            before = rounds.find(self.batch_id(epoch - 1))
            if before is None:
                if owner != us or not _is_used(rounds):  # else it was pruned
                    raise self._not_ours(f"has epochs that the table {us.table} does not know", epoch)
            elif f"checkpoint {content.checkpoint} " not in before.input:
                raise self._not_ours("is not the one with which the epoch before was run", epoch)
        if owner != us:
            self.checkpoint.claim(us)

    def _check_owner(self, owner: Owner | None) -> None:
        if owner is not None and owner.query != self.query:
            raise self._not_ours(f"is that of the query {owner.query}")

    def _not_ours(self, why: str, epoch: int | None = None) -> BatchRefusedError:
        where = "" if epoch is None else f" with epoch {epoch}"
        return BatchRefusedError(
            f"The query {self.query} cannot go on{where}: its checkpoint {self.checkpoint.url} {why}. {WHAT_TO_DO}"
        )


def _is_used(rounds: Rounds) -> bool:
    """Say whether a table ever had a batch: one that was made anew has not."""
    return rounds.connection.run(rounds.ledger.algorithm()) is not None

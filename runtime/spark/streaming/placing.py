"""Where the outcomes of epochs lie: hidden while an epoch is under way, and then in OUT as a whole.

A micro-batch writes to `OUT/_epochs`, which readers ignore. When it is published, the folder with all of its rounds is
moved into `OUT` at once. So whoever reads `OUT`, also as a stream, sees whole epochs only.

Small files are compacted before anyone has seen them: with `compact_after`, that many epochs wait in the hidden folder
until the outcomes of all are merged into one folder, `OUT/batch_id=QUERY-FIRST..LAST`, which is moved into `OUT`. What
is in `OUT` never changes, and so no reader sees a row twice or misses one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import NamedTuple
from uuid import uuid4

from pyarrow import parquet

from runtime.errors import BatchRefusedError, UsageError
from runtime.file_systems import Folder, open_folder
from runtime.spark.schemas import ARROW_OUTCOME
from runtime.spark.workers.parts import SUFFIX, PartFile
from runtime.urls import within

_HIDDEN = "_epochs"
_MERGED = "_batch-merged"


class Waiting(NamedTuple):
    """The outcomes of an epoch that are not in OUT yet."""

    epoch: int
    folder: Folder


@dataclass
class EpochPlaces:
    """Where the outcomes of a query's epochs lie, in the folder `out`."""

    out: str
    query: str
    compact_after: int = 1

    def __post_init__(self) -> None:
        self._moves_whole = open_folder(self.out).moves_whole
        self._is_tidy = False
        self._found: Sequence[range] | None = None
        if self.compact_after > 1 and not self._moves_whole:
            message = (
                f"Epochs are compacted only where folders are moved as a whole, which the file system of {self.out} "
                f"does not: leave --compact-after out."
            )
            raise UsageError(message)

    @property
    def working(self) -> str:
        """Where micro-batches write: OUT itself on an object store, which cannot move a folder."""
        return f"{self.out}/{_HIDDEN}" if self._moves_whole else self.out

    def check_unused(self, epoch: int) -> None:
        """Raise `BatchRefusedError` when OUT has outcomes of an epoch that the ledger does not have."""
        batch_id = f"{self.query}-{epoch}"
        folders = [within(folder, f"batch_id={batch_id}") for folder in {self.out, self.working}]
        if self._is_merged(epoch) or any(open_folder(folder).names() for folder in folders):
            message = (
                f"{self.out} holds outcomes of epoch {epoch} of the query {self.query}, which the ledger does not "
                f"have: they are from another store, or were pruned. Nothing was handled. Give query and checkpoint "
                f"new names: messages that were handled before are duplicates then, and change nothing."
            )
            raise BatchRefusedError(message)

    def place_of(self, epoch: int) -> str | None:
        """Return the folder that has those of an epoch: OUT, once they were put there; None when they were merged."""
        is_waiting = self._folder().sub(f"batch_id={self.query}-{epoch}").exists()
        if is_waiting:
            return self.working
        return None if self._is_merged(epoch) else self.out

    def where(self, working: str) -> EpochPlaces | None:
        """Return the places of the query in another OUT, where its epochs were written before; None when it is this."""
        out = working.removesuffix(f"/{_HIDDEN}")
        return None if out in (working, self.out) else EpochPlaces(out, self.query)

    def show(self, epoch: int) -> None:
        """Put the outcomes of a published epoch in OUT, with those of the epochs before it, when enough wait."""
        if not self._moves_whole:
            return
        self._tidy_once()
        waiting = [each for each in self._waiting() if each.epoch <= epoch]
        if len(waiting) >= self.compact_after:
            self._show(waiting)

    def show_all(self, is_published: Callable[[int], bool]) -> None:
        """Put the outcomes of all published epochs in OUT, however few wait, once the query has ended by itself."""
        if self._moves_whole:
            self._tidy_once()
            self._show([each for each in self._waiting() if is_published(each.epoch)])

    def _show(self, waiting: Sequence[Waiting]) -> None:
        if not waiting:
            return
        out = open_folder(self.out)
        if len(waiting) == 1:
            _move(waiting[0].folder, out.sub(waiting[0].folder.name))
        else:
            name = f"batch_id={self.query}-{waiting[0].epoch}..{waiting[-1].epoch}"
            _move(self._merged(waiting), out.sub(name))
            for each in waiting:
                each.folder.delete()
        out.flush()

    def _merged(self, waiting: Sequence[Waiting]) -> Folder:
        """Write the outcomes of epochs to a hidden folder, in one file for each round."""
        made = self._folder().sub(f"_merging-{self.query}-{uuid4().hex}")
        for name in sorted({name for each in waiting for name in each.folder.names() if name[0] != "_"}):
            folder = made.sub(name)
            folder.create()
            _merge([each.folder.sub(name) for each in waiting], folder)
            folder.touch(_MERGED)
            folder.flush()
        return made

    def _tidy_once(self) -> None:
        """Delete what a driver that was killed has left: epochs that are in OUT merged, and what it did not merge."""
        if self._is_tidy:
            return
        self._is_tidy = True
        for each in self._waiting():
            if self._is_merged(each.epoch):
                each.folder.delete()
        left = re.compile(rf"_merging-{re.escape(self.query)}-[0-9a-f]{{32}}")
        for name in filter(left.fullmatch, self._folder().names()):
            self._folder().sub(name).delete()

    def _waiting(self) -> list[Waiting]:
        """Return the epochs that are not in OUT, in their order."""
        pattern = re.compile(rf"batch_id={re.escape(self.query)}-(\d+)")
        folder = self._folder()
        found = ((pattern.fullmatch(name), folder.sub(name)) for name in folder.names())
        return sorted(Waiting(int(match[1]), each) for match, each in found if match)

    def _is_merged(self, epoch: int) -> bool:
        return any(epoch in span for span in self._spans())

    def _spans(self) -> Sequence[range]:
        """Return the epochs of each merged folder that a driver before this one has put in OUT."""
        if self._found is None:
            pattern = re.compile(rf"batch_id={re.escape(self.query)}-(\d+)\.\.(\d+)")
            matches = filter(None, map(pattern.fullmatch, open_folder(self.out).names()))
            self._found = [range(int(match[1]), int(match[2]) + 1) for match in matches]
        return self._found

    def _folder(self) -> Folder:
        return open_folder(self.working)


def _move(folder: Folder, target: Folder) -> None:
    """Move a folder as a whole, unless another driver of the same epoch was faster."""
    try:
        folder.move_to(target)
    except OSError:
        if not target.exists():
            raise
        with suppress(OSError):
            folder.delete()


def _merge(folders: Sequence[Folder], target: Folder) -> None:
    """Write the outcomes in some folders, which need not all be there, to one file."""
    file = PartFile(target, ())
    file.open()
    for folder in folders:
        for name in sorted(each for each in folder.names() if each.endswith(SUFFIX)):
            with folder.read(name) as opened:
                for batch in parquet.ParquetFile(opened).iter_batches():
                    file.add(batch.cast(ARROW_OUTCOME))
    file.close()

"""The outcomes of batches as they lie in a folder, read without Spark."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runtime.cli.failures import NotPossibleError
from runtime.messages.message_ids import canonical
from runtime.messages.outcome import Status

_ROUND = re.compile(r"batch_id=(?P<batch>[^/]+)/round=(?P<round>\d+)$")
_COMPLETE = "_batch-*"
_KINDS = ("handler", "status", "reason")

Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which outcomes are asked for; `id` is that of a message or of a business object."""

    status: str | None = None
    handler: str | None = None
    reason: str | None = None
    id: str | None = None

    @property
    def is_all(self) -> bool:
        """Whether everything is asked for."""
        return self == Wanted()

    def of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """Return the rows of a batch that are asked for."""
        for name, value in (("status", self.status), ("handler", self.handler), ("reason", self.reason)):
            if value is not None:
                batch = batch.filter(pc.equal(batch[name], value))
        if self.id is None:
            return batch
        ids = pa.array([self.id, canonical(self.id)])
        found = [pc.is_in(batch[name], value_set=ids) for name in ("message_id", "business_id")]
        return batch.filter(pc.or_(*found))


@dataclass(frozen=True, slots=True)
class OutcomeFiles:
    """The outcomes of the batches in a folder, all or of one batch, that are asked for."""

    folders: Sequence[Path]
    wanted: Wanted

    @classmethod
    def open(cls, out: Path, batch_id: str | None, wanted: Wanted) -> OutcomeFiles:
        """Find the rounds that are in place. Raises `NotPossibleError` when there is none."""
        pattern = f"batch_id={batch_id or '*'}/round=*"
        above = out.parent if out.name.startswith("batch_id=") else out
        folders = [folder for folder in above.glob(pattern) if any(folder.glob(_COMPLETE))]
        if above != out:
            folders = [folder for folder in folders if folder.parent == out]
        if not folders:
            which = f" of batch {batch_id}" if batch_id else ""
            raise NotPossibleError(
                f"There are no outcomes{which} in {out}: `consistent run --out {out}` writes them."
            )
        return cls(sorted(folders, key=_order), wanted)

    def counts(self) -> Counter[tuple[str | None, str, str | None]]:
        """Count the outcomes by handler, status and reason."""
        found: Counter[tuple[str | None, str, str | None]] = Counter()
        for batch, _ in self._batches(_KINDS):
            found.update(zip(*(batch[name].to_pylist() for name in _KINDS), strict=True))
        return found

    def rows(self) -> Iterator[Row]:
        """Give the outcomes, each with its batch and round."""
        for batch, where in self._batches():
            for row in batch.to_pylist():
                yield {**where, **row}

    def dead_letters(self) -> OutcomeFiles:
        """Return the dead letters among the outcomes that are asked for."""
        return replace(self, wanted=replace(self.wanted, status=Status.DEAD_LETTER.value))

    def published(self) -> Iterator[Row]:
        """Give the outputs of the outcomes, each once, with the handler and the message that published it."""
        known: set[str] = set()
        for batch, where in self._batches(("message_id", "handler", "outputs")):
            for row in batch.to_pylist():
                for output in row["outputs"] or ():
                    if output["message_id"] not in known:
                        known.add(output["message_id"])
                        yield {**where, "published_by": row["handler"], "cause": row["message_id"], **output}

    def _batches(self, columns: Sequence[str] = ()) -> Iterator[tuple[pa.RecordBatch, Row]]:
        """Give the rows that are asked for, with some columns at least, or else all."""
        names = list({*columns, *_KINDS, "message_id", "business_id"}) if columns else None
        for folder in self.folders:
            where = _numbers(folder)
            for path in sorted(filter(Path.is_file, folder.glob("*.parquet"))):
                with pq.ParquetFile(path) as file:
                    for batch in file.iter_batches(columns=names):
                        yield self.wanted.of(batch), where


def _numbers(folder: Path) -> Row:
    found = _ROUND.search(folder.as_posix())
    return {} if found is None else {"batch_id": found["batch"], "round": int(found["round"])}


def _order(folder: Path) -> tuple[str, int]:
    numbers = _numbers(folder)
    return numbers["batch_id"], numbers["round"]

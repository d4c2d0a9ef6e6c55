"""The outcomes of batches as they lie in a folder, read without Spark, on any file system.

Pandas takes as long to import as all else together. So nothing is asked of pyarrow for which it imports that, which are
arrays of Python's values, and times as Python's.
"""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from runtime.batches.dead_letter_limit import HELD_BACK
from runtime.cli.failures import NotPossibleError
from runtime.clock import to_datetime
from runtime.file_systems import Folder, open_folder
from runtime.messages.message_ids import canonical
from runtime.messages.outcome import Status
from runtime.urls import path_and_options

_BATCH = "batch_id="
_ROUND = re.compile(r"round=(\d+)")
_MARK = "_batch-"
_UNFINISHED = "-unfinished"
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
                batch = batch.filter(pc.is_in(batch[name], value_set=_texts(value)))
        if self.id is None:
            return batch
        ids = _texts(self.id, canonical(self.id))
        found = [pc.is_in(batch[name], value_set=ids) for name in ("message_id", "business_id")]
        return batch.filter(pc.or_(*found))


class Round(NamedTuple):
    """A round that is in place."""

    batch_id: str
    number: int
    folder: Folder


@dataclass(frozen=True, slots=True)
class OutcomeFiles:
    """The outcomes of the batches in a folder, all or of one batch, that are asked for.

    `held_back` are batches that are not published, as they have too many dead letters. They are left out unless they
    are asked for, as they are with `is_one` batch.
    """

    rounds: Sequence[Round]
    wanted: Wanted
    held_back: Sequence[str] = ()
    is_one: bool = False

    @classmethod
    def open(cls, out: str, batch_id: str | None, wanted: Wanted) -> OutcomeFiles:
        """Find the rounds that are in place, on any file system that pyarrow or fsspec opens.

        Raises `NotPossibleError` when there is none, and when the folder cannot be read.
        """
        if Path(out).is_file():
            raise NotPossibleError(f"{out} is a file: name the folder that batches write their outcomes to.")
        try:
            batches = list(_batches(open_folder(_absolute(out)), batch_id))
            held_back = [_id(batch) for batch in batches if HELD_BACK in batch.sizes()]
            rounds = [each for batch in batches for each in _rounds(batch)]
        except (OSError, pa.ArrowException) as error:
            reason = str(error).partition("\n")[0]
            raise NotPossibleError(f"Outcomes cannot be read from {out}: {reason}.") from error
        is_one = batch_id is not None or _id(open_folder(out)) != ""
        if not is_one:
            rounds = [each for each in rounds if each.batch_id not in held_back]
        if not rounds and held_back:
            raise NotPossibleError(
                f"There are only outcomes of batches in {out} that are held back: add --batch-id {held_back[0]}."
            )
        if not rounds:
            which = f" of batch {batch_id}" if batch_id else ""
            raise NotPossibleError(
                f"There are no outcomes{which} in {out}: `consistent run --out {out}` writes them."
            )
        return cls(sorted(rounds, key=lambda each: each[:2]), wanted, held_back, is_one)

    @property
    def are_held_back(self) -> bool:
        """Whether these are outcomes of a batch that is held back."""
        return self.is_one and bool(self.held_back)

    def remarks(self) -> Iterator[str]:
        """Give what is to be known of batches that are held back."""
        for batch_id in self.held_back:
            if self.is_one:
                yield f"Batch {batch_id} is held back: it has too many dead letters, and nothing of it is published."
            else:
                yield f"Batch {batch_id} is held back and left out: --batch-id {batch_id} shows it."

    def counts(self) -> Counter[tuple[str | None, str, str | None]]:
        """Count the outcomes by handler, status and reason."""
        found: Counter[tuple[str | None, str, str | None]] = Counter()
        for batch, _ in self._batches(_KINDS):
            found.update(zip(*(batch[name].to_pylist() for name in _KINDS), strict=True))
        return found

    def rows(self) -> Iterator[Row]:
        """Give the outcomes, each with its batch and round."""
        for batch, where in self._batches():
            for row in _rows(batch):
                yield {**where, **row}

    def dead_letters(self) -> OutcomeFiles:
        """Return the dead letters among the outcomes that are asked for."""
        return replace(self, wanted=replace(self.wanted, status=Status.DEAD_LETTER.value))

    def published(self) -> Iterator[Row]:
        """Give the outputs of the outcomes, each once, with the handler and the message that published it."""
        known: set[str] = set()
        for batch, where in self._batches(("message_id", "handler", "outputs")):
            for row in _rows(batch):
                for output in row["outputs"] or ():
                    if output["message_id"] not in known:
                        known.add(output["message_id"])
                        yield {**where, "published_by": row["handler"], "cause": row["message_id"], **output}

    def _batches(self, columns: Sequence[str] = ()) -> Iterator[tuple[pa.RecordBatch, Row]]:
        """Give the rows that are asked for, with some columns at least, or else all."""
        names = list({*columns, *_KINDS, "message_id", "business_id"}) if columns else None
        for batch_id, number, folder in self.rounds:
            where = {"batch_id": batch_id, "round": number}
            for name in sorted(each for each in folder.sizes() if each.endswith(".parquet")):
                with folder.read(name) as opened, pq.ParquetFile(opened) as file:
                    for batch in file.iter_batches(columns=names):
                        yield self.wanted.of(batch), where


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Give the rows of a batch."""
    schema = pa.schema([(field.name, _without_times(field.type)) for field in batch.schema])
    for row in batch.cast(schema).to_pylist():
        for output in row.get("outputs") or ():
            micros = output["enqueued_at"]
            output["enqueued_at"] = None if micros is None else to_datetime(micros)
        yield row


def _texts(*values: str) -> pa.Array:
    """Return an array of texts."""
    encoded = [value.encode() for value in values]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _without_times(type_: pa.DataType) -> pa.DataType:
    """Return the type in which times are microseconds."""
    if pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_list(type_):
        return pa.list_(_without_times(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _without_times(field.type)) for field in type_])
    return type_


def _absolute(out: str) -> str:
    """Return the url of a folder, or its absolute path."""
    path, options = path_and_options(out)
    return path.rstrip("/") + options if ":" in out else str(Path(out).absolute())


def _batches(out: Folder, batch_id: str | None) -> Iterator[Folder]:
    """Give the folders of batches, of which this may be one."""
    found = [out] if _id(out) else [out.sub(name) for name in out.names()]
    for folder in found:
        if _id(folder) and batch_id in (None, _id(folder)):
            yield folder


def _id(folder: Folder) -> str:
    """Return the id of the batch whose folder this is, empty when it is none's."""
    return folder.name.removeprefix(_BATCH) if folder.name.startswith(_BATCH) else ""


def _rounds(batch: Folder) -> Iterator[Round]:
    """Give the rounds of a batch that are in place as a whole."""
    for name in batch.names():
        number = _ROUND.fullmatch(name)
        if number is None:
            continue
        folder = batch.sub(name)
        marks = [each for each in folder.names() if each.startswith(_MARK)]
        if any(not each.endswith(_UNFINISHED) for each in marks):
            yield Round(_id(batch), int(number[1]), folder)

"""The committed outputs of a batch, read from its outcome files and cut into slices.

All outputs of a business object are in one slice, sorted by business id, handler and sequence, that is, in the order of
versions. A published batch is immutable, so its slices are reproducible as long as their number stays the same.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from hashlib import blake2b
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from handlers.draws import Seed
from runtime.clock import to_datetime
from runtime.errors import BatchRefusedError, OutcomesMissingError, UsageError
from runtime.file_systems import Folder, open_folder
from runtime.ledger.ledger import HIDDEN_EPOCHS, BatchRecord, BatchStatus, mark_of, shown
from runtime.messages.outcome import OUTPUT_INDEX_BITS, Maker, Status
from runtime.publishing.publisher import CommittedOutput

_NO_JSON = re.compile(r'("(?:[^"\\]|\\.)*")|NaN|-?Infinity')
"""Matches floats that JSON cannot represent, and strings, so that such words within strings are left alone."""


@contextmanager
def cut(tables: Iterable[pa.Table], count: int) -> Iterator[Slices]:
    """Context manager that cuts tables of outputs into `count` slices in temporary files.

    `tables` may omit whole slices, but must hold all outputs of a slice that is resumed: progress is a position in the
    slice.
    """
    with TemporaryDirectory(prefix="consistent-slices-") as folder:
        counts: Counter[int] = Counter()
        types: set[str] = set()
        makers: set[Maker] = set()
        with ExitStack() as stack:
            files: dict[int, pa.RecordBatchFileWriter] = {}
            for table in tables:
                types.update(pc.unique(table["type"]).to_pylist())
                distinct = table.group_by(_MADE_BY).aggregate([]).drop_null()
                makers.update(zip(*distinct.to_pydict().values(), strict=True))
                numbers = slice_numbers(table, count)
                for number in sorted(pc.unique(numbers).to_pylist()):
                    part = table.filter(pc.equal(numbers, number))
                    if number not in files:
                        path = f"{folder}/{number}.arrow"
                        files[number] = stack.enter_context(pa.ipc.new_file(path, part.schema))
                    files[number].write_table(part)
                    counts[number] += part.num_rows
        yield Slices(Path(folder), range(count), frozenset(types), counts, makers)


@dataclass(frozen=True)
class Slices:
    """Slices of a batch, in the files of a folder."""

    folder: Path
    numbers: Collection[int]
    types: frozenset[str]  # of all outputs
    counts: Mapping[int, int]  # the number of outputs in each slice
    makers: Collection[Maker]  # the batches that made the versions of duplicates

    def outputs(self, number: int) -> Iterator[CommittedOutput]:
        """Yield each output of a slice once, sorted by business id, handler and sequence. Sorts the slice in memory."""
        path = self.folder / f"{number}.arrow"
        if not path.exists():
            return
        order = [(name, "ascending") for name in ("business_id", "handler", "sequence")]
        with pa.memory_map(str(path)) as opened:
            found = pa.ipc.open_file(opened).read_all().sort_by(order)
            known: set[str] = set()
            for batch in found.to_batches(max_chunksize=1_000):
                for row in batch.to_pylist():
                    if row["message_id"] not in known:
                        known.add(row["message_id"])
                        body, number = row["body"], row.pop("made_by_number")
                        if "NaN" in body or "Infinity" in body:
                            # protobuf and pydantic write non-finite floats as strings
                            body = _NO_JSON.sub(lambda found: found[1] or f'"{found[0]}"', body)
                        headers, made_by = dict(row["headers"] or ()), number and (row["made_by"], number)
                        yield CommittedOutput(**{**row, "body": body, "headers": headers, "made_by": made_by})


def slice_of(business_id: str, count: int) -> int:
    """Return the number of the slice of a business object."""
    return int.from_bytes(blake2b(business_id.encode(), digest_size=8).digest()) % count


def slice_numbers(table: pa.Table, count: int) -> pa.Array:
    """Return the slice number of each row of a table."""
    ids = table["business_id"].combine_chunks().dictionary_encode()
    numbers = pa.array([slice_of(each, count) for each in ids.dictionary.to_pylist()], pa.int32())
    return numbers.take(ids.indices)


_SUFFIX = ".parquet"
_OF_OUTCOME = ("business_id", "handler")
_MADE_BY = ["made_by", "made_by_number"]
_OF_DIFFERENCE = ("status", "error", "message_id", "version")
_TEXT = pa.string()
COMMITTED = pa.schema(
    [
        *((name, _TEXT) for name in ("message_id", "type", "body")),
        ("sequence", pa.int64()),
        ("enqueued_at", pa.timestamp("us", tz="UTC")),
        ("headers", pa.map_(_TEXT, _TEXT)),
        *((name, _TEXT) for name in (*_OF_OUTCOME, "made_by")),
        ("made_by_number", pa.int64()),
    ]
)
"""An output, with the columns of `CommittedOutput`."""


FileLocation = tuple[Folder, str]  # the folder of a round, and the name of an outcome file in it


@dataclass(frozen=True)
class BatchOutputs:
    """The outputs of all rounds of a batch. If the batch reprocessed a history, they are corrections of outputs."""

    rounds: Sequence[Folder]
    types: Sequence[str] = ()  # of the outputs; empty for all types
    is_reprocessing: bool = False

    @classmethod
    def of(cls, record: BatchRecord, out: str, types: Sequence[str] = ()) -> BatchOutputs:
        """Find the outputs of a batch in the folder `out`: all outputs, or those of `types` if any are given.

        Raises `BatchRefusedError` if the batch is incomplete, or is an epoch that was merged with others. Raises
        `OutcomesMissingError` if files are missing or changed.
        """
        check_ended(record)
        batch = _folder(record, out)
        rounds = [batch.sub(f"round={number}") for number in range(record.rounds)]
        for folder in rounds:
            sizes = folder.sizes()
            written = {name: size for name, size in sizes.items() if name.endswith(_SUFFIX)}
            if mark_of(record.token, written) not in sizes:
                raise OutcomesMissingError(
                    f"{folder.path} does not contain the committed outcomes: files are missing or changed, or belong "
                    f"to another batch. Use --out to name the folder that the batch wrote to."
                )
        return cls(rounds, types, record.is_reprocessing)

    def default_slices(self) -> int:
        """Return the default number of slices: one for each 1,000 deliveries, at most 256."""
        rows = 0
        for folder, name in self.files():
            with folder.read(name) as opened, pq.ParquetFile(opened) as file:
                rows += file.metadata.num_rows
        return min(max(-(-rows // 1_000), 1), 256)

    def tables(self, files: Iterable[FileLocation] | None = None) -> Iterator[pa.Table]:
        """Yield the outputs in these files, by default all, as tables with the columns of `COMMITTED`."""
        for folder, file_name in self.files() if files is None else files:
            with folder.read(file_name) as opened, pq.ParquetFile(opened) as file:
                for batch in file.iter_batches(columns=[*_OF_OUTCOME, *_MADE_BY, "outputs", *_OF_DIFFERENCE]):
                    found = _corrections(batch) if self.is_reprocessing else _outputs(batch)
                    if self.types:
                        found = found.filter(pc.is_in(found["type"], value_set=pa.array(self.types)))
                    if found.num_rows:
                        yield found

    def with_ids(self, message_ids: Sequence[str]) -> Iterator[pa.Table]:
        """Yield the outputs with these message ids as tables with the columns of `COMMITTED`."""
        wanted = pa.array(message_ids, pa.string())
        for table in self.tables():
            found = table.filter(pc.is_in(table["message_id"], value_set=wanted))
            if found.num_rows:
                yield found

    def known_ids(self, message_ids: Sequence[str]) -> set[str]:
        """Return those of the message ids that outputs of the batch have, or none if an outcome file is unreadable."""
        try:
            return {each for table in self.with_ids(message_ids) for each in table["message_id"].to_pylist()}
        except (OSError, pa.ArrowException):
            return set()

    def files(self) -> list[FileLocation]:
        """Return all outcome files in a stable order."""
        return [
            (folder, name)
            for folder in self.rounds
            for name in sorted(each for each in folder.sizes() if each.endswith(_SUFFIX))
        ]


def _outputs(batch: pa.RecordBatch) -> pa.Table:
    outputs = batch["outputs"]
    parents, items = pc.list_parent_indices(outputs), pc.list_flatten(outputs)
    columns = {field.name: column for field, column in zip(items.type, items.flatten(), strict=True)}
    for name in _OF_OUTCOME:
        columns[name] = pc.fill_null(batch[name].take(parents), "")
    for name in _MADE_BY:
        columns[name] = batch[name].take(parents)
    return pa.table(columns)


def _corrections(batch: pa.RecordBatch) -> pa.Table:
    """Return a message for each output that a reprocessing changed: old body, new body, id of the causing message."""
    rows: list[dict[str, Any]] = []
    for row in batch.to_pylist():
        document = json.loads(row["error"]) if row["status"] == Status.PROCESSED and row["error"] else {}
        for index, output in enumerate(document.get("outputs", ())):
            if output["change"] == "same":
                continue
            handler, business_id = row["handler"], row["business_id"]
            before, after = output["before"] or "null", output["after"] or "null"
            # Independent of the batch: another reprocessing with the same result makes the same corrections.
            seed = Seed(f"{output['message_id']}/{before}/{after}", handler, business_id)
            about = {"change": output["change"], "cause": row["message_id"], "output": output["message_id"]}
            version = row["version"] or document["was"] or 0
            rows.append(
                {
                    "message_id": seed.guid_text("correction", 0),
                    "type": f"{output['type']}Corrected",
                    "body": f'{json.dumps(about)[:-1]}, "before": {before}, "after": {after}}}',
                    "sequence": (version << OUTPUT_INDEX_BITS) + index,
                    "enqueued_at": to_datetime(document["now"]),
                    "headers": [],
                    "business_id": business_id,
                    "handler": handler,
                }
            )
    return pa.Table.from_pylist(rows, COMMITTED)


def check_types(batches: Iterable[BatchOutputs], types: Collection[str]) -> None:
    """Raise `UsageError` for a type without outputs, unless the batches have no outputs at all. Reads all outputs."""
    there: set[str] = set()
    for batch in batches:
        for table in replace(batch, types=()).tables():
            there.update(pc.unique(table["type"]).to_pylist())
    unknown = sorted({*types} - there) if there else []
    if unknown:
        raise UsageError(
            f"No output has the type {', '.join(unknown)}. Choose --types from {', '.join(sorted(there))}."
        )


def _folder(record: BatchRecord, out: str) -> Folder:
    """Return the folder of a batch.

    The folder of an epoch is first in a hidden folder of `out`, and later in `out` itself. Raises `BatchRefusedError`
    if the epoch was merged with others.
    """
    name = f"batch_id={record.batch_id}"
    if not record.is_epoch:
        return open_folder(out).sub(name)
    there = open_folder(shown(out))
    folders = [each for each in (there.sub(HIDDEN_EPOCHS).sub(name), there.sub(name)) if each.exists()]
    query, _, epoch = record.batch_id.rpartition("-")
    for merged in there.names() if not folders else ():
        span = re.fullmatch(rf"batch_id={re.escape(query)}-(\d+)\.\.(\d+)", merged)
        if span and int(span[1]) <= int(epoch) <= int(span[2]):
            raise BatchRefusedError(
                f"The outcomes of epoch {epoch} were merged with those of other epochs in {there.path}/{merged} and "
                "can no longer be distinguished. Use `consistent stream --publish` to publish epochs before they are "
                "merged."
            )
    return folders[0] if folders else there.sub(name)


def check_ended(record: BatchRecord) -> None:
    """Raise `BatchRefusedError` unless the batch is complete."""
    if record.status is not BatchStatus.PUBLISHED:
        raise BatchRefusedError(
            f"Batch {record.batch_id} is {record.status}: only a complete batch can be published. Run it to its end "
            f"first."
        )

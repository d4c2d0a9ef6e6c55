"""The outcome files of batches, read without Spark."""

from __future__ import annotations

import re
from array import array
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from runtime.clock import to_datetime
from runtime.errors import OutcomesMissingError
from runtime.file_systems import Folder, is_url, open_folder, path_and_options
from runtime.ledger.batch import HELD_BACK_MARKER
from runtime.messages.envelope import canonical
from runtime.messages.outcome import Reason, Status
from runtime.options import option

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

# Importing pandas would double the start-up time. pyarrow imports it to convert Python values to arrays, and timestamps
# to Python values, so both are avoided here.

_BATCH = "batch_id="
KINDS = ("handler", "status", "reason")
_BETWEEN, _NULL = "\0", "\1"  # neither is in a name, a status or a reason

_BATCH_ROWS = 8192  # few, because often only the first rows are wanted

Row = dict[str, Any]
OutcomeKind = tuple[str | None, str, str | None]


@dataclass(frozen=True)
class OutcomeFilter:
    """Options that select outcomes. An outcome must match all of them."""

    status: Status | None = option("Only outcomes with this status.")
    handler: str | None = option("Only outcomes of this handler.", metavar="NAME")
    reason: Reason | None = option("Only dead letters with this reason.", metavar="REASON")
    id: str | None = option("Only outcomes of this message or business object.", metavar="ID")

    def of(self, batch: Any) -> Any:  # noqa: ANN401 - a record batch or table
        import pyarrow.compute as pc

        for name, value in (("status", self.status), ("handler", self.handler), ("reason", self.reason)):
            if value is not None:
                batch = batch.filter(pc.is_in(batch[name], value_set=_texts(value)))
        if self.id is None:
            return batch
        ids = _texts(self.id, canonical(self.id))
        return batch.filter(
            pc.or_(*(pc.is_in(batch[name], value_set=ids) for name in ("message_id", "business_id")))
        )


class Round(NamedTuple):
    """A committed round of a batch."""

    batch_id: str
    number: int
    folder: Folder

    @property
    def where(self) -> Row:
        return {"batch_id": self.batch_id, "round": self.number}


@dataclass(frozen=True, slots=True)
class OutcomeFiles:
    """The selected outcomes of one batch or all batches in a folder. Needs no Spark."""

    rounds: Sequence[Round]
    outcome_filter: OutcomeFilter
    held_back: Sequence[str] = ()  # batches with too many dead letters, which are omitted unless selected
    is_one: bool = False  # whether a single batch is selected

    @classmethod
    def find(
        cls, out: str, batch_id: str | None = None, outcome_filter: OutcomeFilter | None = None
    ) -> OutcomeFiles:
        """Find the committed rounds of a batch, by default of all batches that are not held back.

        `out` is on a file system of pyarrow or fsspec: the folder of one batch or several. Raises `OSError` and errors
        of Arrow if the folder cannot be read.
        """
        path, options = path_and_options(out)
        folder = open_folder(path.rstrip("/") + options if is_url(out) else str(Path(out).absolute()))
        folders = [folder] if _id(folder) else [folder.sub(name) for name in folder.names()]
        batches = [each for each in folders if _id(each) and batch_id in (None, _id(each))]
        held_back = [_id(batch) for batch in batches if HELD_BACK_MARKER in batch.sizes()]
        rounds = [each for batch in batches for each in _rounds(batch)]
        is_one = batch_id is not None or _id(folder) != ""
        if not is_one:
            rounds = [each for each in rounds if each.batch_id not in held_back]
        return cls(
            sorted(rounds, key=lambda each: each[:2]), outcome_filter or OutcomeFilter(), held_back, is_one
        )

    def counts(self) -> Counter[OutcomeKind]:
        """Count the outcomes by handler, status and reason."""
        import pyarrow.compute as pc

        found: Counter[OutcomeKind] = Counter()
        (between,) = _texts(_BETWEEN)
        for batch, _ in self._batches(KINDS):
            columns = (batch[name] for name in KINDS)
            joined = pc.binary_join_element_wise(
                *columns, between, null_handling="replace", null_replacement=_NULL
            )
            for each in pc.value_counts(joined).to_pylist():
                handler, status, reason = each["values"].rsplit(_BETWEEN, 2)
                kind = (None if handler == _NULL else handler, status, None if reason == _NULL else reason)
                found[kind] += each["counts"]
        return found

    def parts(self) -> list[Part]:
        """Return the row groups of all files, in the order of their rounds. Reads only the footers of the files."""
        return [
            Part(round_, name, file.metadata, number)
            for file, round_, name in self._files()
            for number in range(file.num_row_groups)
        ]

    def rows(self) -> Iterator[Row]:
        for batch, where in self._batches():
            for row in _rows(batch):
                yield {**where, **row}

    def published(self) -> Iterator[Row]:
        """Yield each output once, with the handler and message that published it."""
        known: set[str] = set()
        for batch, where in self._batches(("message_id", "handler", "outputs")):
            for row in _rows(batch):
                for output in row["outputs"] or ():
                    if output["message_id"] not in known:
                        known.add(output["message_id"])
                        yield {**where, "published_by": row["handler"], "cause": row["message_id"], **output}

    def table(self) -> tuple[pa.Schema, Callable[[Sequence[str]], Iterator[pa.RecordBatch]]]:
        """Return the schema of outcomes, including batch and round, and a function that reads the named columns.

        Raises `OutcomesMissingError` if there are no files.
        """
        import pyarrow as pa

        def read(names: Sequence[str]) -> Iterator[pa.RecordBatch]:
            for batch, where in self._batches(names):
                columns = [
                    pa.array([where[name]] * len(batch), of_round[name]) if name in where else batch[name]
                    for name in names
                ]
                yield pa.RecordBatch.from_arrays(columns, list(names))

        of_round = {"batch_id": pa.string(), "round": pa.int32()}
        stored = next((file.schema_arrow for file, *_ in self._files()), None)
        if stored is None:
            raise OutcomesMissingError("There are no outcome files yet.")
        return pa.schema([*of_round.items(), *stored]), read

    def _batches(self, columns: Sequence[str] = ()) -> Iterator[tuple[pa.RecordBatch, Row]]:
        """Yield the matching rows as record batches, each with the batch id and round of its rows.

        Reads at least these columns, or all columns if none are given.
        """
        is_all = self.outcome_filter == OutcomeFilter()
        filtered = [] if is_all else [*KINDS, "message_id", "business_id"]
        names = list({*columns, *filtered}) if columns else None
        for file, round_, _ in self._files():
            for number in range(file.num_row_groups):
                if is_all or self.outcome_filter.of(file.read_row_group(number, filtered)).num_rows:
                    for batch in file.iter_batches(_BATCH_ROWS, row_groups=[number], columns=names):
                        yield self.outcome_filter.of(batch), round_.where

    def _files(self) -> Iterator[tuple[pq.ParquetFile, Round, str]]:
        import pyarrow.parquet as pq

        for round_ in self.rounds:
            for name in sorted(each for each in round_.folder.sizes() if each.endswith(".parquet")):
                with round_.folder.read(name) as opened, pq.ParquetFile(opened) as file:
                    yield file, round_, name


OUTPUT_ID = "outputs.list.element.message_id"
"""The column of the ids of outputs."""


class Part(NamedTuple):
    """A row group of an outcome file. Parts can be read in threads."""

    round: Round
    file: str
    footer: pq.FileMetaData
    number: int

    def ids(self, column: str) -> int:
        return int(self._column(column).num_values)

    def may_have(self, column: str, values: Collection[str]) -> bool:
        """Return whether it is possible that a column contains one of the values. Reads only statistics."""
        known = self._column(column).statistics
        if known is None or (known.num_values and not known.has_min_max):
            return True
        return bool(known.num_values) and any(known.min <= value <= known.max for value in values)

    def _column(self, path: str) -> pq.ColumnChunkMetaData:
        group = self.footer.row_group(self.number)
        columns = (group.column(position) for position in range(group.num_columns))
        return next(each for each in columns if each.path_in_schema == path)

    def find(
        self, ids: Collection[str], column: str, columns: Sequence[str] | None = None, most: int = 50
    ) -> list[Row]:
        """Return up to `most` outcomes with one of the ids in a column. Reads other columns only if one matches.

        `column` is `message_id` or `OUTPUT_ID`. `columns` are the columns of the result, by default all.
        """
        import pyarrow as pa
        import pyarrow.compute as pc

        with self._reader() as read:
            stored = read([column]).column(0).combine_chunks()
            is_list = pa.types.is_list(stored.type)
            flat = pc.struct_field(pc.list_flatten(stored), [0]) if is_list else stored
            positions = pc.indices_nonzero(pc.is_in(flat, value_set=_texts(*ids)))
            if not len(positions):
                return []
            if is_list:
                positions = pc.unique(pc.list_parent_indices(stored).take(positions))
            return self._rows(read(columns).take(positions[:most]))

    def select(self, outcome_filter: OutcomeFilter, skip: int, most: int) -> tuple[list[Row], int]:
        """Return a page of the matching outcomes, and the number of all matches. Reads whole rows only if any match."""
        wanted = ((name, getattr(outcome_filter, name)) for name in KINDS)
        if not all(value is None or self.may_have(name, [value]) for name, value in wanted):
            return [], 0
        with self._reader() as read:
            if not outcome_filter.of(read(KINDS)).num_rows:
                return [], 0
            found = outcome_filter.of(read(None))
            return self._rows(found.slice(skip, most)), found.num_rows

    @contextmanager
    def _reader(self) -> Iterator[Callable[[Sequence[str] | None], pa.Table]]:
        import pyarrow.parquet as pq

        with (
            self.round.folder.read(self.file) as opened,
            pq.ParquetFile(opened, metadata=self.footer) as file,
        ):
            yield lambda columns: file.read_row_group(self.number, columns, use_threads=columns is None)

    def _rows(self, table: pa.Table) -> list[Row]:
        return [{**self.round.where, **row} for row in _rows(table)]


def _id(folder: Folder) -> str:
    return folder.name.removeprefix(_BATCH) if folder.name.startswith(_BATCH) else ""


def _rounds(batch: Folder) -> Iterator[Round]:
    for name in batch.names():
        number = re.fullmatch(r"round=(\d+)", name)
        if number is not None:
            folder = batch.sub(name)
            marks = [each for each in folder.names() if each.startswith("_batch-")]
            if any(not each.endswith("-unfinished") for each in marks):
                yield Round(_id(batch), int(number[1]), folder)


def _rows(batch: pa.RecordBatch | pa.Table) -> Iterator[Row]:
    import pyarrow as pa

    schema = pa.schema([(field.name, _without_times(field.type)) for field in batch.schema])
    for row in batch.cast(schema).to_pylist():
        for output in row.get("outputs") or ():
            if "headers" in output:
                micros = output["enqueued_at"]
                output["enqueued_at"] = None if micros is None else to_datetime(micros)
                output["headers"] = dict(output["headers"])
        yield row


def _texts(*values: str) -> pa.Array:
    """Return a string array, without `pa.array`, which imports pandas."""
    import pyarrow as pa

    encoded = [value.encode() for value in values]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _without_times(type_: pa.DataType) -> pa.DataType:
    import pyarrow as pa

    if pa.types.is_timestamp(type_):
        return pa.int64()
    if pa.types.is_list(type_):
        return pa.list_(_without_times(type_.value_type))
    if pa.types.is_struct(type_):
        return pa.struct([(field.name, _without_times(field.type)) for field in type_])
    return type_

"""`consistent outcomes` and `consistent batches`: what batches did and published, and how far each is."""

from __future__ import annotations

import json
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from itertools import accumulate, islice
from pathlib import Path
from shlex import quote
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer
from rich.console import RenderableType

from eventstore import Table
from runtime.cli.batch_command import command_with, counts_text, describe
from runtime.cli.checks import check_file, on_table
from runtime.cli.console import Cell, Screen, counted, iso, make_table
from runtime.cli.dead_letters import table_of_dead_letters
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson, Limit, StoreUrl, TableName, parse_duration
from runtime.clock import system_clock, to_datetime
from runtime.errors import MissingExtraError, UsageError
from runtime.file_systems import Folder, open_folder, path_and_options, within
from runtime.ledger.batch import HELD_BACK_MARKER
from runtime.ledger.ledger import STATE_BASED, BatchRecord, Ledger
from runtime.messages.envelope import canonical
from runtime.messages.outcome import DeadLetters, Reason, Status, group_dead_letters
from runtime.publishing.records import prune_publications

if TYPE_CHECKING:
    import pyarrow as pa

# `consistent batches`: what the ledger of a table says.

Abandon = Annotated[
    str | None,
    typer.Option(
        "--abandon",
        metavar="ID",
        help="Give up a batch that has not ended: what it stored stays, what it did not publish it never will.",
    ),
]

Prune = Annotated[
    bool, typer.Option("--prune", help="Delete the rows of batches that ended longer ago than --older-than.")
]
Age = Annotated[
    int | None,
    typer.Option("--older-than", parser=parse_duration, metavar="AGE", help="With --prune: 30d, 24h, 2w ..."),
]
BatchLimit = Annotated[
    int, typer.Option("--limit", metavar="N", min=1, help="How many batches to list, the newest first.")
]

_COLUMNS = ("batch", "status", "rounds", "started", "updated", "outcomes", "out")


def batches(
    *,
    store: StoreUrl,
    table: TableName,
    limit: BatchLimit = 50,
    abandon: Abandon = None,
    prune: Prune = False,
    older_than: Age = None,
    as_json: AsJson = False,
) -> None:
    """List the newest batches of a table: those that have not ended first, then the published and abandoned ones.

        consistent batches --store sqlite:///store.db --table games

    A batch that died stands as started. Run it again with its id and it goes on where it was; until then its
    versions are not cut, and a message of it that cannot be replayed fails any other batch. One request for
    each batch that is listed.

    With --prune, the ledger forgets batches that ended long ago, never one that has not ended. Their versions and
    outcomes stay; what is kept of their publications goes with them, dead letters too. A forgotten id that is used
    again is a new batch, for which it needs another folder of outcomes.
    """
    screen = Screen(as_json)
    if prune != (older_than is not None):
        message = (
            "--prune and --older-than AGE go together: the one says what to do, the other with which batches."
        )
        raise UsageError(message)
    if older_than is not None:
        before = system_clock() - older_than
        pruned = on_table(store, table, lambda opened: _prune(opened, before))
        screen.give(pruned)
        screen.show(f"The ledger of {table} has forgotten {counted(pruned['pruned'], 'batch')}.")
        return
    if abandon is not None:
        record = on_table(store, table, lambda opened: _abandon(opened, abandon))
        screen.give(describe(record))
        screen.show(f"Batch {abandon} is abandoned. {_what_is_left(record)}")
        return
    records = on_table(store, table, lambda opened: _batches(opened, limit))
    screen.give({"batches": list(map(describe, records))})
    if not records:
        screen.show(f"No batch was run into the table {table}.")
        return
    screen.show(make_table(f"Batches of {table}", _COLUMNS, map(_row, records)))
    if len(records) == limit:
        screen.show(f"There may be more: these are the newest {limit:,}, --limit lists others.")
    for record in records:
        if not record.is_finished:
            screen.show(_how_to_go_on(record))


async def _batches(table: Table, limit: int) -> list[BatchRecord]:
    return await Ledger(table, system_clock).batches(limit)


async def _prune(table: Table, before: int) -> dict[str, int]:
    pruned = await Ledger(table, system_clock).prune(before)
    return {"pruned": pruned, "publications": await prune_publications(table, system_clock)}


async def _abandon(table: Table, batch_id: str) -> BatchRecord:
    return await Ledger(table, system_clock).abandon(batch_id)


def _row(record: BatchRecord) -> tuple[Cell, ...]:
    return (
        record.batch_id,
        record.status.value,
        record.rounds,
        record.started_at,
        record.updated_at,
        counts_text(record) or None,
        record.out,
    )


def _what_is_left(record: BatchRecord) -> str:
    if record.algorithm == STATE_BASED:
        return "Its messages can be run under another id."
    left = "`consistent sweep` publishes what waits in outboxes, and so does another batch with its messages."
    if record.rounds == 0:
        return left
    folder = within(record.out, f"batch_id={record.batch_id}")
    return (
        f"The outcomes of {_rounds(record)} are in {folder}: publish them from there, as no other batch gives them "
        f"again. {left}"
    )


def _rounds(record: BatchRecord) -> str:
    return "its committed round" if record.rounds == 1 else f"its {record.rounds:,} committed rounds"


def _how_to_go_on(record: BatchRecord) -> str:
    again = f"run its log again with --batch-id {record.batch_id} --out {quote(record.out)}"
    if record.is_epoch:
        again = "start its query again"
    return (
        f"Batch {record.batch_id} has not ended. If nobody is running it, {again} to go on, or give it up:\n"
        f"  {command_with('--abandon', record.batch_id)}"
    )


Out = Annotated[
    str,
    typer.Option(
        "--out",
        metavar="DIR",
        show_default=False,
        help="The folder or url that batches write their outcomes to, or that of one batch in there.",
    ),
]
BatchId = Annotated[str | None, typer.Option("--batch-id", metavar="ID", help="Only outcomes of this batch.")]
WithStatus = Annotated[Status | None, typer.Option("--status", help="Only outcomes with this status.")]
Handler = Annotated[
    str | None, typer.Option("--handler", metavar="NAME", help="Only outcomes of this handler.")
]
WithReason = Annotated[
    Reason | None, typer.Option("--reason", metavar="REASON", help="Only dead letters with this reason.")
]
Id = Annotated[
    str | None,
    typer.Option("--id", metavar="ID", help="Only outcomes of this message, or of this business object."),
]
Export = Annotated[
    Path | None,
    typer.Option(
        "--export",
        metavar="FILE",
        dir_okay=False,
        help="Write all outcomes that are asked for to a file, as JSON lines.",
    ),
]


def outcomes(
    *,
    out: Out,
    batch_id: BatchId = None,
    status: WithStatus = None,
    handler: Handler = None,
    reason: WithReason = None,
    id_: Id = None,
    limit: Limit = 20,
    export: Export = None,
    as_json: AsJson = False,
) -> None:
    r"""Show what batches did with each delivery, and what they published.

        consistent outcomes --out outcomes
        consistent outcomes --out outcomes --status dead_letter \
            --export dead.jsonl

    It reads the Parquet files without Spark, those of a url with the credentials that pyarrow or fsspec finds: counts
    by handler and status, the outputs, each once, and dead letters by reason and error. With a filter the deliveries
    are listed too, each with its outputs. Batches that are held back (--strict) are left out unless named.
    """
    try:
        import pyarrow.parquet  # noqa: F401 - all that follows needs it
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"Reading outcomes needs {error.name}: pip install 'consistent-messaging[spark]'."
        ) from error
    from runtime.cli.console import counted

    check_file(export)
    wanted = Wanted(status and status.value, handler, reason and reason.value, id_)
    files = OutcomeFiles.open(out, batch_id, wanted)
    screen = Screen(as_json)
    for remark in files.remarks():
        screen.note(remark)
    screen.put(OutcomesReport.of(files, limit))
    if export is not None:
        screen.note(f"Wrote {counted(export_rows(files, export), 'outcome')} to {export}.")


# The outcomes of batches as they lie in a folder, read without Spark, on any file system.
#
# Pandas takes as long to import as all else together. So nothing is asked of pyarrow for which it imports
# that, which are arrays of Python's values, and times as Python's.

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
        import pyarrow.compute as pc

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
        import pyarrow as pa

        if Path(out).is_file():
            raise NotPossibleError(f"{out} is a file: name the folder that batches write their outcomes to.")
        try:
            batches = list(_batch_folders(open_folder(_absolute(out)), batch_id))
            held_back = [_id(batch) for batch in batches if HELD_BACK_MARKER in batch.sizes()]
            rounds = [each for batch in batches for each in _round_folders(batch)]
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
                f"There are no outcomes{which} in {out}: `consistent run --out {quote(out)}` writes them."
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
        import pyarrow.parquet as pq

        names = list({*columns, *_KINDS, "message_id", "business_id"}) if columns else None
        for batch_id, number, folder in self.rounds:
            where = {"batch_id": batch_id, "round": number}
            for name in sorted(each for each in folder.sizes() if each.endswith(".parquet")):
                with folder.read(name) as opened, pq.ParquetFile(opened) as file:
                    for batch in file.iter_batches(columns=names):
                        yield self.wanted.of(batch), where


def _rows(batch: pa.RecordBatch) -> Iterator[Row]:
    """Give the rows of a batch."""
    import pyarrow as pa

    schema = pa.schema([(field.name, _without_times(field.type)) for field in batch.schema])
    for row in batch.cast(schema).to_pylist():
        for output in row.get("outputs") or ():
            micros = output["enqueued_at"]
            output["enqueued_at"] = None if micros is None else to_datetime(micros)
        yield row


def _texts(*values: str) -> pa.Array:
    """Return an array of texts."""
    import pyarrow as pa

    encoded = [value.encode() for value in values]
    ends = array("i", accumulate(map(len, encoded), initial=0))
    return pa.StringArray.from_buffers(len(values), pa.py_buffer(ends), pa.py_buffer(b"".join(encoded)))


def _without_times(type_: pa.DataType) -> pa.DataType:
    """Return the type in which times are microseconds."""
    import pyarrow as pa

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


def _batch_folders(out: Folder, batch_id: str | None) -> Iterator[Folder]:
    """Give the folders of batches, of which this may be one."""
    found = [out] if _id(out) else [out.sub(name) for name in out.names()]
    for folder in found:
        if _id(folder) and batch_id in (None, _id(folder)):
            yield folder


def _id(folder: Folder) -> str:
    """Return the id of the batch whose folder this is, empty when it is none's."""
    return folder.name.removeprefix(_BATCH) if folder.name.startswith(_BATCH) else ""


def _round_folders(batch: Folder) -> Iterator[Round]:
    """Give the rounds of a batch that are in place as a whole."""
    for name in batch.names():
        number = _ROUND.fullmatch(name)
        if number is None:
            continue
        folder = batch.sub(name)
        marks = [each for each in folder.names() if each.startswith(_MARK)]
        if any(not each.endswith(_UNFINISHED) for each in marks):
            yield Round(_id(batch), int(number[1]), folder)


# The outcomes of batches, for people and for machines.

_COUNTS = ("handler", *(status.value.replace("_", " ") for status in Status))
_PUBLISHED = ("batch", "message", "type", "body", "published by", "for message")
_DELIVERIES = (
    "batch",
    "round",
    "message",
    "type",
    "handler",
    "business id",
    "status",
    "version",
    "outputs",
    "error",
)


@dataclass(frozen=True, slots=True)
class OutcomesReport:
    """Outcomes that were asked for: counts of all, and the first of them, of the outputs and of the dead letters."""

    counts: Counter[tuple[str | None, str, str | None]]
    deliveries: Sequence[Row]
    published: Sequence[Row]
    dead_letters: Sequence[DeadLetters]
    is_filtered: bool
    limit: int
    held_back: Sequence[str] = ()
    are_held_back: bool = False

    @classmethod
    def of(cls, files: OutcomeFiles, limit: int) -> OutcomesReport:
        """Read the files: once for the counts, and as far as needed for what is listed; `limit` 0 lists all."""
        counts = files.counts()
        dead = group_dead_letters(files.dead_letters().rows()) if _dead(counts) else []
        return cls(
            counts,
            _first(files.rows(), limit),
            _first(files.published(), limit),
            dead[: limit or None],
            not files.wanted.is_all,
            limit,
            files.held_back,
            files.are_held_back,
        )

    def document(self) -> dict[str, Any]:
        """Return the report for JSON."""
        names = ("handler", "status", "reason", "count")
        return {
            "counts": [dict(zip(names, (*kind, count), strict=True)) for kind, count in self._counted()],
            "outcomes": list(map(_plain, self.deliveries)),
            "published": list(map(_plain, self.published)),
            "dead_letters": [asdict(group) for group in self.dead_letters],
            "held_back": list(self.held_back),
        }

    def parts(self) -> Iterator[RenderableType]:
        """Give the report for people."""
        if not self.counts:
            yield "There are no such outcomes."
            return
        yield make_table("Outcomes", _COUNTS, self._count_rows())
        if self.is_filtered:
            yield ""
            title = self._title("Deliveries", len(self.deliveries), sum(self.counts.values()))
            yield make_table(title, _DELIVERIES, map(_delivery, self.deliveries))
        if self.published:
            yield ""
            more = ", the first" if self.limit and len(self.published) == self.limit else ""
            published = "Not published, as the batch is held back" if self.are_held_back else "Published"
            yield make_table(f"{published}{more}", _PUBLISHED, map(_output, self.published))
        if self.dead_letters:
            yield ""
            yield table_of_dead_letters(self.dead_letters, _dead(self.counts))

    def _counted(self) -> list[tuple[tuple[str | None, str, str | None], int]]:
        return sorted(self.counts.items(), key=lambda each: tuple(part or "" for part in each[0]))

    def _count_rows(self) -> Iterator[tuple[Cell, ...]]:
        for handler in sorted({handler or "" for handler, _, _ in self.counts}):
            here = [
                (status, count) for (name, status, _), count in self.counts.items() if (name or "") == handler
            ]
            yield (
                handler or "(none)",
                *(sum(count for found, count in here if found == status.value) for status in Status),
            )

    def _title(self, what: str, shown: int, total: int) -> str:
        return what if shown == total else f"{what}, the first {shown:,} of {total:,}"


def export_rows(files: OutcomeFiles, path: Path) -> int:
    """Write the outcomes to a file as JSON lines, and return how many there are."""
    count = 0
    with path.open("w", encoding="utf-8") as file:
        for row in files.rows():
            count += 1
            file.write(f"{json.dumps(_plain(row), ensure_ascii=False)}\n")
    return count


def _dead(counts: Counter[tuple[str | None, str, str | None]]) -> int:
    return sum(count for (_, status, _), count in counts.items() if status == Status.DEAD_LETTER)


def _first(rows: Iterable[Row], limit: int) -> list[Row]:
    return list(islice(rows, limit or None))


def _plain(value: Any) -> Any:  # noqa: ANN401 - any value of a row
    """Return a row, or a value in it, as JSON has it; `headers` come from Arrow as pairs."""
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, dict):
        return {name: dict(item) if name == "headers" else _plain(item) for name, item in value.items()}
    return list(map(_plain, value)) if isinstance(value, list) else value


def _output(row: Row) -> tuple[Cell, ...]:
    return row["batch_id"], row["message_id"], row["type"], row["body"], row["published_by"], row["cause"]


def _delivery(row: Row) -> tuple[Cell, ...]:
    names = ("batch_id", "round", "message_id", "type", "handler", "business_id")
    status = f"{row['status']}: {row['reason']}" if row["reason"] else row["status"]
    return (*(row[name] for name in names), status, row["version"], len(row["outputs"] or ()), row["error"])

"""Streams: run the handlers of an app over a streaming DataFrame, micro-batch by micro-batch.

If Spark crashes before it records the end of an epoch, it repeats the epoch with the same offsets. An epoch that is in
the ledger with the same content is resumed, or skipped if it is published. Any other content is an error: the
checkpoint was deleted, restored from a backup, or belongs to another query or table. Spark would then lose messages, or
reuse the number of a finished epoch.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import cached_property, partial
from hashlib import sha256
from threading import Lock
from typing import TYPE_CHECKING, Any, Literal, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from pyarrow import parquet
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from eventstore import connect
from eventstore.connect import portable_url
from handlers import App
from runtime.batch_options import BatchOptions, Step, TablePlace, check_app
from runtime.errors import BatchFailedError, BatchRefusedError, LogError, UsageError
from runtime.file_systems import Folder, open_folder, path_and_options, within
from runtime.ledger.ledger import EPOCH, HIDDEN_EPOCHS, BatchRecord, BatchStatus, Ledger, check_id
from runtime.messages.records import AS_JSON, Decoding
from runtime.options import given
from runtime.spark import session
from runtime.spark.batch import Rounds, Work, published_outputs
from runtime.spark.commit import absolute_folder
from runtime.spark.logs import read
from runtime.spark.logs.normalise import find_routes, group, normalise
from runtime.spark.worker.connection import Connection, open_current, open_table
from runtime.spark.worker.outcomes import ARROW_OUTCOME, OUTCOMES, SUFFIX, OutcomeFileWriter

if TYPE_CHECKING:
    from runtime.spark.publishing import PublishTo

_VERSION = "v1"
_NOTHING_READ = "-"
_COMPACT = ".compact"
_OWNER = "consistent-query.json"

WHAT_TO_DO = (
    "Nothing was handled. Continue with the query's own checkpoint, or give query and checkpoint new names: messages "
    "that were handled before are then duplicates, and change nothing."
)
"""The end of each error about a checkpoint from which a query cannot continue."""


class Planned(NamedTuple):
    """What identifies a micro-batch that Spark has planned, and the files that it reads."""

    checkpoint: str  # the random id of the checkpoint
    offsets: str  # a digest of the offsets and files
    files: Mapping[str, int]  # URLs with modification times in milliseconds, as recorded by Spark


class CheckpointOwner(NamedTuple):
    """The query that claimed a checkpoint, and its table."""

    query: str
    store: str
    table: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Spark's checkpoint of a query.

    Before an epoch, Spark writes `offsets/EPOCH`: a line with the format version, a line with settings, and a line with
    the offset of each source. A micro-batch is the input between the offsets in two such files. The offset of a file
    source is the number of a list of files, `sources/SOURCE/NUMBER`. Every tenth list is `NUMBER.compact`, which
    repeats all previous lists. The file `metadata` has a random id.
    """

    url: str

    def planned(self, epoch: int) -> Planned:
        """Return the planned micro-batch of an epoch. Raises `UsageError` if the checkpoint is not readable."""
        after = self._offsets(epoch)
        before = self._offsets(epoch - 1) if epoch else []
        before += [_NOTHING_READ] * (len(after) - len(before))
        ends = enumerate(zip(before, after, strict=False))
        files = [sorted(self._files(source, *both)) for source, both in ends]
        digest = sha256(json.dumps([before, after, files]).encode()).hexdigest()[:32]
        id_ = str(json.loads(self._read("metadata"))["id"])
        return Planned(id_, digest, dict(file for each in files for file in each))

    def changed(self, files: Mapping[str, int]) -> list[tuple[str, bool]]:
        """Return the URL of each changed or missing file, and whether it is missing. `files`: see `Planned.files`.

        Skips files for which only Spark has credentials.
        """
        path, options = path_and_options(self.url)
        options_of = {"": "", "file": "", urlsplit(path).scheme: options}
        times_in: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for file, modified in files.items():
            scheme, host, name, *_ = urlsplit(file)
            if scheme in options_of:
                times_in[f"{scheme or 'file'}://{host}"][unquote(name).lstrip("/")] = modified
        changed = []
        for root, times in times_in.items():
            folder = open_folder(root + options_of[urlsplit(root).scheme])
            unit = 1 if folder.is_local else 1000  # on object stores, Spark and pyarrow only agree on seconds
            for name, now in zip(times, folder.times(list(times)), strict=True):
                if now is None or (now >= 0 and now // unit != times[name] // unit):
                    changed.append((f"{root}/{name}", now is None))
        return changed

    def owner(self) -> CheckpointOwner | None:
        """Return the query that claimed the checkpoint, if any. Raises `BatchRefusedError` if the claim is corrupt."""
        folder = self._folder()
        if _OWNER not in folder.sizes():
            return None
        try:
            return CheckpointOwner(**json.loads(_read(folder, _OWNER)))
        except (ValueError, TypeError) as error:
            raise self._lacks(f"Its {_OWNER} cannot be read.") from error

    def claim(self, owner: CheckpointOwner) -> None:
        """Record the owner of the checkpoint atomically, in a file that Spark ignores. Replaces a recorded owner."""
        self._folder().put_whole(_OWNER, json.dumps(owner._asdict()).encode())

    def _folder(self) -> Folder:
        return open_folder(self.url)

    def _read(self, name: str) -> str:
        try:
            return _read(self._folder(), name)
        except FileNotFoundError as error:
            raise self._lacks(f"It lacks {name}.") from error

    def _lacks(self, problem: str) -> BatchRefusedError:
        return BatchRefusedError(
            f"The checkpoint {self.url} was partly deleted or restored, or is corrupt. {problem} {WHAT_TO_DO}"
        )

    def _offsets(self, epoch: int) -> list[str]:
        version, _, *sources = self._read(f"offsets/{epoch}").splitlines()
        if version != _VERSION:
            raise UsageError(
                f"The checkpoint {self.url} has offsets in the format {version}, but only {_VERSION} is supported: run "
                f"the query with the version of Spark that started it."
            )
        return sources

    def _files(self, source: int, before: str, after: str) -> Iterator[tuple[str, int]]:
        """Yield the path and time of each file between two offsets. Yield nothing for a source other than files."""
        last, first = _number(after), _number(before)
        if last is None:
            return
        lists = self._folder().sub(f"sources/{source}")
        for number in range(0 if first is None else first + 1, last + 1):
            has_number = f'"batchId":{number}'  # avoids parsing most lines of a compacted list
            for line in self._list(lists, source, number):
                file = json.loads(line) if has_number in line else {}
                if file.get("batchId") == number:
                    yield file["path"], file["timestamp"]

    def _list(self, lists: Folder, source: int, number: int) -> Sequence[str]:
        """Return the lines of a list or, if Spark deleted it, of the next compacted list."""
        for name in (str(number), f"{number}{_COMPACT}"):
            if lists.sub(name).exists():
                return _read(lists, name).splitlines()
        compacted = (name.removesuffix(_COMPACT) for name in lists.names() if name.endswith(_COMPACT))
        later = [int(name) for name in compacted if name.isdecimal() and int(name) > number]
        if not later:
            raise self._lacks(f"It lacks sources/{source}/{number}, a list of files.")
        return _read(lists, f"{min(later)}{_COMPACT}").splitlines()


def _number(offset: str) -> int | None:
    """Return the list number in the offset of a file source, or `None` for the offset of another kind of source."""
    try:
        found: Any = json.loads(offset)
    except ValueError:  # nothing was read, or the source does not write JSON
        return None
    return found["logOffset"] if isinstance(found, Mapping) and set(found) == {"logOffset"} else None


def _read(folder: Folder, name: str) -> str:
    with folder.read(name) as file:
        return str(file.read().decode())


@dataclass
class Admission:
    """Checks each epoch of a query before it runs. One object serves one start of the query."""

    query: str
    checkpoint: Checkpoint
    named: str | None = None  # the table as the user names it, if another one replaced it
    _follows: bool = field(default=False, init=False)

    def batch_id(self, epoch: int) -> str:
        return f"{self.query}-{epoch}"

    def what(self, epoch: int, planned: Planned) -> str:
        content = f"checkpoint {planned.checkpoint} with offsets {planned.offsets}"
        return f"{EPOCH}{epoch} of the query {self.query}, {content}"

    def check_start(self, us: CheckpointOwner, find: Callable[[str], BatchRecord | None]) -> None:
        """Check the checkpoint before Spark opens it: opening it would stop another query that uses it.

        `us`: this query and its table. `find`: looks up a batch in the ledger. Raises `UsageError` if a check fails.
        """
        folder = open_folder(self.checkpoint.url)
        if folder.exists() and not folder.is_folder():
            raise UsageError(
                f"The checkpoint {self.checkpoint.url} is a file: choose a folder of this query's own."
            )
        owner = self._owner()
        planned = [int(name) for name in folder.sub("offsets").names() if name.isdecimal()]
        if planned:
            last = max(planned)
            self.checkpoint.planned(last)
            known = any(find(self.batch_id(each)) for each in range(max(0, last - 1), last + 1))
            if owner not in (None, us) and not known:
                raise self._not_ours(f"has epochs that are not in the table {us.table} of this store")

    def check_files(self, epoch: int, planned: Planned) -> None:
        """Raise `BatchRefusedError` if files of an epoch were deleted or replaced, which Spark does not notice."""
        changed = self.checkpoint.changed(planned.files)
        if changed:
            path, is_gone = changed[0]
            others = f", and {len(changed) - 1:,} others are missing or were too" if len(changed) > 1 else ""
            raise BatchRefusedError(
                f"Epoch {epoch} of the query {self.query} needs files that have changed: {path} "
                f"{'is missing' if is_gone else 'was replaced'}{others}. Nothing of the epoch is published. Restore "
                "the files with their modification times (touch -d TIME FILE), and start the query again. An empty "
                "file with that name and time discards its messages. Or abandon the epoch (consistent batches "
                f"--abandon {self.batch_id(epoch)}), and give query and checkpoint new names, to handle the present "
                "files."
            )

    def find(self, rounds: Rounds, epoch: int, planned: Planned) -> BatchRecord | None:
        """Return the record of an epoch, or `None` for a new one. Raises `BatchRefusedError` if its input changed."""
        found, now = rounds.find(self.batch_id(epoch)), self.what(epoch, planned)
        if found is None and not self._follows:
            self._check_follows(rounds, epoch, planned)
            self._follows = True
        if found is not None and not found.input.startswith(f"{now}; "):
            raise BatchRefusedError(
                f"Epoch {epoch} of the query {self.query} has different content than before: its checkpoint "
                f"{self.checkpoint.url} was deleted, restored from a backup, or belongs to another query. "
                f"{WHAT_TO_DO} The ledger has: {found.input}. Now it is: {now}."
            )
        return found

    def _check_follows(self, rounds: Rounds, epoch: int, planned: Planned) -> None:
        us = CheckpointOwner(self.query, connect(rounds.place.store).url, self.named or rounds.place.table)
        owner = self._owner()
        if epoch:
            before = rounds.find(self.batch_id(epoch - 1))
            if before is None:
                # If the table is not new, the epoch was pruned.
                if owner != us or rounds.connection.run(rounds.ledger.algorithm()) is None:
                    raise self._not_ours(f"has epochs that are not in the table {us.table}", epoch)
            elif f"checkpoint {planned.checkpoint} " not in before.input:
                raise self._not_ours("is not the one of the previous epoch", epoch)
        if owner != us:
            self.checkpoint.claim(us)

    def _owner(self) -> CheckpointOwner | None:
        owner = self.checkpoint.owner()
        if owner is None:
            return None
        if owner.query != self.query:
            raise self._not_ours(f"belongs to the query {owner.query}")
        return owner._replace(store=portable_url(owner.store))  # the recorded path may be relative

    def _not_ours(self, why: str, epoch: int | None = None) -> BatchRefusedError:
        where = "" if epoch is None else f" with epoch {epoch}"
        return BatchRefusedError(
            f"The query {self.query} cannot continue{where}: its checkpoint {self.checkpoint.url} {why}. {WHAT_TO_DO}"
        )


_MERGED = "_batch-merged"


@dataclass
class EpochPlaces:
    """The folders of the outcomes of a query's epochs, in the output folder `OUT`.

    A micro-batch writes to `OUT/_epochs`, which readers ignore. After publication, its folder is moved to `OUT`
    atomically. With `compact_after`, that many epochs wait in the hidden folder, and are merged into
    `OUT/batch_id=QUERY-FIRST..LAST`. Nothing in `OUT` ever changes, so readers see each row exactly once.
    """

    out: str
    query: str
    compact_after: int = 1

    def __post_init__(self) -> None:
        self._moves_whole = open_folder(self.out).moves_whole
        self._is_tidy = False
        if self.compact_after > 1 and not self._moves_whole:
            raise UsageError(
                f"Epochs can only be compacted where folders move atomically, unlike in the file system of {self.out}: "
                "omit --compact-after."
            )

    @property
    def working(self) -> str:
        """The folder of running micro-batches: a hidden one, or the output folder if folders cannot be moved."""
        return within(self.out, HIDDEN_EPOCHS) if self._moves_whole else self.out

    def check_unused(self, epoch: int) -> None:
        """Raise `BatchRefusedError` if the output folder has outcomes of an epoch that is not in the ledger."""
        batch_id = f"{self.query}-{epoch}"
        folders = [within(folder, f"batch_id={batch_id}") for folder in {self.out, self.working}]
        if self._is_merged(epoch) or any(open_folder(folder).names() for folder in folders):
            raise BatchRefusedError(
                f"{self.out} holds outcomes of epoch {epoch} of the query {self.query}, which is not in the ledger: it "
                f"is in another store, or was pruned. Nothing was handled. Give query and checkpoint new names: "
                f"messages that were handled before are then duplicates, and change nothing."
            )

    def place_of(self, epoch: int) -> str | None:
        """Return the folder of an epoch's outcomes, or `None` if the outcomes were merged."""
        if self._folder().sub(f"batch_id={self.query}-{epoch}").exists():
            return self.working
        return None if self._is_merged(epoch) else self.out

    def show(self, epoch: int) -> None:
        """If `compact_after` published epochs up to this one are waiting, move their outcomes to the output folder."""
        self.show_all(lambda each: each <= epoch, self.compact_after)

    def show_all(self, is_published: Callable[[int], bool], fewest: int = 1) -> None:
        """If at least `fewest` published epochs are waiting to be moved, move their outcomes to the output folder."""
        if not self._moves_whole:
            return
        self._tidy_once()
        waiting = [each for each in self._waiting() if is_published(each[0])]
        if len(waiting) < fewest:
            return
        out, (first, folder), (last, _) = open_folder(self.out), waiting[0], waiting[-1]
        if len(waiting) == 1:
            _move(folder, out.sub(folder.name))
            out.flush()
            return
        merged = self._merged([each for _, each in waiting])
        _move(merged, out.sub(f"batch_id={self.query}-{first}..{last}"))
        out.flush()  # before anything is deleted: a power cut may undo the move
        for _, each in waiting:
            each.delete()

    def _merged(self, waiting: Sequence[Folder]) -> Folder:
        made = self._folder().sub(f"_merging-{self.query}-{uuid4().hex}")
        for name in sorted({name for each in waiting for name in each.names() if name[0] != "_"}):
            folder = made.sub(name)
            folder.create()
            file = OutcomeFileWriter(folder, ())
            file.open()
            for source in (each.sub(name) for each in waiting):
                for part in sorted(each for each in source.names() if each.endswith(SUFFIX)):
                    with source.read(part) as opened:
                        for batch in parquet.ParquetFile(opened).iter_batches():
                            file.add(batch.cast(ARROW_OUTCOME))
            file.close()
            folder.touch(_MERGED)
            folder.flush()
        made.flush()
        return made

    def _tidy_once(self) -> None:
        """Delete leftovers of a crashed driver: unfinished merges, and epochs that the output folder already has."""
        if self._is_tidy:
            return
        self._is_tidy = True
        for epoch, folder in self._waiting():
            if self._is_merged(epoch):
                folder.delete()
        left = re.compile(rf"_merging-{re.escape(self.query)}-[0-9a-f]{{32}}")
        for name in filter(left.fullmatch, self._folder().names()):
            self._folder().sub(name).delete()

    def _waiting(self) -> list[tuple[int, Folder]]:
        pattern = re.compile(rf"batch_id={re.escape(self.query)}-(\d+)")
        folder = self._folder()
        found = ((pattern.fullmatch(name), folder.sub(name)) for name in folder.names())
        return sorted(((int(match[1]), each) for match, each in found if match), key=lambda each: each[0])

    def _is_merged(self, epoch: int) -> bool:
        return any(epoch in span for span in self._merged_before)

    @cached_property
    def _merged_before(self) -> Sequence[range]:
        pattern = re.compile(rf"batch_id={re.escape(self.query)}-(\d+)\.\.(\d+)")
        matches = filter(None, map(pattern.fullmatch, open_folder(self.out).names()))
        return [range(int(match[1]), int(match[2]) + 1) for match in matches]

    def _folder(self) -> Folder:
        return open_folder(self.working)


def _move(folder: Folder, target: Folder) -> None:
    """Move a folder, unless another driver of the same epoch has already moved it."""
    try:
        folder.move_to(target)
    except OSError:
        if not target.exists():
            raise
        with suppress(OSError):
            folder.delete()


_START_AGAIN = "start the query again"

PublishEpoch = Callable[[SparkSession, str, str], object]
"""Publishes the unpublished outputs of a batch: session, batch id, and folder of the outcomes."""

AVAILABLE_NOW = "available-now"

Trigger = timedelta | Literal["available-now"] | None
"""Start micro-batches at this interval, stop once all input is handled, or run them continuously."""

_LOOK_EVERY_SECONDS = 0.2


def run_stream(
    df: DataFrame,
    app: App,
    *,
    store: str,
    table: str,
    out: str,
    query: str,
    checkpoint: str,
    trigger: Trigger = None,
    compact_after: int = 1,
    publish: str | PublishTo | None = None,
    **options: Any,  # noqa: ANN401 - the fields of BatchOptions
) -> StreamingQuery:
    """Start a query that runs each micro-batch of a streaming DataFrame as a batch with the id `QUERY-EPOCH`.

    `df`: has the columns of a log, see `run_batch`.
    `compact_after`: merge the outcomes of this many epochs before they appear in `out`.
    `publish`: a target to which the outputs of each epoch are sent, before its outcomes appear in `out`.
    `options`: the fields of `BatchOptions`. `trigger`: when micro-batches start, by default at once; see `Trigger`.

    Start a query again with its name and checkpoint to continue it. Handlers of the same names may have new code. Each
    micro-batch costs as much as a batch.

    Raises `UsageError` for invalid arguments or on Spark Connect, and `BatchRefusedError` for the checkpoint of another
    query. For later errors see `query.exception()`.
    """
    place, send = TablePlace(store, table).for_workers(), None
    if publish is not None:
        from runtime.spark.publishing import PublishTo  # noqa: PLC0415 - its event loop takes time to import

        to = PublishTo(publish) if isinstance(publish, str) else publish
        to.check()
        send = partial(to.publish, place)
    chosen = given(BatchOptions, options)
    return Stream(app, place, out, query, checkpoint, compact_after, chosen, publish=send).start(df, trigger)


@dataclass
class Stream:
    """A query that runs its micro-batches as batches of one app on one table."""

    app: App
    place: TablePlace
    out: str
    query: str
    checkpoint: str
    compact_after: int = 1
    options: BatchOptions = field(default_factory=BatchOptions)
    done: Callable[[BatchRecord], None] = lambda _: None  # called after each epoch
    publish: PublishEpoch | None = None  # called for each committed epoch, again if Spark repeats it
    failure: Exception | None = field(default=None, init=False)  # stopped the query; Spark only has its text
    _is_prepared: bool = field(default=False, init=False)
    _partitions: int = field(default=0, init=False)

    def __post_init__(self) -> None:
        check_app(self.app)
        check_id(f"{self.query}-{2**63 - 1}")  # with the largest epoch
        if self.compact_after < 1:
            raise UsageError(f"compact_after must be at least 1, not {self.compact_after}.")
        if self.options.keep_large is not None:
            raise UsageError("A stream keeps only a note of a message that is too large: omit keep_large.")
        self.place = self.place.for_workers()
        self.admission = Admission(self.query, Checkpoint(absolute_folder(self.checkpoint)))
        self.places = EpochPlaces(absolute_folder(self.out), self.query, self.compact_after)

    def start(self, df: DataFrame, trigger: Trigger = None) -> StreamingQuery:
        """Start the query. Raises `UsageError` if it cannot start or continue, and `LogError` for wrong columns."""
        spark = df.sparkSession
        if session.is_connect(spark):
            raise UsageError(
                "Micro-batches must run in this process, but Spark Connect would run them on its server: use a "
                "session of this process, such as that of --master or spark-submit."
            )
        if not df.isStreaming:
            raise UsageError(
                "This DataFrame is not a stream: make one with spark.readStream, or run it as a batch."
            )
        when = _triggered(trigger)
        named, other = self.place.table, self.options.other_table
        table, connection = open_current(self.place.store, named, other, spark=spark)
        self.place = TablePlace(self.place.store, table)
        find = Ledger(connection.table, self.options.clock).find
        us = CheckpointOwner(self.query, connection.store.url, named)
        self.admission.named = named
        self.admission.check_start(us, lambda batch_id: connection.run(find(batch_id)))
        with session.job_settings(spark):  # the query copies them
            log = normalise(df, self.options.source, self.options.limits)
            types = self.options.types_of(self.app)
            routed = find_routes(log, self.app, types)
            checkpoint = self.admission.checkpoint.url
            writer = routed.writeStream.queryName(self.query).option("checkpointLocation", checkpoint)
            writer = writer.foreachBatch(self)
            if when:
                writer = writer.trigger(**when)
            return RunningStream(writer.start(), self.show_rest if trigger == AVAILABLE_NOW else None)

    def run(self, df: DataFrame, trigger: Trigger = None) -> None:
        """Run the query until it ends, or until Ctrl-C. Raises the error that stopped the query, if any."""
        query = self.start(df, trigger)
        try:
            with session.failing_as(BatchFailedError, f"Nothing is lost: {_START_AGAIN}."):
                while query.isActive:  # Ctrl-C interrupts a sleep, but not a call into Java
                    time.sleep(_LOOK_EVERY_SECONDS)
        finally:
            with session.unless_gone():
                query.stop()
        if self.failure is not None:
            raise self.failure
        failure = query.exception()
        if failure is not None:
            raise BatchFailedError(f"The query {self.query} was stopped: {session.explain(failure)}")

    def __call__(self, messages: DataFrame, epoch: int) -> None:
        # Spark calls this for each micro-batch.
        try:
            self._run(messages, epoch)
        except Exception as error:
            self.failure = error
            raise

    def show_rest(self, places: EpochPlaces | None = None, end: float = math.inf) -> None:
        """Move waiting published epochs before `end` to their output folder. `places`: by default, `self.places`."""
        connection = self._open()
        find = Ledger(connection.table, self.options.clock).find

        def is_published(epoch: int) -> bool:
            found = connection.run(find(self.admission.batch_id(epoch))) if epoch < end else None
            # A batch that is not in the ledger was published and pruned.
            return epoch < end and (found is None or found.status is BatchStatus.PUBLISHED)

        (places or self.places).show_all(is_published)

    def _open(self, spark: SparkSession | None = None) -> Connection:
        return open_table(self.place.store, self.place.table, self.options.other_table, spark=spark)

    def _run(self, messages: DataFrame, epoch: int) -> None:
        rounds = self._rounds(messages)
        self._prepare_once(rounds, epoch)
        planned = self.admission.checkpoint.planned(epoch)
        record = self.admission.find(rounds, epoch, planned)
        if record is None:
            self.places.check_unused(epoch)
        elif record.status is BatchStatus.ABANDONED:
            self.show_rest()  # no later epoch will
        check = partial(self.admission.check_files, epoch, planned)
        if record is None or not (record.is_finished or record.rounds):
            check()
        if record is None or record.status is not BatchStatus.PUBLISHED:
            begun = rounds.enter(self.admission.batch_id(epoch), self.admission.what(epoch, planned))
            job = replace(rounds.job(begun), types=self.options.types_of(self.app))
            work = Work(group(messages, rounds.partitions), job.fold, is_planned_once=True, check=check)
            record = rounds.end(begun, work)
        places = self.places
        if record.out != places.working:  # published before this start, when the query had another folder
            places = EpochPlaces(record.shown_in, self.query)
        if self.publish is not None and (place := places.place_of(epoch)) is not None:
            self.publish(messages.sparkSession, record.batch_id, place)
        places.show(epoch)
        self.done(record)

    def _prepare_once(self, rounds: Rounds, epoch: int) -> None:
        """Before the first epoch after a start, run the checks that all epochs share."""
        if self._is_prepared:
            return
        session.keep_job_settings(rounds.spark)
        rounds.check_table()
        rounds.check_place()
        # Before this start, the query may have had another folder, where epochs still wait to be merged.
        before = rounds.find(self.admission.batch_id(epoch - 1)) if epoch else None
        if before is not None and before.shown_in not in (before.out, self.places.out):
            self.show_rest(EpochPlaces(before.shown_in, self.query), epoch)
        self._is_prepared = True

    def _rounds(self, messages: DataFrame) -> Rounds:
        spark, working = messages.sparkSession, self.places.working
        # One partition per core: in a small micro-batch, a task costs more than its messages.
        self._partitions = self._partitions or self.options.partitions or session.cores_of(spark)
        options = replace(self.options, partitions=self._partitions)
        return Rounds(spark, self.app, self.place, working, options, self._open(), again=_START_AGAIN)


class RunningStream(StreamingQuery):
    """Spark's query, wrapped to call `at_end` before it reports that the query has ended."""

    def __init__(self, query: StreamingQuery, at_end: Callable[[], None] | None) -> None:
        vars(self).update(vars(query))
        self._at_end = at_end
        self._ending = Lock()

    @property
    def isActive(self) -> bool:  # noqa: N802 - the name is Spark's
        return super().isActive or self._end()

    def awaitTermination(self, timeout: int | None = None) -> bool | None:  # noqa: N802 - the name is Spark's
        """Wait for the query to end, at most `timeout` seconds. Return whether it has, or None if `timeout` is None."""
        has_ended = super().awaitTermination(timeout)
        if has_ended is not False:
            self._end()
        return has_ended

    def _end(self) -> bool:
        with self._ending:
            at_end, self._at_end = self._at_end, None
            if at_end is not None and self.exception() is None:
                at_end()
        return False


def _triggered(trigger: Trigger) -> Mapping[str, Any]:
    if trigger is None:
        return {}
    if trigger == AVAILABLE_NOW:
        return {"availableNow": True}
    if isinstance(trigger, timedelta) and trigger >= timedelta():
        return {"processingTime": f"{trigger / timedelta(milliseconds=1):.0f} milliseconds"}
    raise UsageError(f'A trigger must be None, a timedelta, or "{AVAILABLE_NOW}", not {trigger!r}.')


_ANY_AGE = "36500d"
"""Spark silently ignores a file that is older than the newest file by more than this age, by default a week."""

SourceFormat = Literal["json", "parquet", "outcomes"]


def open_source(
    spark: SparkSession,
    folder: str,
    format_: SourceFormat | None = None,
    max_files: int | None = None,
    say: Step = warnings.warn,
    *,
    decoding: Decoding = AS_JSON,
) -> DataFrame:
    """Return the messages that arrive in a folder and its subfolders, or in Kafka topics, as a streaming DataFrame.

    `folder`: the folder, or the Kafka URL of the topics. `format_`: JSON lines, Parquet (the default), or the outcomes
    of another stream. `max_files`: the maximum number of files per micro-batch (None: no limit). For Parquet, the
    folder must already contain a file, which determines the types of the columns. Later files may add optional columns.
    Raises `LogError` if the files or topics cannot be read.
    """
    if read.is_kafka(folder):
        from runtime.spark.logs.kafka import stream_of  # noqa: PLC0415 - of an extra

        return stream_of(spark, folder, decoding)
    path, files = folder, None
    if read.is_on_disk(folder, session.master_of(spark)):
        as_ = "json" if format_ == "json" else "parquet"
        files = read.find_on_disk([folder], as_, may_be_empty=format_ != "parquet")
        path = read.literal(files.paths[0])
        if files.skipped and format_ != "outcomes":
            say(f"Reading the log without {files.skipped}")
    reader = spark.readStream.option("maxFileAge", _ANY_AGE)
    if max_files is not None:
        reader = reader.option("maxFilesPerTrigger", max_files)
    where = f"The folder {folder} cannot be read as a stream of {format_} files"
    with session.failing_as(lambda sentence: LogError(f"{where}: {sentence}")):
        if format_ == "outcomes":
            return published_outputs(reader.schema(OUTCOMES).parquet(path))
        if format_ == "json":
            if files is not None and any(map(os.path.getsize, files.files)):
                read.open_log(spark, folder, format_)  # checks the first lines
            return read.lines_of(reader.option("recursiveFileLookup", True).text(path))
        found = read.open_log(spark, folder, format_)
        is_partitioned = found.files is not None and found.files.is_partitioned
        schema = read.with_later_columns(found.rows.schema)
        return reader.option("recursiveFileLookup", not is_partitioned).schema(schema).parquet(path)

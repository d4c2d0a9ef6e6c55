"""Reads, for each page, a bounded part of a table and of outcome files of any size."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import aclosing
from itertools import islice
from operator import itemgetter
from typing import Any, NamedTuple

from eventstore import KeyRange, RecordedEvent, Row, Stream, Table
from eventstore.header import HEADER, HEADER_NAMES, is_header, is_tombstone, versions_of
from eventstore.stream import read_headers, read_range
from runtime.algorithms.outbox.entity import ENTITY
from runtime.clock import moment
from runtime.dead_letters import PARTITION as TABLE_LETTERS
from runtime.dead_letters import FoundLetter, StreamLetters, found_letter, letters_of_stream
from runtime.errors import UsageError
from runtime.messages.envelope import canonical, id_key
from runtime.messages.outcome import Reason, Status
from runtime.outcome_files import OutcomeFiles, OutcomeFilter
from runtime.outcome_files import Row as OutcomeRow
from runtime.publishing import records as publishing
from runtime.versions.head import HEAD_PROPERTIES, Head, is_of_state, read_head
from runtime.versions.properties import damaged_row, number, one_of_many, reading_row
from runtime.versions.run import (
    DATA_PROPERTIES,
    ID_PROPERTIES,
    INDEX_PROPERTIES,
    Run,
    Version,
    read_index,
    read_run,
)
from runtime.versions.stream import find_versions, stream_key, stream_partition

ROWS = 50
"""The number of rows of a page."""

WINDOW = 2_000
"""The number of objects that are examined for one page, in two requests."""

_HANDLERS = 12
_LETTERS = 200
_PHASES = ("streams", "entities", "table")
_NO_TAIL = [name for name in HEAD_PROPERTIES if not name.startswith("Tail")]
_COUNTED = [name for name in _NO_TAIL if name != "State"]

Found = dict[str, Any]


def _described(row: Row, *, with_size: bool) -> Found | None:
    """Describe an object from its header without the tail. Return None if the row is not such a header."""
    if (
        "-" not in row.partition_key
        or is_tombstone(row)
        or not (is_header(row) and is_of_state(row.properties))
    ):
        return None
    handler, _, business_id = row.partition_key.partition("-")
    with reading_row("The header of the stream", row):
        # The tail is not read: it would be most of the bytes of a page.
        head = read_head(row.properties)
        version, first = versions_of(row)
    size = None if head.state is None and head.versions else len(head.state or b"")
    return {
        "handler": handler,
        "business_id": business_id,
        "versions": head.versions,
        "kept_from": head.kept_from,
        "runs": version - first + 1,
        "newest": moment(head.last_now or None),
        "horizon": moment(head.horizon),
        "letters": head.waiting.count,
        "forgotten": head.tombstone is not None,
        **({"state_bytes": size} if with_size else {}),
    }


ORDERS: dict[str, Callable[[Found], Any] | None] = {
    "id": None,
    "versions": itemgetter("versions"),
    "state size": lambda found: 2**20 if found["state_bytes"] is None else found["state_bytes"],
    "waiting letters": itemgetter("letters"),
    "newest": lambda found: found["newest"].timestamp() if found["newest"] else 0,
}


async def objects(table: Table, handler: str, prefix: str, after: str, order: str) -> Found:
    """List objects by id or, in another order, the first of the next 2,000. Costs one request per 1,000 headers."""
    keys = KeyRange(stream_key(handler, prefix) if handler else "", first=after)
    rank, listed, seen, last = ORDERS[order], list[Found](), 0, None
    async with aclosing(read_headers(table, keys, [*HEADER_NAMES, *_NO_TAIL], damaged_row(table))) as rows:  # type: ignore[type-var]
        async for row in rows:
            if row.partition_key == after:
                continue
            seen += 1
            with one_of_many(table, row.partition_key):
                found = _described(row, with_size=True)
                if found is not None and found["business_id"].startswith(prefix):
                    listed.append(found)
            if seen == WINDOW or (rank is None and len(listed) == ROWS):
                last = row.partition_key
                break
    if rank is not None:
        listed = sorted(listed, key=rank, reverse=True)[:ROWS]
    return {"objects": listed, "examined": seen, "next": last}


async def handlers(table: Table) -> list[Found]:
    """Sum up the first objects of each handler. Costs one request per handler (at most 12), and one more."""
    sums: dict[str, Found] = {}
    first = ""
    while len(sums) < _HANDLERS:
        page = await table.scan(HEADER, first, select=[*HEADER_NAMES, *_COUNTED])
        for row in page.rows:
            with one_of_many(table, row.partition_key):
                found = _described(row, with_size=False)
                if found is not None:
                    _add(sums, found)
        if page.continuation is None:
            break
        last = page.rows[-1].partition_key.partition("-")[0]
        if last in sums:
            sums[last]["is_sample"] = True
        first = f"{last}."  # sorts after all keys of the handler
    return list(sums.values())


def _add(sums: dict[str, Found], found: Found) -> None:
    name = found["handler"]
    new = dict.fromkeys(("objects", "versions", "letters", "cut"), 0)
    total = sums.setdefault(
        name, {"handler": name, **new, "horizon": None, "newest": None, "is_sample": False}
    )
    total["objects"] += 1
    total["versions"] += found["versions"]
    total["letters"] += found["letters"]
    total["cut"] += found["kept_from"] > 1
    for each in ("horizon", "newest"):
        total[each] = max(filter(None, (total[each], found[each])), default=None)


class OpenedObject(NamedTuple):
    """The stream of a business object, with its decoded head."""

    handler: str
    business_id: str
    stream: Stream
    head: Head


async def open_object(table: Table, handler: str, business_id: str) -> OpenedObject | None:
    """Read the header of a stream by business id, as given or canonical. Costs one or two requests."""
    for spelling in dict.fromkeys([business_id, canonical(business_id)]):
        stream = await Stream.try_open(stream_partition(table, handler, spelling))
        if stream is not None and is_of_state(stream.properties or {}):
            return OpenedObject(handler, spelling, stream, read_head(stream.properties or {}))
    return None


_WHOLE = [*INDEX_PROPERTIES, *ID_PROPERTIES, *DATA_PROPERTIES]


async def _event(found: OpenedObject, event: int, select: Sequence[str] = _WHOLE) -> RecordedEvent:
    (read,) = await Stream.read_events(found.stream, event, event, select=select)
    return read


async def _last_event(
    found: OpenedObject, select: Sequence[str], begins: Callable[[RecordedEvent], bool]
) -> int:
    """Return the last event for which `begins` is True, by binary search: ten requests for 1,000 events."""
    low, high = found.stream.first_version - 1, found.stream.version
    while low < high:
        middle = (low + high + 1) // 2
        if begins(await _event(found, middle, select)):
            low = middle
        else:
            high = middle - 1
    return low


async def versions_between(found: OpenedObject, first: int, last: int) -> list[Version]:
    """Read some stored versions: a binary search for the event with the last one, then one request per event."""
    listed: list[Version] = []

    def add(run: Run) -> int:
        """Prepend the versions of a run, and return the number of the version before them."""
        versions, numbers = (
            run.all(),
            range(max(first, run.first), (listed[0].number if listed else last + 1)),
        )
        listed[:0] = [versions[number - run.first] for number in numbers]
        return run.first - 1

    tail = found.head.tail
    end = add(tail.run()) if tail is not None and last >= tail.first else last
    if end >= first:
        event = await _last_event(found, INDEX_PROPERTIES, lambda event: read_index(event).first <= end)
        while end >= first and event >= found.stream.first_version:
            end, event = add(read_run(await _event(found, event))), event - 1
    return listed


async def version_as_of(found: OpenedObject, time: int) -> int | None:
    """Return the number of the last stored version made up to a time (microseconds since 1970 UTC), if any."""
    tail = found.head.tail
    run = tail.run() if tail is not None else None
    if run is None or run.versions.nows[0] > time:
        event = await _last_event(found, _WHOLE, lambda event: read_run(event).versions.nows[0] <= time)
        if event < found.stream.first_version:
            return None
        run = read_run(await _event(found, event))
    return run.first + bisect_right(run.versions.nows, time) - 1


async def version_of(table: Table, handler: str, business_id: str, message_id: str) -> Version | None:
    """Return the version that a message made in an object. Costs one query, and one for the version's event."""
    key = id_key(canonical(message_id))
    history = await find_versions(table, handler, business_id, {key})
    return None if history is None else history.find(key)


class LetterPage(NamedTuple):
    """Waiting dead letters, the position after them (None at the end), and the number of examined objects."""

    letters: list[FoundLetter]
    next: str | None
    examined: int


async def letters(table: Table, handler: str, after: str) -> LetterPage:
    """Read waiting dead letters: of streams, then of entities, then of the table.

    Examines up to 2,000 objects, in three requests, and reads up to 200 letters, in one request per object.
    """
    found: list[FoundLetter] = []
    examined = 0
    kind, _, position = after.partition(":")
    if kind not in ("", *_PHASES):
        raise UsageError("This position among the dead letters does not exist: start from the first page.")
    phases = (("streams", HEADER), ("entities", ENTITY))
    for name, row_key in phases[_PHASES.index(kind or "streams") :]:
        keys = KeyRange(stream_key(handler) if handler else "", first=position if name == kind else "")
        select = (*HEADER_NAMES, "Letters", "LettersBeyondLimit")
        async with aclosing(read_range(table, row_key, keys, select, damaged_row(table))) as rows:  # type: ignore[type-var]
            async for row in rows:
                key = row.partition_key
                if name == kind and key == position:
                    continue
                examined += 1
                with one_of_many(table, key), reading_row("The number of letters", row):
                    waiting = number(row.properties, "Letters", 0)
                    if waiting and "-" in key:
                        found += await letters_of_stream(table, StreamLetters(key, waiting, 0))
                if examined == WINDOW or len(found) >= _LETTERS:
                    return LetterPage(found, f"{name}:{key}", examined)
    first = f"{position}!" if kind == "table" else "!"
    page = await table.query(TABLE_LETTERS, first, "~")
    for row in page.rows[:_LETTERS]:
        with one_of_many(table, TABLE_LETTERS):
            letter = found_letter(row)
            if handler in ("", letter.handler):
                found.append(letter)
    rest = len(page.rows) > _LETTERS or page.continuation is not None
    return LetterPage(found, f"table:{page.rows[:_LETTERS][-1].row_key}" if rest else None, examined)


async def letters_of_object(table: Table, found: OpenedObject) -> Sequence[FoundLetter]:
    """Return the waiting dead letters of an object. Costs one request."""
    return await letters_of_stream(table, StreamLetters(stream_key(found.handler, found.business_id), 1, 0))


async def one_letter(table: Table, handler: str, business_id: str, name: str) -> FoundLetter | None:
    """Return a waiting dead letter, of a stream by number or of the table by row key. Costs one request."""
    if not business_id:
        row = await table.get(TABLE_LETTERS, name)
        return None if row is None else found_letter(row)
    stream = StreamLetters(stream_key(handler, business_id), 1, 0)
    return next((each for each in await letters_of_stream(table, stream) if each.name == name), None)


async def publications(
    table: Table, after: str, batch_id: str | None = None
) -> tuple[list[Found], str | None]:
    """List up to 50 publications of the table or a batch, with their slices. Costs one request, two more for each."""
    prefix = f"{publishing.PUBLICATION}{batch_id}-" if batch_id else publishing.PUBLICATION
    first = f"{publishing.PUBLICATION}{after}!" if after else prefix
    listed: list[Found] = []
    page = await table.query(publishing.PARTITION, first, prefix + "\U0010ffff")
    some = [publishing.read_publication(row) for row in page.rows[:ROWS]]
    for each in some:
        if batch_id in (None, each.batch_id):
            slices = [
                publishing.read_slice(row) for row in await _first_page(table, publishing.SLICE, each.key)
            ]
            records = [
                publishing.read_record(row) for row in await _first_page(table, publishing.RECORD, each.key)
            ]
            listed.append(
                {
                    "key": each.key,
                    "batch_id": each.batch_id,
                    "target": each.target,
                    "started_at": each.started_at,
                    "slices": each.slices,
                    "slices_sent": sum(one.is_sent for one in slices),
                    "outputs_sent": sum(one.position for one in slices),
                    "records": [record._asdict() for record in records[:ROWS]],
                }
            )
    is_more = len(page.rows) > ROWS or page.continuation is not None
    return listed, some[-1].key if is_more else None


async def _first_page(table: Table, kind: str, key: str) -> Sequence[Row]:
    prefix = f"{kind}{key}:"
    return (await table.query(publishing.PARTITION, prefix, prefix + "\U0010ffff")).rows


# The files of outcomes are read in a thread.

BATCHES = 20
"""The number of batches that are searched for one page."""

_MOST = 3_000_000
"""The maximum number of outcomes that are searched for one page."""

_DEEPEST = 10_000  # deliveries of a batch are listed so far; `consistent outcomes` lists all

_DEPTH, _BREADTH = 3, 12  # of the graph of causes


_DAMAGED = (OSError, LookupError, TypeError, ValueError)  # what reading a damaged file raises


def _open(folder: str, batch_id: str) -> OutcomeFiles | None:
    """Open the outcomes of a batch, or return None if this machine cannot read the folder."""
    try:
        found = OutcomeFiles.find(folder, batch_id)
    except Exception:  # noqa: BLE001 - of any file system: the page shows that there is nothing
        return None
    return found if found.rounds else None


def outcomes_of_batch(folder: str, batch_id: str, chosen: Mapping[str, str | None], skip: int) -> Found:
    """Count the outcomes of a batch, and list some of those that match. Raises `UsageError`."""
    status, reason = chosen["status"], chosen["reason"]
    try:
        kept = status and Status(status), chosen["handler"], reason and Reason(reason)
    except ValueError as error:
        raise UsageError(f"{error}.") from error
    files = _open(folder, batch_id)
    skip = min(skip, _DEEPEST)
    try:
        # Of more outcomes only the first are listed: a filter would read all.
        is_small = files is not None and files.size <= _MOST
        kinds = files.counts().items() if files is not None and is_small else ()
        selected = OutcomeFiles(files.rounds if files else [], OutcomeFilter(*(kept if is_small else ())))
        rows = list(islice(selected.rows(), skip, skip + ROWS + 1))
    except _DAMAGED:
        files = None
    if files is None:
        return {"has_files": False, "kinds": [], "outcomes": [], "chosen": chosen, "next": None}
    return {
        "has_files": True,
        "kinds": [
            {"handler": handler, "status": status, "reason": reason, "count": count}
            for (handler, status, reason), count in sorted(kinds, key=lambda each: tuple(map(str, each[0])))
        ],
        "outcomes": list(map(_row, rows[:ROWS])),
        "chosen": dict(chosen) if is_small else dict.fromkeys(chosen),
        "next": skip + ROWS if len(rows) > ROWS and skip < _DEEPEST else None,
    }


def outcomes_of_message(folders: Sequence[tuple[str, str]], message_id: str) -> Found:
    """Find all outcomes of a message in some batches, and draw its causes and outputs."""
    searched, rows, budget = [], list[OutcomeRow](), _MOST
    graph: list[Found] = []
    for folder, batch_id in folders:
        files = _open(folder, batch_id)
        size = 0 if files is None else files.size
        searched.append({"batch_id": batch_id, "is_readable": files is not None and size <= budget})
        if files is not None and size <= budget:
            budget -= size
            try:
                found = list(islice(files.of_messages([message_id]), ROWS))
                graph = graph or _Graph(files, batch_id, message_id, found).nodes()
                rows += found
            except _DAMAGED:
                searched[-1]["is_readable"] = False
    return {"outcomes": list(map(_row, rows)), "graph": graph, "searched": searched}


class _Graph:
    """The causes and outputs of a message in its batch, up to three levels each way. Each level is in another round."""

    def __init__(
        self, files: OutcomeFiles, batch_id: str, message_id: str, own: Sequence[OutcomeRow]
    ) -> None:
        self._files, self._batch_id = files, batch_id
        self._nodes: dict[str, Found] = {}
        self._add(message_id, 0, "")
        first = min((row["round"] for row in own), default=files.rounds[-1].number + 1)
        self._add_causes([message_id], first - 1, -1)
        self._add_outputs(own, 1)

    def nodes(self) -> list[Found]:
        """Return the messages, or an empty list if the message has no causes and no outputs."""
        return list(self._nodes.values()) if len(self._nodes) > 1 else []

    def _add(self, id_: str, level: int, type_: str, status: str = "", cause: str | None = None) -> None:
        new = {"id": id_, "type": "", "status": "", "level": level, "causes": [], "batch": self._batch_id}
        node = self._nodes.setdefault(id_, new)
        node["type"], node["status"] = node["type"] or type_, node["status"] or status
        if cause is not None and cause not in node["causes"]:
            node["causes"].append(cause)

    def _add_causes(self, ids: Sequence[str], round_: int, level: int) -> None:
        rows = list(islice(self._files.between(0, round_).with_outputs(ids), _BREADTH))
        for row in rows:
            self._add(row["message_id"], level, row["type"], row["status"])
            for output in row["outputs"]:
                if output["message_id"] in ids:
                    self._add(output["message_id"], level + 1, output["type"], cause=row["message_id"])
        if rows and level > -_DEPTH:
            above = min(row["round"] for row in rows) - 1
            self._add_causes([row["message_id"] for row in rows], above, level - 1)

    def _add_outputs(self, rows: Sequence[OutcomeRow], level: int) -> None:
        outputs: dict[str, int] = {}
        for row in rows:
            self._add(row["message_id"], level - 1, row["type"], row["status"])
            for output in (row["outputs"] or ())[:_BREADTH]:
                self._add(output["message_id"], level, output["type"], cause=row["message_id"])
                outputs[output["message_id"]] = row["round"] + 1
        if outputs and level <= _DEPTH:
            rounds = self._files.between(min(outputs.values()), max(outputs.values()))
            self._add_outputs(list(islice(rounds.of_messages(list(outputs)[:_BREADTH]), _BREADTH)), level + 1)


def body_of(folder: str, batch_id: str, message_id: str) -> str:
    """Return the body of a message if it is an output of the same batch, otherwise ""."""
    files = _open(folder, batch_id)
    if files is not None and files.size <= _MOST:
        for row in files.with_outputs([message_id]):
            for output in row["outputs"]:
                if output["message_id"] == message_id:
                    return str(output["body"])
    return ""


def _row(row: OutcomeRow) -> Found:
    return {**row, "outputs": row["outputs"] or []}

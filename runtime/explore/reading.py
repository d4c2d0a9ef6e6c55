"""Reads the data of each page: a bounded part of the table, and of outcome files of any size."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing
from itertools import groupby
from math import inf
from operator import itemgetter
from typing import Any, NamedTuple

import pyarrow.compute
import pyarrow.parquet  # noqa: F401 - takes half a second, for which no page should wait

from eventstore import KeyRange, RecordedEvent, Row, Stream, Table
from eventstore.header import HEADER, HEADER_NAMES, is_header, is_tombstone
from eventstore.stream import read_headers, read_range
from runtime.algorithms.outbox.entity import ENTITY
from runtime.clock import moment
from runtime.dead_letters import PARTITION as TABLE_LETTERS
from runtime.dead_letters import FoundLetter, StreamLetters, found_letter, letters_of_stream
from runtime.errors import UsageError
from runtime.messages.envelope import canonical, id_key
from runtime.options import without_secrets
from runtime.outcome_files import OUTPUT_ID, OutcomeFiles, OutcomeFilter, Part
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

ROWS = 50  # of a page
WINDOW = 2_000  # objects examined for one page, in two requests
_HANDLERS = 12  # of the overview
_LETTERS = 200  # of a page
_PHASES = ("streams", "entities", "table")
_NO_TAIL = [name for name in HEAD_PROPERTIES if not name.startswith("Tail")]
_COUNTED_PROPERTIES = [name for name in _NO_TAIL if name != "State"]

Found = dict[str, Any]


def _described(row: Row) -> Found | None:
    """Describe an object from its header row, without reading the tail. Return None for any other row."""
    is_object = is_header(row) and not is_tombstone(row) and is_of_state(row.properties)
    if not is_object or "-" not in row.partition_key:
        return None
    handler, _, business_id = row.partition_key.partition("-")
    with reading_row("The header of the stream", row):
        # The tail is not read: it would be most of the bytes of a page.
        head = read_head(row.properties)
    size = None if head.state is None and head.versions else len(head.state or b"")
    return {
        "handler": handler,
        "business_id": business_id,
        "versions": head.versions,
        "kept_from": head.kept_from,
        "newest": moment(head.last_now or None),
        "horizon": moment(head.horizon),
        "letters": head.waiting.count,
        "forgotten": head.tombstone is not None,
        "state_bytes": size,
    }


ORDERS: dict[str, Callable[[Found], Any] | None] = {
    "id": None,
    "versions": itemgetter("versions"),
    "state size": lambda found: 2**20 if found["state_bytes"] is None else found["state_bytes"],
    "waiting letters": itemgetter("letters"),
    "newest": lambda found: found["newest"].timestamp() if found["newest"] else 0,
}


async def objects(table: Table, handler: str, prefix: str, after: str, order: str) -> Found:
    """List a page of up to 50 objects whose id begins with `prefix`. Costs one request for every 1,000 headers.

    `order` is one of `ORDERS`. By `id`, lists the objects after the key `after`. By others, lists the 50 highest of the
    next 2,000, which the next page skips. The result's `next` is that page's `after`, or None at the end.
    """
    if order not in ORDERS:
        raise UsageError(f"There is no order {order}.")
    keys = KeyRange(stream_key(handler, prefix) if handler else "", first=after)
    rank, listed, seen, last = ORDERS[order], list[Found](), 0, None
    async with aclosing(read_headers(table, keys, [*HEADER_NAMES, *_NO_TAIL], damaged_row(table))) as rows:  # type: ignore[type-var]
        async for row in rows:
            if row.partition_key == after:
                continue
            seen += 1
            with one_of_many(table, row.partition_key):
                found = _described(row)
                if found is not None and found["business_id"].startswith(prefix):
                    listed.append(found)
            if seen == WINDOW or (rank is None and len(listed) == ROWS):
                last = row.partition_key
                break
    if rank is not None:
        listed = sorted(listed, key=rank, reverse=True)[:ROWS]
    return {"objects": listed, "examined": seen, "next": last}


async def handlers(table: Table, after: str) -> list[Found]:
    """Count up to 1,000 objects of each of the next 12 handlers after the key `after`. Costs at most 12 requests.

    `next` in each result is the key of the handler's last counted object, or None if all objects were counted.
    """
    listed: dict[str, list[Found]] = {}
    more: dict[str, str] = {}
    first = after
    while len(listed) < _HANDLERS:
        page = await table.scan(HEADER, first, select=[*HEADER_NAMES, *_COUNTED_PROPERTIES])
        for row in page.rows:
            with one_of_many(table, row.partition_key):
                found = None if row.partition_key == after else _described(row)
                if found is not None:
                    listed.setdefault(found["handler"], []).append(found)
        if page.continuation is None:
            break
        last = page.rows[-1].partition_key
        handler = last.partition("-")[0]
        more[handler] = last
        first = f"{handler}."  # sorts after all keys of the handler
    counted = []
    for handler, some in listed.items():
        counts = {name: sum(each[name] for each in some) for name in ("versions", "letters")}
        counts |= {"objects": len(some), "cut": sum(each["kept_from"] > 1 for each in some)}
        times = {name: [each[name] for each in some if each[name]] for name in ("horizon", "newest")}
        newest = {name: max(found, default=None) for name, found in times.items()}
        counted.append({"handler": handler, **counts, **newest, "next": more.get(handler)})
    return counted


async def algorithm_of_entities(table: Table) -> str | None:
    """Return the algorithm that wrote the entities of a table, or None if it has no entities. Costs one request."""
    page = await table.scan(ENTITY, select=["Algorithm"])
    return str(page.rows[0].properties.get("Algorithm")) if page.rows else None


class OpenedObject(NamedTuple):
    """The stream of a business object, with its decoded head."""

    handler: str
    business_id: str
    stream: Stream
    head: Head


async def open_object(table: Table, handler: str, business_id: str) -> OpenedObject | None:
    """Open an object by its business id, as given or in canonical form. Return None if no object has this id.

    Costs one or two requests.
    """
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
    """Return the number of the last event for which `begins` is True.

    A binary search: if `begins` is True for an event, it must be True for all earlier events. Returns the number before
    the first event if `begins` is False for all events. Costs ten requests for 1,000 events.
    """
    low, high = found.stream.first_version - 1, found.stream.version
    while low < high:
        middle = (low + high + 1) // 2
        if begins(await _event(found, middle, select)):
            low = middle
        else:
            high = middle - 1
    return low


async def versions_between(found: OpenedObject, first: int, last: int) -> list[Version]:
    """Return the versions from `first` to `last`, both included.

    Costs a binary search for the event with `last`, and one request for each event. Versions in the tail cost nothing.
    """
    listed: list[Version] = []

    def add(run: Run) -> int:
        """Prepend the versions of a run, and return the number of the version before them."""
        versions, end = run.all(), listed[0].number if listed else last + 1
        listed[:0] = [versions[number - run.first] for number in range(max(first, run.first), end)]
        return run.first - 1

    tail = found.head.tail
    end = add(tail.run()) if tail is not None and last >= tail.first else last
    if end >= first:
        event = await _last_event(found, INDEX_PROPERTIES, lambda event: read_index(event).first <= end)
        while end >= first and event >= found.stream.first_version:
            end, event = add(read_run(await _event(found, event))), event - 1
    return listed


async def version_as_of(found: OpenedObject, time: int) -> int | None:
    """Return the number of the last version up to a time, in microseconds since 1970 UTC, or None if all are later."""
    tail = found.head.tail
    run = tail.run() if tail is not None else None
    if run is None or run.versions.nows[0] > time:
        event = await _last_event(found, _WHOLE, lambda event: read_run(event).versions.nows[0] <= time)
        if event < found.stream.first_version:
            return None
        run = read_run(await _event(found, event))
    return run.first + bisect_right(run.versions.nows, time) - 1


async def version_of(table: Table, handler: str, business_id: str, message_id: str) -> Version | None:
    """Return the version that a message made in an object, or None if there is no such version. Costs two queries."""
    key = id_key(canonical(message_id))
    history = await find_versions(table, handler, business_id, {key})
    return None if history is None else history.find(key)


class LetterPage(NamedTuple):
    """Waiting dead letters, the `after` of the next page, if there is one, and the number of examined objects."""

    letters: list[FoundLetter]
    next: str | None
    examined: int


async def letters(table: Table, handler: str, after: str) -> LetterPage:
    """List a page of waiting dead letters: those of streams, then of entities, then those without an object.

    `after` is the `next` of the previous page, or "" for the first page. Stops at 200 letters or 2,000 objects. Costs
    three requests for the objects, one for each with dead letters, and two for letters without an object.
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
    # Letters may be large: the keys of a few are read before their bodies.
    keys_only = await table.query(TABLE_LETTERS, first, "~", select=["Handler"])
    keys_of_page = [row.row_key for row in keys_only.rows[:ROWS]]
    if keys_of_page:
        for row in (await table.query(TABLE_LETTERS, keys_of_page[0], keys_of_page[-1])).rows:
            with one_of_many(table, TABLE_LETTERS):
                letter = found_letter(row)
                if handler in ("", letter.handler):
                    found.append(letter)
    is_more = len(keys_only.rows) > ROWS
    return LetterPage(found, f"table:{keys_of_page[-1]}" if is_more else None, examined)


async def letters_of_object(table: Table, found: OpenedObject) -> Sequence[FoundLetter]:
    """Return the waiting dead letters of an object. Costs one request."""
    return await letters_of_stream(table, StreamLetters(stream_key(found.handler, found.business_id), 1, 0))


async def waiting_letters(table: Table, names: Iterable[Sequence[str]]) -> list[FoundLetter]:
    """Return the named dead letters that are still waiting.

    A name consists of handler, business id (empty for a letter without an object), and number or row key. Costs one
    request for each stream, and one for each letter without an object.
    """
    found, streams = list[FoundLetter](), dict[str, set[str]]()
    for handler, business_id, name in names:
        if business_id:
            streams.setdefault(stream_key(handler, business_id), set()).add(name)
        elif (row := await table.get(TABLE_LETTERS, name)) is not None:
            found.append(found_letter(row))
    for key, wanted in streams.items():
        waiting = await letters_of_stream(table, StreamLetters(key, 1, 0))
        found += [each for each in waiting if each.name in wanted]
    return found


async def publications(table: Table, after: str, batch_id: str = "") -> tuple[list[Found], str | None]:
    """List up to 50 publications of the table, or of a batch. Also return the next `after`, or None on the last page.

    `after` is the key of the last publication on the previous page, or "" for the first page. Costs one request, and
    two more for each publication.
    """
    prefix = f"{publishing.PUBLICATION}{batch_id}-" if batch_id else publishing.PUBLICATION
    first = f"{publishing.PUBLICATION}{after}!" if after else prefix
    listed: list[Found] = []
    page = await table.query(publishing.PARTITION, first, prefix + "\U0010ffff")
    some = [publishing.read_publication(row) for row in page.rows[:ROWS]]
    for each in some:
        if batch_id in ("", each.batch_id):
            slices = [*map(publishing.read_slice, await _first_page(table, publishing.SLICE, each.key))]
            records = [*map(publishing.read_record, await _first_page(table, publishing.RECORD, each.key))]
            listed.append(
                {
                    "key": each.key,
                    "batch_id": each.batch_id,
                    "target": without_secrets(each.target),
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


# Outcomes are read in threads.

BATCHES = 20  # searched for one page
_MOST = 1_200_000  # ids searched for a message, for its causes, and for its outputs
_PER_PART = 4_000  # ids that could be searched in the time of opening a part
_COUNTED = 1_000_000  # a larger batch is not counted
_PARTS = 60  # of a batch, filtered for one page
_DEPTH, _BREADTH, _NODES = 3, 12, 60  # of the graph
_DRAWN = ("message_id", "type", "status", OUTPUT_ID, "outputs.list.element.type")
_THREADS = ThreadPoolExecutor(4, "explore")
_DAMAGED = (OSError, LookupError, TypeError, ValueError)  # what reading a damaged file raises


class Place(NamedTuple):
    """The id of a batch, and the folder with the outcomes of the batch."""

    batch_id: str
    folder: str


class _Search:
    """Opens the outcomes of each batch on first use. `batches` are ordered from newest to oldest."""

    def __init__(self, batches: Sequence[Place]) -> None:
        self.batches = batches
        self._opened: dict[int, list[Part]] = {}

    def parts(self, position: int) -> list[Part]:
        """Return the parts of the batch at a position in `batches`, or an empty list if the files cannot be read."""
        if position not in self._opened:
            batch_id, folder = self.batches[position]
            try:
                self._opened[position] = OutcomeFiles.find(folder, batch_id).parts()
            except Exception:  # noqa: BLE001 - of any file system: the page shows that there is nothing
                self._opened[position] = []
        return self._opened[position]

    def rounds(self, at: tuple[int, float], *, back: bool) -> Iterator[list[Part]]:
        """Yield the parts of each round before or after `at`, which is a position in `batches` and a round.

        If `back` is set, yield older rounds from newest to oldest, otherwise newer rounds from oldest to newest.
        Continues in the older or newer batches.
        """
        position, round_ = at
        for other in range(position, len(self.batches)) if back else range(position, -1, -1):
            rounds = [list(parts) for _, parts in groupby(self.parts(other), lambda part: part.round.number)]
            for parts in reversed(rounds) if back else rounds:
                number_ = parts[0].round.number
                if other != position or (number_ < round_ if back else number_ > round_):
                    yield parts


def outcomes_of_batch(place: Place, chosen: Mapping[str, Any], after: str) -> Found:
    """Count the outcomes of a batch, and list a page of those that match `chosen`, the fields of an `OutcomeFilter`.

    `after` is the `next` of the previous page, in the form PART.OUTCOME, or empty for the first page. Raises
    `UsageError` if it has another form. Counts more than 1,000,000 deliveries only by round, not by status.
    """
    if (at := re.fullmatch(r"(\d{1,9})\.(\d{1,9})", after or "0.0")) is None:
        raise UsageError("The outcomes have no such position: go back to the first page.")
    part, row = map(int, at.groups())
    parts, rows, kinds, rounds = _Search([place]).parts(0), list[OutcomeRow](), list[Found](), Counter[int]()
    for each in parts:
        rounds[each.round.number] += each.ids("message_id")
    last = min(part + _PARTS, len(parts))
    try:
        if rounds.total() <= _COUNTED:
            of_round = {each.round.number: each.round for each in parts}
            counts = OutcomeFiles([*of_round.values()], OutcomeFilter()).counts()
            kinds = [
                {"handler": handler, "status": status, "reason": reason, "count": count}
                for (handler, status, reason), count in sorted(counts.items(), key=lambda each: str(each[0]))
            ]
        while part < last and len(rows) < ROWS:
            found, count = parts[part].select(OutcomeFilter(**chosen), row, ROWS - len(rows))
            rows, row = rows + found, row + len(found)
            if row >= count:
                part, row = part + 1, 0
    except _DAMAGED:
        parts = []
    return {
        "has_files": bool(parts),
        "deliveries_by_round": dict(rounds),
        "kinds": kinds,
        "outcomes": list(map(_row, rows)),
        "chosen": dict(chosen),
        "next": f"{part}.{row}" if part < len(parts) else None,
    }


def _within(
    parts: Sequence[Part], budget: int, ids: Collection[str], column: str
) -> tuple[list[Part], list[Part], int]:
    """Select the parts in which `column` possibly contains one of `ids`, until the budget is used up.

    A selected part costs the number of its ids, plus a constant. Returns the selected parts, the remaining parts if the
    budget was too small, and the remaining budget.
    """
    taken: list[Part] = []
    for number_, part in enumerate(parts):
        if part.may_have(column, ids):
            budget -= part.ids(column) + _PER_PART
            if budget < 0:
                return taken, [*parts[number_:]], budget
            taken.append(part)
    return taken, [], budget


def _find(
    parts: Sequence[Part], ids: Collection[str], column: str, columns: Sequence[str] | None = None
) -> list[OutcomeRow] | None:
    """Return up to 50 outcomes of each part with one of `ids` in `column`, or None if a file is corrupt.

    `columns` are the columns of the result, by default all.
    """
    try:
        found = [*_THREADS.map(lambda part: part.find(ids, column, columns, ROWS), parts)]
    except _DAMAGED:
        return None
    return [row for rows in found for row in rows]


def outcomes_of_message(batches: Sequence[Place], only: str | None, message_id: str, skip: int) -> Found:
    """Find the outcomes of a message in batches, newest first, and draw the graph of its causes and outputs.

    `only` limits the search to one batch. `skip` is the number of parts of the first searched batch that an earlier
    page has searched. If the search stops early, `rest` names the batch at which it stopped, and the number of its
    parts that were searched.
    """
    search, budget = _Search(batches), _MOST
    searched, rows, rest = list[Found](), list[OutcomeRow](), None
    at: tuple[int, float] = (0, inf)
    for position, (batch_id, _) in enumerate(batches):
        if only not in (None, batch_id):
            continue
        parts = search.parts(position)[skip:]
        some, left, budget = _within(parts, budget, [message_id], "message_id")
        found = _find(some, [message_id], "message_id")
        searched.append({"batch_id": batch_id, "is_readable": bool(parts) and found is not None})
        if found:
            at = position, min(row["round"] for row in found)
            rows += found
        if left:
            rest = {"batch": batch_id, "skip": skip + len(parts) - len(left)}
            break
        skip = 0
    graph = _Graph(search, message_id, rows, at)
    return {
        "outcomes": list(map(_row, rows[:ROWS])),
        "graph": list(graph.nodes.values()) if len(graph.nodes) > 1 else [],
        "limits": graph.limits,
        "searched": searched,
        "rest": rest,
    }


class _Graph:
    """The causes and outputs of a message, up to three levels in each direction, across batches.

    `own` are the outcomes of the message. `at` is the oldest batch and round with such an outcome: causes are searched
    before this round, outputs after it.
    """

    def __init__(
        self, search: _Search, message_id: str, own: Sequence[OutcomeRow], at: tuple[int, float]
    ) -> None:
        self.nodes: dict[str, Found] = {}
        self.limits: list[str] = []
        levels = {message_id: 0}
        for row in self._walk("Causes", search.rounds(at, back=True), levels, OUTPUT_ID):
            effects = [each for each in row["outputs"] if each["message_id"] in levels]
            level = min(levels[each["message_id"]] for each in effects) - 1
            self._add(level, row)
            for each in effects:
                self._add(levels[each["message_id"]], row, each)
            if level > -_DEPTH:
                levels.setdefault(row["message_id"], level)
        levels = {}
        for row in own:
            self._add_outputs(0, row, levels)
        for row in self._walk("Outputs", search.rounds(at, back=False), levels, "message_id"):
            self._add_outputs(levels[row["message_id"]], row, levels)

    def _walk(
        self, what: str, steps: Iterable[Sequence[Part]], ids: Collection[str], column: str
    ) -> Iterator[OutcomeRow]:
        """Yield the outcomes with one of `ids` in `column`, up to the limits of a page. The caller may extend `ids`.

        `steps` yields the parts of each round. For each limit that is reached, adds a sentence that begins with `what`
        to `limits`.
        """
        budget = _MOST
        for parts in steps if ids else ():
            place = f"batch {parts[0].round.batch_id}, round {parts[0].round.number}"
            some, left, budget = _within(parts, budget, ids, column)
            rows = _find(some, ids, column, _DRAWN) or []
            yield from rows[:_BREADTH]
            if len(rows) > _BREADTH:
                self.limits.append(f"{what} in {place}: {_BREADTH} of {len(rows)} or more.")
            if left or len(self.nodes) > _NODES:
                self.limits.append(f"{what} are searched as far as {place}.")
                return

    def _add(self, level: int, row: OutcomeRow, output: OutcomeRow | None = None) -> None:
        id_, type_ = ((output or row)[name] for name in ("message_id", "type"))
        new = {"id": id_, "type": type_, "status": "", "level": level, "causes": [], "batch": row["batch_id"]}
        node = self.nodes.setdefault(id_, new)
        if output is None and (level < 0 or not node["status"]):  # a cause is of its oldest batch
            node.update(status=row["status"], batch=row["batch_id"])
        if output is not None and row["message_id"] not in node["causes"]:
            node["causes"].append(row["message_id"])

    def _add_outputs(self, level: int, row: OutcomeRow, levels: dict[str, int]) -> None:
        self._add(level, row)
        outputs = row["outputs"] or ()
        for each in outputs[:_BREADTH]:
            self._add(level + 1, row, each)
            if level < _DEPTH:
                levels.setdefault(each["message_id"], level + 1)
        if len(outputs) > _BREADTH:
            self.limits.append(f"Outputs of {row['message_id']}: {_BREADTH} of {len(outputs)}.")


def body_of(folder: str, batch_id: str, message_id: str) -> str:
    """Return the body of an output of a batch. Return "" for other messages, such as messages of the log."""
    parts, *_ = _within(_Search([Place(batch_id, folder)]).parts(0), _MOST, [message_id], OUTPUT_ID)
    rows = _find(parts, [message_id], OUTPUT_ID)
    outputs = (output for row in rows or () for output in row["outputs"])
    return next((str(each["body"]) for each in outputs if each["message_id"] == message_id), "")


def _row(row: OutcomeRow) -> Found:
    return {**row, "error": row["error"] and without_secrets(row["error"]), "outputs": row["outputs"] or []}

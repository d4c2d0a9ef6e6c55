"""Find, select, list, edit and discard dead letters."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from hashlib import sha256
from typing import Any, NamedTuple

from eventstore import KeyRange, Operation, Partition, Properties, Row, Stream, Table, Value
from eventstore.errors import ConcurrencyConflictError, RowError, RowExistsError
from eventstore.header import HEADER, HEADER_NAMES, is_tombstone
from eventstore.limits import MAX_OPERATIONS, SURELY_SMALL_BYTES, prepare_row
from eventstore.stream import read_headers, read_range
from handlers.codec import is_text
from runtime.algorithms.algorithm import letter_of
from runtime.algorithms.outbox.entity import ENTITY, read_entity, store_entity, with_letters
from runtime.clock import Clock, shown_time, to_microseconds
from runtime.errors import StoredDataError, UsageError
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import Envelope, canonical, id_key, pack_envelope, without_trace
from runtime.messages.outcome import Outcome, Reason
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions import limits
from runtime.versions import properties as stored
from runtime.versions.dead_letter_rows import Letter, given_up, letter_properties, letters_of, read_letter_row
from runtime.versions.stream import StreamUpdate, append, find_versions, stream_key


@dataclass(frozen=True, slots=True)
class FoundLetter:
    """A dead letter and its location: its stream or, for a dead letter without a stream, its own row."""

    letter: Letter
    handler: str | None  # None if no handler takes the message type
    business_id: str | None
    behind: Letter | None = None  # the earlier letter that parks the stream, if any
    row: str | None = None
    etag: str | None = None

    @property
    def name(self) -> str:
        """The dead letter's number in its stream, or its row key."""
        return self.row or str(self.letter.number)


@dataclass(frozen=True, slots=True)
class Selection:
    """A filter of dead letters. All conditions that are set must hold."""

    message_id: str | None = None
    reason: str | Collection[str] | None = None  # one or several
    handler: str | None = None
    stream: tuple[str, str] | None = None  # handler and business id
    refused_until: int | None = None  # upper bound of the last refusal, in microseconds since 1970 UTC
    refused_since: int | None = None  # lower bound of the first refusal
    numbers: Collection[int] = ()  # of letters in their stream; empty means all

    def __post_init__(self) -> None:
        for name in filter(None, (self.handler, self.stream and self.stream[0])):
            stream_key(name)
        for reason in self.reasons:
            if reason not in set(Reason):
                raise UsageError(f"{reason!r} is not a reason. Use one of {', '.join(Reason)}.")

    @property
    def reasons(self) -> Collection[str]:
        """The selected reasons. An empty collection means all."""
        return (self.reason,) if isinstance(self.reason, str) else self.reason or ()

    @property
    def is_all(self) -> bool:
        """Whether all dead letters are selected."""
        return self == Selection()

    @property
    def keys(self) -> list[str] | None:
        """The partition keys of the selected stream: with its business id, and with the canonical form. None: all."""
        if self.stream is None:
            return None
        handler, business_id = self.stream
        return [stream_key(handler, each) for each in dict.fromkeys([business_id, canonical(business_id)])]

    def takes(self, handler: str | None, letter: Letter) -> bool:
        """Return whether the filter selects a dead letter of a handler. The caller checks the stream."""
        return (
            letter.waits
            and (self.handler is None or handler == self.handler)
            and (not self.reasons or letter.reason in self.reasons)
            and (self.message_id is None or letter.message_id == canonical(self.message_id))
            and (self.refused_until is None or letter.refused_at <= self.refused_until)
            and (self.refused_since is None or letter.since >= self.refused_since)
            and (not self.numbers or letter.number in self.numbers)
        )


# Letters of the table are rejected deliveries that belong to no stream: their type has no handler, their envelope is
# invalid, or their business id is missing or too long. Row keys are digests of handler and delivery, so neither copies
# nor other attempts at a batch add rows. Only a redrive or `discard` removes a letter, not a redelivery.

PARTITION = "_letters"  # no stream's key, as these contain a hyphen

_FIRST, _LAST = "!", "~"


class TableLetters:
    """Stores rejected deliveries that belong to no stream, for a batch or for single messages."""

    def __init__(self, table: Table, batch: BatchContext, clock: Clock, retries: RetryPolicy) -> None:
        self._table = table
        self._batch = batch
        self._clock = clock
        self._retries = retries.beside(table)
        self._added: set[str] = set()

    async def keep(self, outcomes: Sequence[Outcome]) -> None:
        """Store the dead letters among outcomes, except too large ones and, outside a redrive, those over a limit.

        Costs one request for every 100. If any of the 100 is already stored, costs one or two more for each of them.
        """
        rows: dict[str, Row] = {}
        for outcome in outcomes:
            key = row_key(outcome.handler, outcome.envelope)
            # A corrupt log must not fill the table.
            has_room = self._batch.is_redrive or len(self._added) < limits.MAX_TASK_LETTERS
            if outcome.reason is None or key in self._added or not has_room:
                continue
            letter = letter_of(outcome, self._batch, self._clock())
            if letter.size <= limits.MAX_LETTER_BYTES:
                self._added.add(key)
                rows[key] = Row(PARTITION, key, "", _properties(outcome.handler, letter))
        for some in in_transactions(rows.values()):
            await until_undisturbed(self._retries, partial(self._add, some))

    async def _add(self, rows: Sequence[Row]) -> None:
        """Insert rows in one transaction or, if a row exists, one by one. Only a redrive replaces existing rows."""
        inserts = [Operation.insert(row.row_key, row.properties) for row in rows]
        try:
            await self._table.transact(PARTITION, inserts)
            return
        except RowExistsError:
            pass
        for row, insert in zip(rows, inserts, strict=True):
            there, change = await self._table.get(PARTITION, row.row_key), insert
            if there is not None:
                kept, new = found_letter(there).letter, found_letter(row)
                if not self._batch.is_redrive or self._batch.is_ours(kept.batch, kept.batch_number):
                    continue  # a redelivery
                properties = _properties(new.handler, new.letter.again(kept))
                change = Operation.replace(row.row_key, properties, there.etag)
            try:
                await self._table.transact(PARTITION, [change])
            except RowError as error:
                raise ConcurrencyConflictError(PARTITION, str(error)) from error


def row_key(handler: str | None, envelope: Envelope) -> str:
    """Return the row key of a dead letter without a stream. It does not depend on the delivery's trace context."""
    packed = pack_envelope(envelope._replace(headers=without_trace(envelope.headers)))
    return sha256(f"{handler or ''}-".encode() + packed).hexdigest()[:32]


def found_letter(row: Row) -> FoundLetter:
    """Parse the row of a dead letter that belongs to no stream. Raises `StoredDataError` if the row is corrupt."""
    with stored.reading_row("The letter", row):
        (letter,) = read_letter_row(row)
        handler = stored.expect(row.properties.get("Handler"), str, None)
    return FoundLetter(letter, handler or None, None, row=row.row_key, etag=row.etag)


def check_letter(row: Row) -> None:
    """Raise `StoredDataError` if a dead letter is corrupt, or its row key is not its digest."""
    found = found_letter(row)
    envelope = found.letter.envelope
    if envelope is None or row.row_key != row_key(found.handler, envelope):
        raise StoredDataError("The letter does not match its row key.", row.row_key, PARTITION)


async def letters_of_table(table: Table, selection: Selection) -> AsyncIterator[FoundLetter]:
    """Yield the selected dead letters that have no stream. Costs one request for every 1,000, selected or not."""
    if selection.stream is not None:
        return
    async for row in stored.rows_between(table, PARTITION, _FIRST, _LAST):
        found = None
        with stored.one_of_many(table, PARTITION):
            found = found_letter(row)
        if found is not None and selection.takes(found.handler, found.letter):
            yield found


async def letters_of_message(table: Table, message: Envelope, handlers: Collection[str]) -> list[FoundLetter]:
    """Return the dead letters of a message that have no stream: at most one for each handler and one without a handler.

    If no dead letter has the same content as the message, the oldest one with its id is returned, as the body may have
    been edited. Costs one request for every 1,000 dead letters.
    """
    id_, exact = id_key(message.message_id or ""), {row_key(name, message) for name in (None, *handlers)}
    meant: dict[str | None, FoundLetter] = {}
    async for letter in letters_of_table(table, Selection()):
        if letter.letter.key == id_ and letter.handler in (None, *handlers):
            best = meant.get(letter.handler, letter)
            meant[letter.handler] = min(
                best, letter, key=lambda each: (each.row not in exact, each.letter.refused_at)
            )
    return list(meant.values())


async def remove(table: Table, row: str, etag: str) -> bool:
    """Delete a dead letter without a stream if it is unchanged. Return whether it was deleted. Costs one request."""
    try:
        await table.transact(PARTITION, [Operation.delete(row, etag)])
    except RowError:
        return False
    return True


def _properties(handler: str | None, letter: Letter) -> dict[str, Value]:
    properties = letter_properties([letter])
    if handler is not None:
        properties["Handler"] = handler
    return properties


def in_transactions(rows: Iterable[Row]) -> Iterator[list[Row]]:
    """Split rows, in order, into lists. Each list is of one partition, and fits into one transaction of any store."""
    part: list[Row] = []
    size = 0
    for row in rows:
        bytes_ = prepare_row(row.properties)[1]
        is_full = len(part) == MAX_OPERATIONS or size + bytes_ > SURELY_SMALL_BYTES
        if part and (is_full or row.partition_key != part[0].partition_key):
            yield part
            part, size = [], 0
        part.append(row)
        size += bytes_
    if part:
        yield part


_COUNTS = ("Letters", "LettersBeyondLimit")


class StreamLetters(NamedTuple):
    """The counts of a stream or entity: dead letters that wait, and dead letters dropped because of the limit."""

    key: str
    waiting: int
    beyond_limit: int
    is_entity: bool = False


async def find_letters(table: Table, selection: Selection) -> AsyncIterator[FoundLetter]:
    """Yield the selected dead letters by stream, in order, then those without a stream. Keeps one stream in memory.

    Costs two requests for every 1,000 objects, one for each object with dead letters, and one for every 1,000 dead
    letters without a stream.
    """
    async for stream in streams_with_letters(table, selection):
        letters: Sequence[FoundLetter] = ()
        with stored.one_of_many(table, stream.key):
            letters = await letters_of_stream(table, stream)
        for letter in letters:
            if selection.takes(letter.handler, letter.letter):
                yield letter
    async for letter in letters_of_table(table, selection):
        yield letter


async def streams_with_letters(table: Table, selection: Selection) -> AsyncIterator[StreamLetters]:
    """Yield the counts of waiting and of dropped dead letters for each stream or entity that has any.

    Dead letters beyond the limit of a stream are dropped. Filters by the stream and handler of `selection`, but ignores
    the other conditions. Costs two requests for every 1,000 objects or, if a stream is selected, two for each of
    `selection.keys`.
    """
    async for key, properties, is_entity in _holders(table, selection):
        waiting = beyond_limit = 0
        with (
            stored.one_of_many(table, key) if selection.keys is None else nullcontext(),
            stored.reading("The number of letters", ENTITY if is_entity else HEADER, key),
        ):
            waiting, beyond_limit = (stored.number(properties, name, 0) for name in _COUNTS)
        if waiting or beyond_limit:
            yield StreamLetters(key, waiting, beyond_limit, is_entity)


async def _holders(table: Table, selection: Selection) -> AsyncIterator[tuple[str, Properties, bool]]:
    if selection.keys is not None:
        for key in selection.keys:
            stream, entity = await Stream.try_open(Partition.exact(table, key)), await table.get(key, ENTITY)
            if stream is not None:
                yield key, stream.properties or {}, False
            if entity is not None:
                yield key, entity.properties, True
        return
    keys = KeyRange() if selection.handler is None else KeyRange(stream_key(selection.handler))
    substitute = stored.damaged_row(table)
    async for row in read_headers(table, keys, (*HEADER_NAMES, *_COUNTS), substitute):
        if not is_tombstone(row):
            yield row.partition_key, row.properties, False
    async for row in read_range(table, ENTITY, keys, _COUNTS, substitute):
        yield row.partition_key, row.properties, True


async def letters_of_stream(table: Table, stream: StreamLetters) -> Sequence[FoundLetter]:
    """Return the waiting dead letters of a stream, in order. Costs at most one request."""
    if not stream.waiting:
        return []
    with stored.error_location(table, stream.key):
        waiting = (await letters_of(Partition.exact(table, stream.key))).waiting
    handler, _, business_id = stream.key.partition("-")
    parking: Letter | None = None
    letters = []
    for letter in waiting:
        letters.append(FoundLetter(letter, handler, business_id, parking))
        parking = parking or (letter if letter.parks else None)
    return letters


async def discard(table: Table, selection: Selection, retries: RetryPolicy) -> int:
    """Discard the selected dead letters, and return their number. Redeliveries of these messages stay rejected.

    Costs two requests per stream, one more for every 20 rows of letters after the first, and one per dead letter
    without a stream, in addition to `find_letters`.
    """
    retries = retries.beside(table)
    count = 0
    async for stream in streams_with_letters(table, selection):
        if stream.waiting:
            with stored.one_of_many(table, stream.key):
                give_up = partial(_give_up, table, stream, selection, set())
                count += await until_undisturbed(retries, give_up)
    async for found in letters_of_table(table, selection):
        if found.row is not None and found.etag is not None:
            first, again = (partial(each, table, found.row, found.etag) for each in (remove, _remove_again))
            count += await until_undisturbed(retries, again, first=first)
    return count


async def _remove_again(table: Table, row: str, etag: str) -> bool:
    """Delete a dead letter without a stream after an attempt without an answer. Return whether it is gone."""
    return await remove(table, row, etag) or await table.get(PARTITION, row) is None


async def _give_up(table: Table, stream: StreamLetters, selection: Selection, chosen: set[int]) -> int:
    """Discard dead letters of a stream. Return the number of discarded ones in `chosen`, which all attempts add to."""
    handler, _, business_id = stream.key.partition("-")

    def is_selected(letter: Letter) -> bool:
        if is_taken := selection.takes(handler, letter):
            chosen.add(letter.number)
        return is_taken

    if stream.is_entity:
        row = await table.get(stream.key, ENTITY)
        if row is None:
            return 0
        entity = await with_letters(table, read_entity(row))
        while (given := given_up(entity.letters, is_selected))[1]:
            entity = replace(entity, waiting=entity.waiting.after(given[0]), refused=given[0])
            entity = await store_entity(table, entity)
        return _discarded(entity.letters.all, chosen)
    history = await find_versions(table, handler, business_id, ())
    if history is None:
        return 0
    while (given := given_up(history.letters, is_selected))[1]:
        head = history.head._replace(waiting=history.head.waiting.after(given[0]))
        history = await append(history, StreamUpdate(head, letters=given[0]))
    return _discarded(history.letters.all, chosen)


def _discarded(letters: Sequence[Letter], chosen: Collection[int]) -> int:
    return sum(each.number in chosen and not each.waits for each in letters)


Line = Mapping[str, Any]  # a letter as JSON, for an export that is edited and redriven


def describe_letter(found: FoundLetter) -> dict[str, Any]:
    """Return the JSON form of a dead letter: columns of a message log, then the rejection. A binary body is in hex."""
    letter = found.letter
    envelope = letter.envelope or Envelope(letter.message_id, "", "")
    body, enqueued_at = envelope.body, envelope.enqueued_at
    return {
        **envelope._asdict(),
        "body": body.hex() if isinstance(body, bytes) else body,
        "enqueued_at": None if enqueued_at is None else shown_time(enqueued_at),
        "headers": None if envelope.headers is None else dict(envelope.headers),
        "handler": found.handler,
        "stream": found.business_id,
        "letter": found.name,
        "packed": isinstance(body, bytes),
        "reason": letter.reason.value,
        "error": letter.error,
        "version": letter.version,
        "batch": letter.batch,
        "refused_at": shown_time(letter.refused_at),
        "refused_first_at": shown_time(letter.since),
        "tries": letter.tries,
        "parks": letter.parks,
        "behind": None if found.behind is None else f"{found.behind.number} ({found.behind.message_id})",
    }


def to_line(letter: FoundLetter) -> str:
    """Return a dead letter as a line of JSON. The body is written as an object if that loses nothing.

    Escapes lone surrogates.
    """
    described = describe_letter(letter)
    if not described["packed"]:
        described["body"] = _editable(described["body"])
    line = json.dumps(described, ensure_ascii=False)
    return line if is_text(line) else json.dumps(described)


class Edits:
    """The lines of an edited export of dead letters, one line per letter. Raises `UsageError` if a line is invalid."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._lines: dict[tuple[str, ...], Line] = {}
        self._used: set[tuple[str, ...]] = set()
        self.changed: set[tuple[str, ...]] = set()
        for line_number, line in enumerate(lines, 1):
            if line.strip():
                self._add(line_number, line)

    @classmethod
    def of(cls, content: bytes) -> Edits:
        """Parse a UTF-8 file, with or without a byte order mark. Only a line feed ends a line."""
        try:
            return cls(content.decode("utf-8-sig").split("\n"))
        except UnicodeDecodeError as error:
            raise UsageError(f"The edited letters are not UTF-8: {error}. Save the file as UTF-8.") from error

    def __len__(self) -> int:
        return len(self._lines)

    def has(self, letter: FoundLetter) -> bool:
        """Return whether there is a line for a dead letter."""
        return _key_of(letter) in self._lines

    def mended(self, found: FoundLetter) -> Envelope | None:
        """Return the edited delivery of a dead letter, or None if its line is missing or unchanged."""
        key, envelope = _key_of(found), found.letter.envelope
        if key not in self._lines or envelope is None:
            return None
        self._used.add(key)
        mended = _mended(envelope, describe_letter(found), self._lines[key])
        if mended == envelope:
            return None
        self.changed.add(key)
        return mended

    def check_used(self) -> None:
        """Raise `UsageError` if there are lines whose dead letter was not found."""
        unused = [line for key, line in self._lines.items() if key not in self._used]
        if unused:
            raise UsageError(
                f"{len(unused)} of {len(self)} edited lines match no selected letter. The first is for the message "
                f"{unused[0].get('message_id')!r} of {unused[0].get('handler')}: remove such lines, or change the "
                f"selection."
            )

    def _add(self, number: int, line: str) -> None:
        try:
            fields = json.loads(line)
        except ValueError as error:
            raise UsageError(f"Line {number} of the edited letters is not valid JSON: {error}") from error
        if not isinstance(fields, dict) or not fields.get("letter"):
            raise UsageError(f"Line {number} of the edited letters is not an object with a field `letter`.")
        key = fields.get("handler") or "", fields.get("stream") or "", str(fields["letter"])
        if key in self._lines:
            raise UsageError(
                f"Line {number} of the edited letters repeats an earlier letter: remove one line."
            )
        self._lines[key] = fields


class RedriveRequest(NamedTuple):
    """The dead letters to redrive, and their edits. `only_edited`: skip letters without a line in `edits`."""

    selection: Selection
    edits: Edits
    only_edited: bool = False

    def takes(self, letter: FoundLetter) -> bool:
        """Return whether to redrive a selected dead letter."""
        return not self.only_edited or self.edits.has(letter)


def _key_of(letter: FoundLetter) -> tuple[str, ...]:
    return letter.handler or "", letter.business_id or "", letter.name


def _editable(body: str) -> Line | str:
    """Parse a body into an object. If it has another type, or would lose digits or repeated fields, return its text."""

    def exact(number: str) -> float:
        if repr(float(number)) != number:
            raise ValueError(number)
        return float(number)

    def fields(pairs: Sequence[tuple[str, Any]]) -> Line:
        if len(dict(pairs)) < len(pairs):
            raise ValueError(pairs)
        return dict(pairs)

    try:
        parsed = json.loads(body, parse_float=exact, parse_constant=exact, object_pairs_hook=fields)
    except (ValueError, RecursionError):
        return body
    return parsed if isinstance(parsed, dict) else body


def _mended(envelope: Envelope, shown: Line, line: Line) -> Envelope:
    """Return a delivery, changed where an edited line differs from the exported line, `shown`."""
    changed = {name: line[name] for name in Envelope._fields if name in line and line[name] != shown[name]}
    if isinstance(envelope.body, str) and isinstance(line.get("body"), dict):
        before = _editable(envelope.body)
        if json.dumps(line["body"], sort_keys=True) == json.dumps(before, sort_keys=True):
            del changed["body"]
    is_packed = bool(line.get("packed"))
    try:
        read = {name: _read(name, value, is_packed=is_packed) for name, value in changed.items()}
        return envelope._replace(**read)
    except (TypeError, ValueError) as error:
        raise UsageError(f"The edited letter of {shown['message_id']!r} is invalid: {error}") from error


def _read(name: str, value: Any, *, is_packed: bool) -> Any:  # noqa: ANN401 - a value of JSON
    if name == "body":
        if not isinstance(value, str):
            return json.dumps(value, ensure_ascii=False)
        return bytes.fromhex(value) if is_packed else value
    if value is None:
        return None
    expected: Any = {"sequence": int, "headers": dict}.get(name, str)
    if not isinstance(value, expected):
        raise TypeError(f"{name} is {value!r}.")
    if name == "message_id":
        return canonical(value)
    if name == "enqueued_at":
        moment = datetime.fromisoformat(value)
        if moment.tzinfo is None:
            raise ValueError(f"enqueued_at has no time zone: {value}")
        return to_microseconds(moment)
    return value

"""Letters of the table: refused deliveries that reached no stream, one row for each.

No handler takes their type, their envelope cannot be read, no business id is found, or the key would be too long. The
row is named after the handler and the delivery, so that a copy, or another attempt at the same batch, adds none. A
redelivery is looked at as if there were no letter: only a redrive, or `discard`, takes it away.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from functools import partial
from hashlib import sha256

from eventstore import ConcurrencyConflictError, Operation, Row, RowError, RowExistsError, Table, Value, pages
from runtime.algorithms.letters.selection import FoundLetter, Selection
from runtime.batches.context import BatchContext
from runtime.clock import Clock
from runtime.errors import StoredDataError
from runtime.messages.envelope import Envelope
from runtime.messages.letters import pack_envelope
from runtime.messages.message_ids import id_key
from runtime.messages.outcome import Outcome
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage import limits
from runtime.storage.damage import expect, one_of_many, reading_row
from runtime.storage.letters import Kind, Letter, letter_properties, read_letter_row

PARTITION = "_letters"
"""No stream's key is like it, as theirs hold a hyphen after the handler."""

_FIRST, _LAST = "!", "~"
_AT_ONCE = 50


class TableLetters:
    """Keeps the refused deliveries of a batch, or of single messages, that reached no stream.

    One that is not redriven adds at most `limits.MAX_TASK_LETTERS` of them: a log of which nothing can be read fills no
    table. Letters that a redrive refuses again are kept all.
    """

    def __init__(self, table: Table, batch: BatchContext, clock: Clock, retries: RetryPolicy) -> None:
        self._table = table
        self._batch = batch
        self._clock = clock
        self._retries = retries.beside(table)
        self._added: set[str] = set()

    async def keep(self, outcomes: Sequence[Outcome]) -> None:
        """Keep the dead letters among outcomes. One request for each 50, two for one that was kept before."""
        rows: dict[str, Row] = {}
        for outcome in outcomes:
            row = self._row(outcome)
            if row is not None and row.row_key not in self._added and self._has_room():
                self._added.add(row.row_key)
                rows[row.row_key] = row
        for some in _in_transactions(list(rows.values())):
            await until_undisturbed(self._retries, partial(self._add, some))

    def _has_room(self) -> bool:
        return self._batch.is_redrive or len(self._added) < limits.MAX_TASK_LETTERS

    def _row(self, outcome: Outcome) -> Row | None:
        """Return the row of a dead letter, None for one that is too large and for anything else."""
        if outcome.reason is None:
            return None
        envelope = outcome.envelope
        letter = Letter(
            0,
            Kind.WAITING,
            id_key(envelope.message_id or ""),
            b"",
            envelope.enqueued_at,
            envelope,
            outcome.reason,
            outcome.error or "",
            0,
            self._batch.batch_id,
            self._batch.number,
            self._clock(),
        )
        if letter.size > limits.MAX_LETTER_BYTES:
            return None
        return Row(PARTITION, row_key(outcome.handler, envelope), "", _properties(outcome.handler, letter))

    async def _add(self, rows: Sequence[Row]) -> None:
        """Add some rows at once; when one of them is there already, one by one."""
        try:
            await self._table.transact(
                PARTITION, [Operation.insert(row.row_key, row.properties) for row in rows]
            )
        except RowExistsError:
            for row in rows:
                await self._add_or_try(row)

    async def _add_or_try(self, row: Row) -> None:
        there = await self._table.get(PARTITION, row.row_key)
        change = Operation.insert(row.row_key, row.properties) if there is None else self._tried(there, row)
        if change is None:
            return
        try:
            await self._table.transact(PARTITION, [change])
        except RowError as error:
            raise ConcurrencyConflictError(PARTITION, str(error)) from error

    def _tried(self, there: Row, row: Row) -> Operation | None:
        """Return the change of a row whose letter was redriven and refused again, None for a redelivery."""
        kept, new = found_letter(there), found_letter(row)
        is_ours = self._batch.is_ours(kept.letter.batch, kept.letter.batch_number)
        if not self._batch.is_redrive or is_ours:
            return None
        tried = new.letter._replace(tries=kept.letter.tries + 1)
        return Operation.replace(row.row_key, _properties(new.handler, tried), there.etag)


def row_key(handler: str | None, envelope: Envelope) -> str:
    """Return the name of the row of a delivery, as far as a handler takes it."""
    return sha256(f"{handler or ''}-".encode() + pack_envelope(envelope)).hexdigest()[:32]


def found_letter(row: Row) -> FoundLetter:
    """Return the letter in a row. Raises `StoredDataError`."""
    with reading_row("The letter", row):
        (letter,) = read_letter_row(row)
        handler = expect(row.properties.get("Handler"), str, None)
    return FoundLetter(letter, handler or None, None, row=row.row_key, etag=row.etag)


def check_letter(row: Row) -> None:
    """Raise `StoredDataError` for a letter that cannot be read, or is another one than its row is named after."""
    found = found_letter(row)
    envelope = found.letter.envelope
    if envelope is None or row_key(found.handler, envelope) != row.row_key:
        raise StoredDataError(
            "The letter is not the one that its row is named after.", row.row_key, PARTITION
        )


async def letters_of_table(table: Table, selection: Selection) -> AsyncIterator[FoundLetter]:
    """Give the letters without a stream that are meant. One request for each 1,000."""
    if selection.stream is not None:
        return
    async for page in pages(partial(table.query, PARTITION, _FIRST, _LAST)):
        for row in page.rows:
            found = None
            with one_of_many(table, PARTITION):
                found = found_letter(row)
            if found is not None and selection.takes(found.handler, found.letter):
                yield found


async def letters_of_message(table: Table, message: Envelope, handlers: Collection[str]) -> list[FoundLetter]:
    """Return the letters without a stream that a message is: one for each handler that takes it, and of no handler.

    Its body may have been mended: where no letter is the message as it stands, the first that was refused under its id
    is meant. One request for each 1,000 letters of the table.
    """
    id_, exact = id_key(message.message_id or ""), {row_key(name, message) for name in (None, *handlers)}
    meant: dict[str | None, FoundLetter] = {}
    async for found in letters_of_table(table, Selection()):
        if found.letter.key == id_ and found.handler in (None, *handlers):
            best = meant.get(found.handler)
            if best is None or _nearness(found, exact) < _nearness(best, exact):
                meant[found.handler] = found
    return list(meant.values())


def _nearness(found: FoundLetter, exact: Collection[str]) -> tuple[bool, int]:
    return found.row not in exact, found.letter.refused_at


async def remove(table: Table, row: str, etag: str) -> bool:
    """Delete a row unless it was changed, and return whether that was so. One request."""
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


def _in_transactions(rows: Sequence[Row]) -> list[Sequence[Row]]:
    """Return rows in parts that one transaction takes."""
    parts: list[list[Row]] = []
    size = 0
    for row in rows:
        taken = limits.ROW_OVERHEAD + sum(
            len(value) * 4 // 3 for value in row.properties.values() if isinstance(value, bytes)
        )
        if not parts or len(parts[-1]) == _AT_ONCE or size + taken > limits.MAX_TRANSACTION_BYTES:
            parts.append([])
            size = 0
        parts[-1].append(row)
        size += taken
    return list(parts)

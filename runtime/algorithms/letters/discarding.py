"""Discarding letters: they are given up, and their messages stay refused for ever.

Of a letter that is given up the stream keeps what tells its redeliveries, and no longer the delivery. What waited
behind it is free when nothing else parks the stream.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from eventstore import Table
from runtime.algorithms.letters.of_table import letters_of_table, remove
from runtime.algorithms.letters.reading import StreamLetters, streams_with_letters
from runtime.algorithms.letters.selection import Selection
from runtime.algorithms.outbox.entities import ENTITY, store_entity, with_letters
from runtime.algorithms.outbox.entity import read_entity
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.storage.damage import one_of_many
from runtime.storage.letters import given_up
from runtime.storage.stream import Append, append, find_versions


async def discard(table: Table, selection: Selection, retries: RetryPolicy) -> int:
    """Give up the letters that are meant, and return how many.

    A redelivery of a letter of the table, which is deleted, is looked at anew. Costs what it costs to find them; for
    each stream a query and a transaction, under its ETag and repeated after a lost race; and one request for each
    letter of the table.
    """
    retries = retries.beside(table)
    count = 0
    async for stream in streams_with_letters(table, selection):
        if stream.waiting:
            give_up = _give_up_in_entity if stream.is_entity else _give_up_in_stream
            with one_of_many(table, stream.key):
                count += await until_undisturbed(retries, partial(give_up, table, stream, selection))
    async for found in letters_of_table(table, selection):
        if found.row is not None and found.etag is not None:
            count += await until_undisturbed(retries, partial(remove, table, found.row, found.etag))
    return count


async def _give_up_in_stream(table: Table, stream: StreamLetters, selection: Selection) -> int:
    history = await find_versions(table, stream.handler, stream.business_id, ())
    if history is None:
        return 0
    letters, count = given_up(history.letters.all, partial(selection.takes, stream.handler))
    if count:
        head = replace(history.head, waiting=history.head.waiting.after(letters, 0))
        await append(history, Append(head, letters=letters))
    return count


async def _give_up_in_entity(table: Table, stream: StreamLetters, selection: Selection) -> int:
    row = await table.get(stream.key, ENTITY)
    if row is None:
        return 0
    entity = await with_letters(table, read_entity(row))
    letters, count = given_up(entity.letters.all, partial(selection.takes, stream.handler))
    if count:
        await store_entity(table, replace(entity, waiting=entity.waiting.after(letters, 0), refused=letters))
    return count

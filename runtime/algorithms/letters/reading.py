"""Reading the letters of a table: by pages of headers, so that memory does not grow with the table.

The letters of one stream are read at once, those of the next when they are asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from functools import partial
from typing import NamedTuple

from eventstore import KeyRange, Partition, Properties, Row, Stream, Table, pages
from eventstore.header import HEADER_NAMES, is_tombstone
from eventstore.listing import read_headers
from eventstore.partition import HEADER
from runtime.algorithms.letters.of_table import letters_of_table
from runtime.algorithms.letters.selection import FoundLetter, Selection
from runtime.algorithms.outbox.entities import ENTITY
from runtime.storage.damage import one_of_many, placed, reading
from runtime.storage.letters import LAST, PREFIX, PROPERTIES, Letter, read_letters
from runtime.storage.properties import number

_COUNTS = ("Letters", "LettersBeyondLimit")


class StreamLetters(NamedTuple):
    """How many letters wait in a stream or an entity, and how many in all were not kept there."""

    key: str
    waiting: int
    beyond_limit: int
    is_entity: bool = False

    @property
    def handler(self) -> str:
        """The handler of the stream."""
        return self.key.partition("-")[0]

    @property
    def business_id(self) -> str:
        """The business id of the stream."""
        return self.key.partition("-")[2]


async def find_letters(table: Table, selection: Selection) -> AsyncIterator[FoundLetter]:
    """Give the letters that are meant, stream by stream and in their order there, then those of the table.

    Costs two requests for each 1,000 streams and entities, one for each stream that has letters, and one for each 1,000
    letters of the table.
    """
    async for stream in streams_with_letters(table, selection):
        letters: Sequence[FoundLetter] = ()
        with one_of_many(table, stream.key):
            letters = await letters_of_stream(table, stream)
        for found in letters:
            if selection.takes(found.handler, found.letter):
                yield found
    async for found in letters_of_table(table, selection):
        yield found


async def streams_with_letters(table: Table, selection: Selection) -> AsyncIterator[StreamLetters]:
    """Give the streams and entities of a selection in which letters wait, or were not kept."""
    async for stream in _streams(table, selection):
        if stream.waiting or stream.beyond_limit:
            yield stream


async def letters_of_stream(table: Table, stream: StreamLetters) -> Sequence[FoundLetter]:
    """Return the letters that wait in a stream, in their order. One request, none when there are none."""
    if not stream.waiting:
        return []
    read = partial(table.query, stream.key, PREFIX, LAST, select=PROPERTIES)
    rows = [row async for page in pages(read) for row in page.rows]
    with placed(table, stream.key):
        waiting = read_letters(rows).waiting
    parking = next((letter for letter in waiting if letter.parks), None)
    return [
        FoundLetter(letter, stream.handler, stream.business_id, _behind(letter, parking))
        for letter in waiting
    ]


def _behind(letter: Letter, parking: Letter | None) -> Letter | None:
    return parking if parking is not None and parking.number < letter.number else None


async def _streams(table: Table, selection: Selection) -> AsyncIterator[StreamLetters]:
    if selection.keys is not None:
        for key in selection.keys:
            for stream in await _named(table, key):
                yield stream
        return
    async for row in _holders(table, selection):
        with one_of_many(table, row.partition_key):
            yield _counted(row.partition_key, row.properties, is_entity=row.row_key == ENTITY)


async def _holders(table: Table, selection: Selection) -> AsyncIterator[Row]:
    """Give the headers of streams and the rows of entities, which say how many letters there are."""
    prefix = "" if selection.handler is None else f"{selection.handler}-"
    async for row in read_headers(table, KeyRange(prefix), (*HEADER_NAMES, *_COUNTS)):
        if not is_tombstone(row):
            yield row
    after = None if selection.handler is None else f"{selection.handler}."  # "." follows "-"
    async for page in pages(partial(table.scan, ENTITY, prefix, after, select=_COUNTS)):
        for row in page.rows:
            if row.partition_key.startswith(prefix):
                yield row


async def _named(table: Table, key: str) -> list[StreamLetters]:
    stream, entity = await Stream.try_open(Partition.exact(table, key)), await table.get(key, ENTITY)
    found = [] if stream is None else [_counted(key, stream.properties or {})]
    return found if entity is None else [*found, _counted(key, entity.properties, is_entity=True)]


def _counted(key: str, properties: Properties, *, is_entity: bool = False) -> StreamLetters:
    with reading("The number of letters", ENTITY if is_entity else HEADER, key):
        waiting, beyond_limit = (number(properties, name, 0) for name in _COUNTS)
    return StreamLetters(key, waiting, beyond_limit, is_entity)

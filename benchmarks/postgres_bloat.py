"""What updates leave behind in PostgreSQL: `python -m benchmarks postgres_bloat` changes header rows a million times.

The table is made by the statements of the store, and changed by its update in transactions of 64, as the store sends
them; a procedure of the server repeats them, so that a million take a minute. Streams take turns. Autovacuum is as
PostgreSQL has it. Then calls of the store are timed on the same rows in a table with hash partitions, in turn.
"""

from __future__ import annotations

import asyncio
import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Annotated, Any

import psycopg
import typer

from eventstore import EventData, Partition, Stream, connect, list_streams
from eventstore.backends.postgres import PostgresTable
from tests.support.servers import postgresql_server

_TABLE = "streams"
_COLUMNS = '"partition", "row", etag, "time", small, large'
_HEADER_BYTES, _EVENT_BYTES, _EVENTS = 300, 200, 10
_PER_TRANSACTION = 64
_PER_CALL = 10_000
_CASES = ((0, 100), (0, 80), (0, 50), (3_000, 80))
_TURNS = 5
_CALLS = 100


def ask(url: str, statement: str) -> tuple[Any, ...]:
    """Carry out a statement, and return the row that it finds."""
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return (cursor.fetchone() or ()) if cursor.description else ()


async def _statements(url: str) -> tuple[str, list[str]]:
    """Return the store's update of a row, and what makes a table. The table is made."""
    async with connect(url) as store:
        table = await store.table(_TABLE)
        assert isinstance(table, PostgresTable)  # noqa: S101 - by its url
        sql = table._sql  # noqa: SLF001 - that is what is measured
        return sql.update.as_string(), [each.as_string() for each in sql.make]


def _change(update: str, streams: int, large: int) -> str:
    """Return the procedure that changes header rows, and stores as many bytes apart as each has there."""
    values = ("number", "number", "new_small", "new_large", f"'s' || number % {streams}", "'SS-HEAD'", "NULL")
    for value in values:
        update = update.replace("%s", value, 1)
    update = update.replace("SELECT 1 / count(*)", "SELECT 1 / count(*) INTO done")
    apart = f"repeat(chr(65 + number % 26), {large})::bytea" if large else "NULL::bytea"
    return f"""
        CREATE PROCEDURE change(first int, last int) LANGUAGE plpgsql AS $$
        DECLARE new_small bytea := decode(repeat('5a', {_HEADER_BYTES}), 'hex'); new_large bytea; done bigint;
        BEGIN
            FOR number IN first..last LOOP
                new_large := {apart};
                {update.replace("%%", "%")};
                IF number % {_PER_TRANSACTION} = 0 THEN COMMIT; END IF;
            END LOOP;
        END $$"""


def _fill(url: str, streams: int, large: int) -> None:
    apart = f"repeat('x', {large})::bytea" if large else "NULL"
    stream = f"generate_series(0, {streams - 1}) AS stream"
    event = f"generate_series(1, {_EVENTS}) AS event"
    rows = (
        f"'SS-HEAD', 1, 1, decode(repeat('5a', {_HEADER_BYTES}), 'hex'), {apart} FROM {stream}",
        f"'SS-SE-' || event, 1, 1, decode(repeat('5a', {_EVENT_BYTES}), 'hex'), NULL FROM {stream}, {event}",
    )
    for each in rows:
        ask(url, f"INSERT INTO {_TABLE} ({_COLUMNS}) SELECT 's' || stream, {each}")
    ask(url, f"VACUUM ANALYZE {_TABLE}")


def bloat(streams: int, updates: int, large: int, fill_factor: int) -> str:
    """Return the row of the table for header rows with so many bytes stored apart."""
    size = f"SELECT pg_total_relation_size('{_TABLE}')"
    with postgresql_server() as server:
        update, _ = asyncio.run(_statements(server.url))
        ask(server.url, f"ALTER TABLE {_TABLE} SET (fillfactor = {fill_factor})")
        _fill(server.url, streams, large)
        sizes = [*ask(server.url, size)]
        ask(server.url, _change(update, streams, large))
        began = time.perf_counter()
        for first in range(1, updates + 1, _PER_CALL):  # after each, autovacuum knows what there is to do
            ask(server.url, f"CALL change({first}, {min(first + _PER_CALL - 1, updates)})")
        seconds = time.perf_counter() - began
        sizes += ask(server.url, size)
        ask(server.url, f"VACUUM {_TABLE}")
        counts = "SELECT n_tup_hot_upd, n_tup_upd, autovacuum_count FROM pg_stat_user_tables"
        hot, all_, vacuums = ask(server.url, f"{counts} WHERE relname = '{_TABLE}'")
    before, after = (f"{each / 2**20:,.1f}" for each in sizes)
    return (
        f"| {fill_factor} | {_HEADER_BYTES + large:,} | {hot / all_:.1%} | {before} | {after} | "
        f"{sizes[1] / sizes[0]:.1f} | {vacuums} | {1e6 * seconds / updates:.0f} |"
    )


def _make_partitions(url: str, make: Sequence[str], partitions: int) -> None:
    create, storage, comment = make
    create, _, options = create.rpartition(" WITH ")
    ask(url, f"DROP TABLE {_TABLE}")
    ask(url, f'{create} PARTITION BY HASH ("partition")')
    for number in range(partitions):
        values = f"FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number})"
        ask(url, f"CREATE TABLE {_TABLE}_{number} PARTITION OF {_TABLE} {values} WITH {options}")
    ask(url, storage)
    ask(url, comment)


async def _times(url: str) -> list[float]:
    """Return the milliseconds of an open, an append, and of listing all streams."""
    async with connect(url) as store:
        table = await store.table(_TABLE)
        streams = [Partition(table, f"new-{time.time_ns()}-{number}") for number in range(_CALLS)]
        began = time.perf_counter()
        for each in streams:
            await Stream.write(each, EventData({"Data": bytes(_EVENT_BYTES)}), expected_version=0)
        written = time.perf_counter()
        for each in streams:
            await Stream.open(each)
        opened = time.perf_counter()
        _ = [each async for each in list_streams(table, "new-")]
        listed = time.perf_counter()
    return [1e3 * (opened - written) / _CALLS, 1e3 * (written - began) / _CALLS, 1e3 * (listed - opened)]


def partitions(streams: int, counts: Sequence[int]) -> Iterator[str]:
    """Yield the rows of the table for numbers of partitions, 0 for none."""
    with postgresql_server() as server:
        urls = []
        for count in counts:
            ask(server.url, f"CREATE DATABASE parts_{count}")
            urls.append(f"{server.url.removesuffix('/postgres')}/parts_{count}")
            _, make = asyncio.run(_statements(urls[-1]))
            if count:
                _make_partitions(urls[-1], make, count)
            _fill(urls[-1], streams, 0)
        times = [[asyncio.run(_times(url)) for url in urls] for _ in range(_TURNS)]
    for number, count in enumerate(counts):
        medians = (statistics.median(turn[number][call] for turn in times) for call in range(3))
        yield f"| {count or 'none'} | {' | '.join(f'{each:.2f}' for each in medians)} |"


def main(
    updates: Annotated[int, typer.Option(min=1, help="Updates of header rows.")] = 1_000_000,
    streams: Annotated[int, typer.Option(min=1, help="Streams that take turns.")] = 10_000,
) -> None:
    """Measure, and print the tables."""
    tables = [
        [
            "| fill factor | bytes of a header | HOT | MiB before | MiB after | times | autovacuums | µs an update |",
            "|---:|---:|---:|---:|---:|---:|---:|---:|",
            *(bloat(streams, updates, large, factor) for large, factor in _CASES),
        ],
        [
            "| partitions | ms an open | ms an append | ms to list 500 streams |",
            "|---:|---:|---:|---:|",
            *partitions(streams, (0, 16, 128)),
        ],
    ]
    print("\n\n".join("\n".join(lines) for lines in tables))


if __name__ == "__main__":
    typer.run(main)

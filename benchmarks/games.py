"""Messages of as many games as one likes, each made when it is asked for: a log need not fit into memory.

The sample's generator shuffles a whole log. Here a message is a function of its game and of its turn in it, so that
any part of any game can be made again, as the Arrow batches of a log or of a worker.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from itertools import islice
from uuid import UUID

import pyarrow as pa

from benchmarks.shooting import HANDLER, Delivery
from runtime.clock import to_microseconds
from samples.shooting_range.handlers import POSITIONS
from samples.shooting_range.log import BEGIN

ROWS_IN_A_BATCH = 4096
"""As many as Spark gives to a worker at once."""

_TURNS_BETWEEN_STARTS = 4
_BETWEEN = 10_000
_TIME = pa.timestamp("us", tz="UTC")
_LOG = pa.schema(
    [
        ("message_id", pa.string()),
        ("type", pa.string()),
        ("body", pa.string()),
        ("sequence", pa.int64()),
        ("enqueued_at", _TIME),
    ]
)
_ROUTED = pa.schema(
    [
        ("handler", pa.string()),
        ("business_id", pa.string()),
        *_LOG,
        ("headers", pa.string()),
        ("given", pa.string()),
        ("problem", pa.string()),
        ("line", pa.string()),
    ]
)

Turn = tuple[int, int]
"""A message: the number of its game, and its number in the game, both from 0."""


def by_game(games: Iterable[int], turns: range) -> Iterator[Turn]:
    """Give the turns of each game, one game after another."""
    return ((game, turn) for game in games for turn in turns)


def by_turn(games: range, turns: Iterable[int]) -> Iterator[Turn]:
    """Give the turns as they are played in all games at once."""
    return ((game, turn) for turn in turns for game in games)


def message(game: int, turn: int) -> Delivery:
    """Return a message. Each game begins with StartNewRound; about half of the shots are aimed."""
    message_id, position, is_aimed = _drawn(game, turn)
    start = turn - turn % _TURNS_BETWEEN_STARTS
    if is_aimed and turn != start:
        _, position, _ = _drawn(game, start)
    body = json.dumps({"game_id": game_id(game), "position": position})
    return Delivery(message_id, "StartNewRound" if turn == start else "FireAt", body)


def game_id(game: int) -> str:
    """Return the business id of a game."""
    return _uuid(blake2b(b"game %d" % game, digest_size=16).digest())


def log_batches(turns: Iterable[Turn]) -> Iterator[pa.RecordBatch]:
    """Give the messages of some turns in the columns of a log."""
    for chunk in _chunks(turns):
        yield pa.RecordBatch.from_arrays(_log_columns(chunk), schema=_LOG)


def routed_batches(turns: Iterable[Turn]) -> Iterator[pa.RecordBatch]:
    """Give the messages of some turns as a worker gets them, routed; those of a game must stand together."""
    for chunk in _chunks(turns):
        games = pa.array([game_id(game) for game, _ in chunk], pa.string())
        handlers = pa.array([HANDLER.name] * len(chunk), pa.string())
        nothing = [pa.nulls(len(chunk), field.type) for field in list(_ROUTED)[-4:]]
        yield pa.RecordBatch.from_arrays([handlers, games, *_log_columns(chunk), *nothing], schema=_ROUTED)


def routed_like(business_ids: list[str], handler: str, deliveries: list[Delivery]) -> pa.RecordBatch:
    """Return any deliveries as a worker gets them."""
    count = len(deliveries)
    columns = _delivered(deliveries, range(count))
    nothing = [pa.nulls(count, field.type) for field in list(_ROUTED)[-4:]]
    names = [pa.array([handler] * count, pa.string()), pa.array(business_ids, pa.string())]
    return pa.RecordBatch.from_arrays([*names, *columns, *nothing], schema=_ROUTED)


def _chunks(turns: Iterable[Turn]) -> Iterator[list[Turn]]:
    waiting = iter(turns)
    while chunk := list(islice(waiting, ROWS_IN_A_BATCH)):
        yield chunk


def _log_columns(chunk: list[Turn]) -> list[pa.Array]:
    return _delivered([message(game, turn) for game, turn in chunk], [turn for _, turn in chunk])


def _delivered(deliveries: list[Delivery], sequences: Iterable[int]) -> list[pa.Array]:
    begin = to_microseconds(BEGIN)
    numbers = list(sequences)
    times = pa.array([begin + number * _BETWEEN for number in numbers], pa.int64()).cast(_TIME)
    columns = [pa.array(column, pa.string()) for column in zip(*deliveries, strict=True)]
    return [*columns, pa.array(numbers, pa.int64()), times]


def _drawn(game: int, turn: int) -> tuple[str, int, bool]:
    drawn = blake2b(b"%d %d" % (game, turn), digest_size=18).digest()
    return _uuid(drawn[:16]), drawn[16] % POSITIONS, bool(drawn[17] % 2)


def _uuid(drawn: bytes) -> str:
    return str(UUID(bytes=drawn, version=4))

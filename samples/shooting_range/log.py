"""Message logs of many concurrent games, with duplicates, as a queue would deliver them."""

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

from samples.shooting_range.handlers import POSITIONS

BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
_BETWEEN = timedelta(milliseconds=10)
_TURNS_BETWEEN_STARTS = 4
_AIMED = 0.5

Row = dict[str, Any]


def generate(
    games: int,
    messages: int,
    *,
    duplicates: float = 0.0,
    shuffle: bool = False,
    seed: int = 1,
    begin: datetime = BEGIN,
) -> Iterator[Row]:
    """Yield the rows of a log: `messages` distinct messages, and random copies.

    `duplicates` is the number of copies, as a share of `messages`. Each game begins with StartNewRound. About half of
    the shots are aimed. Rows are ordered by `sequence`, followed by all copies; `shuffle` mixes all rows. The same
    `seed` yields the same games, and with the same `begin` also the same messages.
    """
    game_ids = [_uuid(random.Random(f"{seed}:game:{number}")) for number in range(games)]
    chance = random.Random(f"{seed}:{begin.isoformat()}")
    rows = list(_messages(game_ids, messages, chance, begin))
    # Redeliveries repeat the message with its id.
    rows += [dict(rows[chance.randrange(messages)]) for _ in range(round(messages * duplicates))]
    if shuffle:
        chance.shuffle(rows)
    yield from rows


def _messages(game_ids: list[UUID], count: int, chance: random.Random, begin: datetime) -> Iterator[Row]:
    targets: dict[UUID, int] = {}
    for number in range(count):
        game_id = game_ids[number % len(game_ids)]
        turn = number // len(game_ids)
        position = chance.randrange(POSITIONS)
        starts = turn % _TURNS_BETWEEN_STARTS == 0
        if starts:
            targets[game_id] = position
        elif chance.random() < _AIMED:
            position = targets[game_id]
        body = {"game_id": str(game_id), "position": position}
        yield _row(number, "StartNewRound" if starts else "FireAt", body, _uuid(chance), begin)


def _row(number: int, type_: str, body: dict[str, Any], message_id: UUID, begin: datetime) -> Row:
    return {
        "message_id": str(message_id),
        "type": type_,
        "body": json.dumps(body),
        "sequence": number,
        "enqueued_at": begin + number * _BETWEEN,
    }


def _uuid(chance: random.Random) -> UUID:
    return UUID(int=chance.getrandbits(128), version=4)

"""Message logs of the shooting range, as short as a test can read."""

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from uuid import UUID

from samples.shooting_range.log import generate

GAME = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
OTHER_GAME = "00000000-0000-4000-8000-000000000002"


def message_id(number: int) -> str:
    return str(UUID(int=number, version=4))


def start(number: int, position: int, game: str = GAME, **fields: Any) -> dict[str, Any]:
    return row(number, "StartNewRound", {"game_id": game, "position": position}, **fields)


def fire(number: int, position: int, game: str = GAME, **fields: Any) -> dict[str, Any]:
    return row(number, "FireAt", {"game_id": game, "position": position}, **fields)


def row(number: int, type_: str, body: Any, **fields: Any) -> dict[str, Any]:
    text = body if isinstance(body, str) else json.dumps(body)
    return {"message_id": message_id(number), "type": type_, "body": text, "sequence": number} | fields


def write_lines(path: Path, rows: Iterable[dict[str, Any] | str]) -> str:
    """Write a log of JSON lines; a text stands on its line as it is."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [row if isinstance(row, str) else json.dumps(row) for row in rows]
    path.write_text("".join(f"{line}\n" for line in lines))
    return str(path)


def generated(path: Path, games: int, messages: int, **options: Any) -> str:
    rows = generate(games, messages, **options)
    return write_lines(path, ({**row, "enqueued_at": row["enqueued_at"].isoformat()} for row in rows))

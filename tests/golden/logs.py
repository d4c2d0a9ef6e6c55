"""The logs of the golden scenarios. They are written once and committed: no change of code may change them."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from samples.shooting_range.log import generate

FOLDER = Path(__file__).parent / "corpus"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LANE = "lane-1"

Row = dict[str, Any]

_COLUMNS = {
    "message_id": pa.string(),
    "type": pa.string(),
    "body": pa.string(),
    "business_id": pa.string(),
    "sequence": pa.int64(),
    "enqueued_at": pa.timestamp("us", tz="UTC"),
    "headers": pa.map_(pa.string(), pa.string()),
}


def write() -> None:
    """Write the logs anew."""
    FOLDER.mkdir(exist_ok=True)
    rows = [*_games(), *_rulings(), *_refused()]
    lines = [json.dumps(row, default=str) for row in rows]
    lines += ['{"type": "FireAt", "body": {}}', "no JSON"]
    (FOLDER / "log.jsonl").write_text("\n".join(lines) + "\n")
    long = list(generate(1, 1000, duplicates=0.02, seed=5, begin=BEGIN))
    columns = {
        name: pa.array([_cell(row.get(name)) for row in [*rows, *long]], type_)
        for name, type_ in _COLUMNS.items()
    }
    pq.write_table(pa.table(columns), FOLDER / "log.parquet")


def lines() -> list[Row]:
    """Return the rows of the JSON lines that are envelopes."""
    found = [json.loads(line) for line in (FOLDER / "log.jsonl").read_text().splitlines()[:-1]]
    return [row for row in found if "message_id" in row]


def _cell(value: Any) -> Any:
    return list(value.items()) if isinstance(value, dict) else value


def _games() -> list[Row]:
    """Four games, out of order and with duplicates."""
    return list(generate(4, 40, duplicates=0.25, shuffle=True, begin=BEGIN))


def _row(number: int, type_: str, body: object, **fields: object) -> Row:
    text = body if isinstance(body, str) else json.dumps(body)
    return {
        "message_id": f"golden-{number}",
        "type": type_,
        "body": text,
        "sequence": 1000 + number,
        **fields,
    }


def _ruling(number: int, words: str, lane: str = LANE, length: int = 0, **fields: object) -> Row:
    return _row(number, "Ruled", {"lane": lane, "words": words, "length": length}, **fields)


def _rulings() -> list[Row]:
    headers = {"trace": "4bf92f", "origin": "lane"}
    return [
        _ruling(1, "twice", headers=headers, enqueued_at=BEGIN),
        _ruling(2, "nothing"),
        _ruling(1, "twice", headers=headers, enqueued_at=BEGIN),
        _ruling(3, "fail"),
        _ruling(4, "large", length=40_000),  # more than a header holds
        _ruling(5, "small again"),
        _ruling(4, "large", length=40_000),
        _ruling(2, "nothing"),
        _ruling(3, "fail"),
        _ruling(6, "\u00fcber \u4f60\u597d \U0001f3af", lane="l\u00e4ne/2 #?%"),
    ]


def _refused() -> list[Row]:
    game = "00000000-0000-4000-8000-000000000001"
    shot = {"game_id": game, "position": 3}
    return [
        _ruling(5, "other words under the same id"),
        _ruling(10, "too large", length=400_000),
        _ruling(11, "late for ever", enqueued_at=datetime(2099, 1, 1, tzinfo=UTC)),
        _ruling(12, "long", lane="k" * 1500),
        _row(13, "Unheard", {}),
        _row(14, "FireAt", {"game_id": game, "position": "left"}),
        _row(15, "FireAt", {"position": 3}),
        _row(16, "FireAt", shot, business_id="00000000-0000-4000-8000-000000000002"),
        _row(17, "FireAt", "no JSON"),
        _row(18, "FireAt", shot, business_id=game),
        _row(18, "FireAt", {**shot, "position": 4}, business_id=game),
    ]

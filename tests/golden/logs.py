"""The logs of the golden scenarios, which were generated once: games, rulings of a referee, and invalid deliveries.

`log.parquet` has the same rows and a long game. No change of code may change the logs. New kinds of rows are added by
hand.
"""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent / "corpus"
BEGIN = datetime(2026, 1, 1, tzinfo=UTC)
LANE = "lane-1"

Row = dict[str, Any]


def lines() -> list[Row]:
    """Return the rows of the JSON lines that are envelopes."""
    found = [json.loads(line) for line in (FOLDER / "log.jsonl").read_text().splitlines()[:-1]]
    return [row for row in found if "message_id" in row]

"""`python -m samples.flights` prints a message log: three flights a day for three weeks."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

_KILOMETRES = {"ZRH-JFK": 6300, "ZRH-LHR": 790, "ZRH-LIS": 1720, "ZRH-MUC": 260}
_BEGIN, _BETWEEN = datetime(2026, 3, 2, tzinfo=UTC), timedelta(hours=8)


def generate(flights: int = 63, seed: int = 1) -> Iterator[dict[str, Any]]:
    """Yield the rows of a message log: a flight every eight hours. The same seed yields the same log."""
    chance = random.Random(seed)
    for number in range(flights):
        route, customer = chance.choice(sorted(_KILOMETRES)), chance.choice(("ada", "edsger", "grace"))
        body = {"customer": customer, "route": route, "kilometres": _KILOMETRES[route]}
        time = (_BEGIN + number * _BETWEEN).isoformat()
        yield {"message_id": f"f{number}", "type": "Flown", "enqueued_at": time, "body": body}


if __name__ == "__main__":
    sys.stdout.writelines(f"{json.dumps(row)}\n" for row in generate())

"""The log of the sample."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

SHOOTING_RANGE_LOG = "samples.shooting_range.log"
"""By name: the runtime works without the samples."""


def generate_log(games: int, messages: int, **options: Any) -> Iterator[dict[str, Any]]:  # noqa: ANN401 - of the sample
    """Give the rows of a shooting range log."""
    rows: Iterator[dict[str, Any]] = importlib.import_module(SHOOTING_RANGE_LOG).generate(
        games, messages, **options
    )
    return rows

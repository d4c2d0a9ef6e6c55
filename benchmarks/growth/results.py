"""The file that keeps what a run found."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any

from benchmarks.growth.curve import Curve
from benchmarks.growth.series import Plan
from benchmarks.results import machine, packages


def write_results(
    curves: Sequence[Curve],
    plans: Mapping[str, Plan],
    *,
    size: str,
    begun: datetime,
    code: str,
    folder: Path,
) -> Path:
    """Write the file of a run and return its path."""
    found: Mapping[str, Any] = {
        "begun": begun.isoformat(),
        "size": size,
        "code": code,
        "machine": machine(1),
        "packages": packages(),
        "series": {
            curve.name: {
                "turns": plans[curve.name].turns,
                "messages": plans[curve.name].messages,
                **curve.as_json(),
            }
            for curve in curves
        },
    }
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{begun:%Y-%m-%d}-growth-{size}.json"
    path.write_text(json.dumps(found, indent=2) + "\n")
    return path

"""What a run of the benchmarks found, and the file that keeps it."""

from __future__ import annotations

import json
import os
import platform
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from importlib.metadata import distributions
from pathlib import Path
from typing import Any

from benchmarks.catalogue import COMPARISONS, LIMITS, Comparison
from benchmarks.contender import Measurement
from benchmarks.host import Started
from benchmarks.sizes import Size

FOLDER = Path(__file__).parent / "results"


@dataclass(frozen=True, slots=True)
class Ratio:
    """A comparison with what was measured: pair by pair of the same turn, and the median of the pairs."""

    comparison: Comparison
    pairs: Sequence[float]

    @property
    def median(self) -> float:
        """The median of the pairs."""
        return statistics.median(self.pairs)

    @property
    def is_met(self) -> bool | None:
        """Whether the goal is reached, None when there is none."""
        goal = self.comparison.goal
        return None if goal is None else self.median >= goal


@dataclass(slots=True)
class Results:
    """All measurements by contender, in the order of the turns, and who was left out and why."""

    size: Size
    cores: int
    begun: datetime
    code: str
    code_at_the_end: str = ""
    started: dict[str, Started] = field(default_factory=dict)
    measured: dict[str, list[Measurement]] = field(default_factory=dict)
    left_out: dict[str, str] = field(default_factory=dict)

    @property
    def is_of_one_code(self) -> bool:
        """Whether the code stayed as it was from the beginning to the end."""
        return self.code == self.code_at_the_end

    def ratios(self) -> list[Ratio]:
        """Return the comparisons of which both sides were measured."""
        return [
            Ratio(comparison, self._pairs(comparison))
            for comparison in COMPARISONS
            if self.measured.get(comparison.one) and self.measured.get(comparison.other)
        ]

    def limits(self) -> list[tuple[str, float, float]]:
        """Return the facts that have a limit: in words, the median of what was found, and the most aimed at."""
        return [
            (
                f"{limit.fact.replace('_', ' ')} of {limit.contender}",
                statistics.median(one.facts[limit.fact] for one in self.measured[limit.contender]),
                limit.goal,
            )
            for limit in LIMITS
            if self.measured.get(limit.contender)
        ]

    def as_json(self) -> Mapping[str, Any]:
        """Return everything as it is kept."""
        return {
            "begun": self.begun.isoformat(),
            "size": asdict(self.size),
            "code": {"at_the_beginning": self.code, "at_the_end": self.code_at_the_end},
            "machine": machine(self.cores),
            "packages": packages(),
            "contenders": {
                name: {
                    **asdict(self.started[name]),
                    "measurements": [asdict(one) | {"rate": one.rate} for one in measurements],
                }
                for name, measurements in self.measured.items()
            },
            "left_out": self.left_out,
            "ratios": [
                {**asdict(ratio.comparison), "pairs": list(ratio.pairs), "median": ratio.median}
                for ratio in self.ratios()
            ],
            "limits": [
                {"what": what, "median": median, "goal": goal} for what, median, goal in self.limits()
            ],
        }

    def write(self, folder: Path = FOLDER) -> Path:
        """Write the file of this run and return its path."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.begun:%Y-%m-%d}-{self.size.name}.json"
        path.write_text(json.dumps(self.as_json(), indent=2) + "\n")
        return path

    def _pairs(self, comparison: Comparison) -> list[float]:
        pairs = zip(self.measured[comparison.one], self.measured[comparison.other], strict=False)
        if comparison.fact is None:
            return [one.rate / other.rate for one, other in pairs]
        return [other.facts[comparison.fact] / one.facts[comparison.fact] for one, other in pairs]


def now() -> datetime:
    """Return the time at which a run begins."""
    return datetime.now(UTC)


def machine(cores: int) -> Mapping[str, Any]:
    """Return what is known of this machine."""
    return {
        "cores_used": cores,
        "cores": os.cpu_count(),
        "system": platform.platform(),
        "processor": _processor(),
        "python": platform.python_version(),
        "load_average": os.getloadavg(),
    }


def _processor() -> str:
    cpus = Path("/proc/cpuinfo")
    lines = cpus.read_text().splitlines() if cpus.exists() else []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.processor())


def packages() -> Mapping[str, str]:
    """Return the versions of all packages that are installed."""
    return {
        package.name: package.version
        for package in sorted(distributions(), key=lambda package: package.name.lower())
    }

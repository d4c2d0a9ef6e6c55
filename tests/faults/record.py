"""What a campaign has done so far, kept in a file for each part, so that it can be stopped and goes on."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from tests.faults.trial import Trial

_MOST_KEPT = 20


@dataclass
class Record:
    """The totals of one part. `kills` are counted by what was killed and while what was done."""

    trials: int = 0
    seconds: float = 0
    differing: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return what a file has, nothing when there is none."""
        if not file.exists():
            return cls()
        values = json.loads(file.read_text())
        return cls(**{**values, "kills": Counter(values["kills"])})

    def write(self, file: Path) -> None:
        """Keep it in a file, which is replaced at once."""
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(json.dumps(vars(self), indent=1, sort_keys=True) + "\n")
        new.replace(file)

    def add(self, trial: Trial, seconds: float) -> None:
        """Take the next trial."""
        self.trials += 1
        self.seconds += seconds
        self.kills.update(trial.kills)
        if trial.differences:
            self.differing += 1
            shown = [f"trial {self.trials - 1}: {each}" for each in trial.differences]
            self.differences = (self.differences + shown)[:_MOST_KEPT]

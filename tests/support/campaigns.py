"""What kill campaigns share: trials, totals that survive an interruption, tables in pages, and processes."""

import argparse
import json
import re
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

ROOT = Path(__file__).parents[2]
_MOST_KEPT = 20


@dataclass
class Trial:
    """One disturbed run: kills by victim and moment, and how the end differs from that of an undisturbed run."""

    kills: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)


@dataclass
class Record:
    trials: int = 0
    seconds: float = 0
    differing: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    differences: list[str] = field(default_factory=list)

    @classmethod
    def read(cls, file: Path) -> Self:
        """Return the totals in a file, or empty ones if there is no file."""
        if not file.exists():
            return cls()
        values = json.loads(file.read_text())
        return cls(**{**values, "kills": Counter(values["kills"])})

    def write(self, file: Path) -> None:
        """Replace the file atomically."""
        file.parent.mkdir(parents=True, exist_ok=True)
        new = file.with_suffix(".new")
        new.write_text(json.dumps(vars(self), indent=1, sort_keys=True) + "\n")
        new.replace(file)

    def add(self, trial: Trial, seconds: float) -> None:
        self.trials += 1
        self.seconds += seconds
        self.kills.update(trial.kills)
        if trial.differences:
            self.differing += 1
            shown = [f"trial {self.trials - 1}: {each}" for each in trial.differences]
            self.differences = (self.differences + shown)[:_MOST_KEPT]


def options(name: str, description: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog=f"python -m {name}", description=description)
    parser.add_argument("--seed", type=int, default=1, help="determines all that is drawn at random")
    parser.add_argument("--results", type=Path, default=ROOT / ".faults", help="folder of finished trials")
    parser.add_argument("--dry", action="store_true", help="leave the pages unchanged")
    return parser


def section(name: str, page: Path) -> str:
    """Return the text between the marks of a name."""
    match = _marked(name).search(page.read_text())
    assert match is not None, f"{page} has no section {name}"
    return match[2].strip()


def rewrite(name: str, text: str, page: Path) -> None:
    """Replace the text between the marks of a name."""
    new, count = _marked(name).subn(
        lambda match: f"{match[1]}\n{text.strip()}\n\n{match[3]}", page.read_text()
    )
    assert count == 1, f"{page} has no section {name}"
    page.write_text(new)


def _marked(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name} -->\n)(.*?)(<!-- end of {name} -->)", re.DOTALL)


def children(pid: int) -> list[int]:
    """Return the processes that were started by any thread of a process, and not yet waited for."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += map(int, task.read_text().split())
    return found


def wait_until(condition: Callable[[], object], seconds: float, pause: float = 0.1) -> bool:
    """Return whether a condition becomes true within some seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(pause)
    return True

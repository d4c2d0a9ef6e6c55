"""The folder of the demo: made anew at each start, and removed only if an earlier demo made it."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

from runtime.cli.failures import NotPossibleError

NAME = "demo-output"

_MARK = ".made-by-consistent-demo"


@dataclass(frozen=True, slots=True)
class DemoFolder:
    """Where the demo keeps its logs, its store and its outcomes."""

    path: Path

    @classmethod
    def make(cls, path: Path = Path(NAME)) -> DemoFolder:
        """Make the folder anew. Raises `NotPossibleError` when there is one that no demo made."""
        if path.exists() or path.is_symlink():
            if path.is_symlink() or not (path / _MARK).is_file():
                raise NotPossibleError(f"{path} is there and was not made by the demo: move it away first.")
            shutil.rmtree(path)
        path.mkdir(parents=True)
        (path / _MARK).write_text("The next `consistent demo` removes this folder.\n", encoding="utf-8")
        return cls(path)

    @property
    def store(self) -> str:
        """The url of the store."""
        return f"sqlite:///{self.path}/store.db"

    @property
    def outcomes(self) -> str:
        """Where batches write their outcomes."""
        return f"{self.path}/outcomes"

    @property
    def spark_log(self) -> Path:
        """Where Spark prints."""
        return self.path / "spark.log"

    def log(self, name: str) -> Path:
        """Return where a message log is."""
        return self.path / f"{name}.parquet"

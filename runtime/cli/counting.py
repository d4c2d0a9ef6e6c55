"""The progress of work that is counted in rows: on a terminal a line that changes, in a file a line now and then."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.status import Status
from rich.text import Text

from runtime.cli.console import notes
from runtime.cli.progress import LINE_EVERY_SECONDS


class RowCount:
    """Shows what is being done, and with how many rows it was done."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or notes()
        self._status: Status | None = None
        self._said = time.monotonic()

    def __enter__(self) -> Self:
        if self._console.is_terminal:
            self._status = self._console.status("")
            self._status.start()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if self._status is not None:
            self._status.stop()

    def tell(self, step: str, rows: int) -> None:
        """Show a step and its rows."""
        line = Text(f"{step}: {rows:,} rows")
        if self._status is not None:
            self._status.update(line)
        elif time.monotonic() - self._said >= LINE_EVERY_SECONDS:
            self._said = time.monotonic()
            self._console.print(line, soft_wrap=True)

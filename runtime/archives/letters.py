"""Letters that truncation gives up, as lines of JSON."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path

from runtime.archives.files import Part

LETTER_PARTS = "letters-*.jsonl"


class LetterPart(Part):
    """A file of letters in the making: `add` lines, then `close`."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / f"letters-{uuid.uuid4().hex}.jsonl")

    def add(self, line: str) -> None:
        """Add a letter, which is a line of JSON."""
        encoded = f"{line}\n".encode()
        self._stream.write(encoded)
        self._written.update(encoded)

    def _read_back(self, path: Path) -> Iterator[bytes]:
        with path.open("rb") as file:
            yield from file

"""Letters that truncation gives up, as lines of JSON: a file gets its name once it is on the disk and was read back."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import BinaryIO, Self

from runtime.archives.digest import SetDigest
from runtime.archives.files import sync_folder
from runtime.errors import ArchiveError

PARTS = "letters-*.jsonl"
UNFINISHED = "-unfinished"


class LetterPart:
    """A file of letters in the making: `add` lines, then `close`. Without letters there is no file."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / f"letters-{uuid.uuid4().hex}.jsonl"
        self._unfinished = self._path.with_name(f"{self._path.name}{UNFINISHED}")
        self._file: BinaryIO | None = None
        self._written = SetDigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.close()
            self._unfinished.unlink(missing_ok=True)

    def add(self, line: str) -> None:
        """Add a letter, which is a line of JSON."""
        if self._file is None:
            self._file = self._unfinished.open("wb")
        encoded = f"{line}\n".encode()
        self._file.write(encoded)
        self._written.add(encoded)

    def close(self) -> int:
        """Return how many letters are in the file, once it is on the disk and was read back. Raises `ArchiveError`."""
        if self._file is None:
            return 0
        self._file.flush()
        os.fsync(self._file.fileno())
        self._file.close()
        found = SetDigest()
        with self._unfinished.open("rb") as file:
            for line in file:
                found.add(line)
        if found != self._written:
            raise ArchiveError(f"The file {self._unfinished} does not hold what was written to it.")
        self._unfinished.rename(self._path)
        self._file = None
        sync_folder(self._path.parent)
        return found.count

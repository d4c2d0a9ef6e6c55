"""Parts of an export: a file gets its name once it is on the disk and was read back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from typing import Generic, Protocol, Self, TypeVar

from runtime.archives.digest import SetDigest
from runtime.archives.files import sync_folder
from runtime.errors import ArchiveError

UNFINISHED = "-unfinished"
"""The end of a file's name until it is whole."""


class InTheMaking(Protocol):
    """A file that is being written."""

    def __exit__(self, *error: object) -> None:
        """Close it as it is."""

    def close(self) -> object:
        """Return once all of it is on the disk."""


F = TypeVar("F", bound=InTheMaking)


class Part(ABC, Generic[F]):
    """A file in the making: add to it, then `close`. Without content there is no file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.with_name(f"{path.name}{UNFINISHED}")
        self._file: F | None = None
        self._written = SetDigest()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        if self._file is not None:
            self._file.__exit__()
            self._unfinished.unlink(missing_ok=True)

    def close(self) -> int:
        """Return how much is in the file, once it is on the disk and was read back.

        Raises `ArchiveError` when it holds anything else than was written.
        """
        if self._file is None:
            return 0
        self._file.close()
        found = SetDigest()
        for each in self._read_back(self._unfinished):
            found.add(each)
        if found != self._written:
            raise ArchiveError(f"The file {self._unfinished} does not hold what was written to it.")
        self._unfinished.rename(self._path)
        self._file = None
        sync_folder(self._path.parent)
        return found.count

    @abstractmethod
    def _read_back(self, path: Path) -> Iterator[bytes]:
        """Give what a file holds, each as it was taken into the digest."""

"""The manifest of an exported table: which files it has, and what they must hold. Written last, read first."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from runtime.archives.files import reading, write_document
from runtime.errors import ArchiveError

NAME = "manifest.json"
FORMAT = 1


@dataclass(frozen=True, slots=True)
class PartFile:
    """A file of an export: how many rows it has, their digest, and its size in bytes."""

    name: str
    rows: int
    digest: str
    bytes: int


@dataclass(frozen=True, slots=True)
class Manifest:
    """An exported table: its rows in all, their digest, and the files that they are in."""

    table: str
    rows: int
    digest: str
    files: tuple[PartFile, ...]

    @property
    def bytes(self) -> int:
        """The size of all files."""
        return sum(file.bytes for file in self.files)

    def write(self, folder: Path) -> None:
        """Write the manifest into a folder, which makes an export of it."""
        write_document(folder / NAME, {"format": FORMAT, **asdict(self)})


def read_manifest(folder: Path) -> Manifest:
    """Read the manifest of an export. Raises `ArchiveError`."""
    path = folder / NAME
    if not path.exists():
        raise ArchiveError(
            f"There is no export in {folder}: no {NAME}, which `consistent export` writes at its end."
        )
    with reading(path):
        document = json.loads(path.read_text(encoding="utf-8"))
        found = document["format"]
        if found == FORMAT:
            return _manifest(document)
    raise ArchiveError(
        f"The export in {folder} has the format {found}; this version reads the format {FORMAT}."
    )


def _manifest(document: Mapping[str, Any]) -> Manifest:
    files = tuple(PartFile(**file) for file in document["files"])
    return Manifest(document["table"], document["rows"], document["digest"], files)

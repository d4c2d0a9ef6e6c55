"""Attempts at a round on an object store, which moves no folders: the ledger says which one counts, then it is copied.

An object appears as a whole or not at all; a folder of them does not. So the files of an attempt are merged into one,
as long as that does not get too large, and what is put in place is one object. Before that, the attempt writes down
which files it has, and the ledger takes its name, unless it has that of another. From then on the round is decided:
whoever goes on with the batch copies the same files under the same names, so nobody has to find out who else is at
work, or to take anything back.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

from runtime.batches.marks import mark_of
from runtime.file_systems import Folder

MERGED_UP_TO = 4 * 2**30
"""Up to so many bytes the files of a round become one. S3 copies objects of up to 5 GB at once."""

_MANIFEST = "_files"
_UNFINISHED = "-unfinished"


@dataclass(frozen=True, slots=True)
class DecidedAttempt:
    """An attempt, in a hidden folder of its own; `token` is that of its batch."""

    folder: Folder
    token: str

    def write_manifest(self, sizes: Mapping[str, int]) -> None:
        """Write down which files it has, and of what sizes."""
        self.folder.put(_MANIFEST, json.dumps(sizes).encode())

    def is_there(self) -> bool:
        """Say whether its files are there still. They are deleted when they have been copied."""
        return _MANIFEST in self.folder.sizes()

    def put_in_place(self, target: Folder) -> None:
        """Copy its files, beside a mark that says while they are not complete. May be done twice, or by two at once.

        What an attempt has left that does not count is deleted. Raises `OSError` when its own files are gone.
        """
        with self.folder.read(_MANIFEST) as file:
            sizes: Mapping[str, int] = json.loads(file.read())
        mark = mark_of(self.token, sizes)
        unfinished = f"{mark}{_UNFINISHED}"
        target.create()
        target.touch(unfinished)
        there = target.sizes()
        for name in there.keys() - {*sizes, mark, unfinished}:
            target.delete_file(name)
        for name, size in sizes.items():
            if there.get(name) != size:
                self.folder.copy_file(name, target)
        target.touch(mark)
        target.delete_file(unfinished)

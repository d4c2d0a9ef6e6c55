"""Notes of workers that died: which message they were handling.

A worker has the id of the message in memory that its keeper reads, so that to write it is to copy a few bytes. When the
worker dies with a message there, the keeper leaves a note in a folder that all workers see: the task may be tried again
on another machine.
"""

from __future__ import annotations

import mmap
import time
import uuid
from contextlib import suppress
from struct import Struct
from typing import Self

from runtime.file_systems import open_folder
from runtime.supervision.keeper import FOLDER_AT, HEAD, kept_memory

ROOM = FOLDER_AT - HEAD
"""How many bytes of an id are kept."""

_NOTHING = bytes(HEAD)
_length = Struct("<H").pack
_SECONDS_TO_WAIT = 3.0
_EVERY_SECONDS = 0.1


class Note:
    """The id of the message that is being handled, where it is read when the process has died."""

    def __init__(self, folder: str | None = None) -> None:
        """Make a note for which a keeper looks, if there is a folder for it."""
        self._folder = folder
        self._memory = mmap.mmap(-1, FOLDER_AT)

    @property
    def memory(self) -> mmap.mmap:
        """Where the id is read: `HEAD` bytes say how long it is, and up to `ROOM` follow."""
        return self._memory

    def __enter__(self) -> Self:
        if self._folder is not None:
            self._memory = kept_memory()
            text = self._folder.encode()
            self._memory[FOLDER_AT : FOLDER_AT + HEAD + len(text)] = len(text).to_bytes(HEAD, "little") + text
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()

    def write(self, message_id: str) -> None:
        """Say which message is being handled, until another one is or this is cleared."""
        text = message_id.encode("utf-8", "surrogatepass")[:ROOM]
        self._memory[: HEAD + len(text)] = _length(len(text)) + text

    def clear(self) -> None:
        """Say that none is."""
        self._memory[:HEAD] = _NOTHING


def leave(folder: str, message_id: bytes) -> None:
    """Leave a note in a folder."""
    found = open_folder(folder)
    found.create()
    with found.write(f"note-{uuid.uuid4().hex}") as file:
        file.write(message_id)


def read_notes(folder: str, *, wait: bool) -> frozenset[str]:
    """Return the ids of the messages during which a worker has died.

    `wait` says that a worker has just died, perhaps: its keeper may need a moment.
    """
    found = open_folder(folder)
    latest = time.monotonic() + (_SECONDS_TO_WAIT if wait else 0)
    while not (names := [name for name in found.names() if name.startswith("note-")]):
        if time.monotonic() >= latest:
            return frozenset()
        time.sleep(_EVERY_SECONDS)
    ids = set()
    for name in names:
        with suppress(FileNotFoundError), found.read(name) as file:
            ids.add(bytes(file.read()).decode("utf-8", "surrogatepass"))
    return frozenset(ids - {""})


def remove_notes(folder: str) -> None:
    """Delete the notes of a batch that is over."""
    found = open_folder(folder)
    found.delete()
    found.parent.delete_if_empty()

"""Notes of workers that died: which message they were handling.

A worker has the id of the message in a file that is mapped into its memory, so that to write it is to copy a few bytes.
Another process, the keeper, waits for the end of the worker, however that comes about. If the file then names a
message, the keeper leaves a note in a folder that all workers see: the task may be tried again on another machine.
"""

from __future__ import annotations

import mmap
import os
import subprocess
import sys
import tempfile
import time
import uuid
from contextlib import suppress
from typing import Self

from runtime.file_systems import open_folder

_SIZE = 2048
_HEAD = 2
_SECONDS_TO_WAIT = 3.0
_EVERY_SECONDS = 0.1
_KEEPER = (
    "import os, sys; sys.stdin.buffer.read(); number, folder = sys.argv[1:3]\n"
    "data = os.pread(int(number), 1 << 16, 0)\n"
    "size = int.from_bytes(data[:2], 'little')\n"
    "local = folder.removeprefix('file://')\n"
    "if not size: pass\n"
    "elif local.startswith('/'):\n"  # at once: what opens other folders takes a second
    "    os.makedirs(local, 0o700, exist_ok=True)\n"
    "    with open(f'{local}/note-{os.getpid()}-{os.urandom(8).hex()}', 'xb') as file: file.write(data[2:2 + size])\n"
    "else:\n"
    "    from runtime.supervision.note import leave\n"
    "    leave(folder, data[2:2 + size])\n"
)


class Note:
    """The id of the message that is being handled, where it is read when the process has died."""

    def __init__(self, folder: str | None = None) -> None:
        """Make a note for which a keeper looks, if there is a folder for it."""
        self._folder = folder
        self._keeper: subprocess.Popen[bytes] | None = None
        self._memory = mmap.mmap(-1, _SIZE)

    def __enter__(self) -> Self:
        if self._folder is None:
            return self
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
        with (
            tempfile.TemporaryFile() as file
        ):  # without a name, so that none is left when all are killed at once
            number = file.fileno()
            os.truncate(number, _SIZE)
            self._memory = mmap.mmap(number, _SIZE)
            command = [sys.executable, "-S", "-c", _KEEPER, str(number), self._folder]
            self._keeper = subprocess.Popen(  # noqa: S603 - our own
                command, stdin=subprocess.PIPE, env=environment, pass_fds=[number]
            )
        return self

    def __exit__(self, *error: object) -> None:
        self.clear()
        if self._keeper is not None:
            self._keeper.communicate()

    def write(self, message_id: str) -> None:
        """Say which message is being handled."""
        memory = self._memory
        text = message_id.encode("utf-8", "surrogatepass")[: _SIZE - _HEAD]
        size = len(text)
        memory[_HEAD : _HEAD + size] = text
        memory[0] = size & 0xFF
        memory[1] = size >> 8

    def clear(self) -> None:
        """Say that none is."""
        memory = self._memory
        memory[0] = memory[1] = 0


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

"""The keeper of a process: another process, which waits for the end of this one, however that comes about.

Both have the same file, which this process maps into its memory. If it says, in the end, that a message was being
handled, the keeper leaves a note of that in the folder that the file names. A process has one keeper as long as it
lives, as starting one costs as much as some dozens of messages.
"""

from __future__ import annotations

import atexit
import mmap
import os
import subprocess
import sys
import tempfile
from typing import NamedTuple

HEAD = 2
"""How many bytes say how long a text is that follows them."""

FOLDER_AT = 2048
"""Where the folder is in the file; the id of the message is at its beginning."""

SIZE = FOLDER_AT + HEAD + (1 << 16)

_PROGRAM = (
    "import os, sys; sys.stdin.buffer.read(); number, at = map(int, sys.argv[1:])\n"
    "data = os.pread(number, 1 << 17, 0)\n"
    "def text(at): return data[at + 2:][:int.from_bytes(data[at:at + 2], 'little')]\n"
    "message_id, folder = text(0), text(at).decode()\n"
    "local = folder.removeprefix('file://')\n"
    "if not message_id: pass\n"
    "elif local.startswith('/'):\n"  # at once: what opens other folders takes a second
    "    os.makedirs(local, 0o700, exist_ok=True)\n"
    "    name = f'note-{os.getpid()}-{os.urandom(8).hex()}'\n"
    "    with open(f'{local}/.{name}', 'xb') as file: file.write(message_id)\n"
    "    os.rename(f'{local}/.{name}', f'{local}/{name}')\n"  # or somebody might read it before it is written
    "else:\n"
    "    from runtime.supervision.note import leave\n"
    "    leave(folder, message_id)\n"
)


class _Keeper(NamedTuple):
    process: subprocess.Popen[bytes]
    memory: mmap.mmap


_keepers: dict[int, _Keeper] = {}
"""The keeper of each process: a copy of a process has none of its own, only this memory of another one's."""


def kept_memory() -> mmap.mmap:
    """Return the memory of this process that its keeper reads; start the keeper when there is none."""
    keeper = _keepers.get(os.getpid())
    if keeper is None or keeper.process.poll() is not None:
        keeper = _keepers[os.getpid()] = _start()
    return keeper.memory


@atexit.register
def _end() -> None:
    """End the keeper of a process that ends in good order: it is handling no message then."""
    keeper = _keepers.pop(os.getpid(), None)
    if keeper is not None:
        with keeper.process as process:
            process.kill()


def _start() -> _Keeper:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    # Without a name, so that none is left when all are killed at once.
    with tempfile.TemporaryFile() as file:
        number = file.fileno()
        os.truncate(number, SIZE)
        command = [sys.executable, "-S", "-c", _PROGRAM, str(number), str(FOLDER_AT)]
        process = subprocess.Popen(  # noqa: S603 - our own
            command, stdin=subprocess.PIPE, env=environment, pass_fds=[number]
        )
        return _Keeper(process, mmap.mmap(number, SIZE))

"""Messages that kill the process: after two deaths of consumers on this machine they become dead letters.

Each process notes the message that it handles in a file of its own. The file is mapped into memory, so a note costs no
system call, and outlives the process. A consumer that starts counts the notes of processes that have ended.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import mmap
import os
import signal
import tempfile
import threading
import uuid
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path

from eventstore import Table
from eventstore.port import place_of
from handlers import Context, Message, State
from handlers.app import CallInterceptor, Method
from runtime.algorithms.algorithm import CallCrashedError
from runtime.serve.options import ServeOptions
from runtime.supervision import Alarm, Watch

_DEATHS = 2
_SIZE = 16  # bytes of a note: the hash of a message, zeros between calls


class _Noted(CallInterceptor):
    """Notes the message of each call, and rejects messages that have killed consumers. `inner` limits the time."""

    def __init__(self, inner: Alarm | Watch, note: mmap.mmap, salt: bytes, fatal: frozenset[bytes]) -> None:
        self._note, self._salt, self._fatal = note, salt, fatal
        self.call, self.parse = inner.call, inner.parse  # type: ignore[method-assign]

    def method(self, method: Method) -> Method:
        @functools.wraps(method)
        def call(state: State, message: Message, context: Context) -> State:
            key = hashlib.blake2b(context.message_id.encode(), digest_size=_SIZE, key=self._salt).digest()
            if key in self._fatal:
                raise CallCrashedError(f"The message was being handled when {_DEATHS} consumers died.")
            self._note[:] = key
            try:
                return method(state, message, context)
            finally:
                self._note[:] = bytes(_SIZE)

        return call


@contextmanager
def guarded(table: Table, options: ServeOptions) -> Iterator[CallInterceptor]:
    """Limit the time of handlers, and record the message that each handles in the folder `options.crashes`.

    A handler that ignores signals ends the process, if the consumer runs in the main thread.
    """
    seconds = options.handler_timeout.total_seconds()
    is_main = threading.current_thread() is threading.main_thread()
    watches = is_main and signal.getsignal(signal.SIGALRM) is signal.SIG_DFL
    folder = Path(options.crashes or f"{tempfile.gettempdir()}/consistent-serve-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    salt = hashlib.blake2b("\0".join(place_of(table)).encode(), digest_size=_SIZE).digest()
    fatal = _fatal(folder)
    with (
        Watch(seconds) if watches else nullcontext(Alarm(seconds)) as inner,
        tempfile.NamedTemporaryFile(dir=folder, suffix=".note") as file,
    ):
        fcntl.flock(file, fcntl.LOCK_EX)
        file.truncate(_SIZE)
        with mmap.mmap(file.fileno(), _SIZE) as note:
            yield _Noted(inner, note, salt, fatal)


def _fatal(folder: Path) -> frozenset[bytes]:
    """Return the hashes of messages that killed too many consumers. Collects the notes of dead processes."""
    for path in folder.glob("*.note"):
        with suppress(OSError), path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held as long as its process lives
            noted = file.read()
            if any(noted):
                path.rename(folder / f"{noted.hex()}.{uuid.uuid4().hex}")
            elif noted:  # not one that is about to be locked
                path.unlink()
    deaths = Counter(path.stem for path in folder.iterdir() if path.suffix != ".note")
    return frozenset(bytes.fromhex(name) for name, count in deaths.items() if count >= _DEATHS)

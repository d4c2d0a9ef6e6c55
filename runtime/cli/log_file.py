"""The log file: what Spark prints, and the full traces of errors that nobody expected.

It is `.consistent/consistent.log` in the working directory unless `--log-file` names another. It is appended to, and
begun anew when it has grown over a limit; the one before is kept beside it.
"""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

DEFAULT = Path(".consistent", "consistent.log")
LIMIT_BYTES = 10 * 2**20

_IGNORE_ALL = "# Nothing here belongs into version control.\n*\n"


def prepare_log(path: Path | None = None) -> Path:
    """Return the log file to use, its folder made. Raises `OSError` when it cannot be written."""
    chosen = path or DEFAULT
    chosen.parent.mkdir(parents=True, exist_ok=True)
    if path is None:
        _keep_out_of_version_control(chosen.parent)
    if chosen.is_file() and chosen.stat().st_size > LIMIT_BYTES:
        chosen.replace(chosen.with_name(f"{chosen.name}.1"))
    chosen.open("ab").close()
    return chosen


def append_trace(error: BaseException, path: Path | None = None) -> Path | None:
    """Write the trace of an error to the log file and return the file, None when it cannot be written."""
    try:
        chosen = prepare_log(path)
        with chosen.open("a", encoding="utf-8") as log:
            log.write(f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}\n")
            log.writelines(traceback.format_exception(error))
    except OSError:
        return None
    return chosen


@contextmanager
def logging_to(path: Path) -> Iterator[None]:
    """Let what Python's logging is told go to the log file, and not to the terminal."""
    handler = logging.FileHandler(path)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
        handler.close()


def _keep_out_of_version_control(folder: Path) -> None:
    ignore = folder / ".gitignore"
    if not ignore.exists():
        ignore.write_text(_IGNORE_ALL, encoding="utf-8")

"""Message logs as commands are given them: looked at before Spark is started."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from runtime.errors import LogError, UsageError

_HADOOP_SETTINGS = "HADOOP_CONF_DIR"
_PATTERN_SIGNS = "*?[{"


def check_log(path: str, master: str, format_: str | None) -> int | None:
    """Return the size of a log in bytes, None where it is not on the disks of this machine.

    Raises `LogError` for what is no log of this format, as far as that can be told without Spark.
    """
    if not path:
        raise UsageError("--messages is empty: name a file or folder.")
    if not _is_here(path, master):
        return None
    from runtime.spark.logs.finding import find_files
    from runtime.spark.logs.listing import DiskListing

    files = find_files(DiskListing(), [path], format_).files
    return sum(Path(file.url).stat().st_size for file in files)


def check_source(folder: str, master: str, written: Mapping[str, str]) -> None:
    """Raise `LogError` when the folder of a stream is none, as far as that can be told without Spark.

    `written` are the folders that the stream writes to, by their options: none of them may be in the source.
    """
    if any(sign in folder for sign in _PATTERN_SIGNS):
        raise LogError(
            f"--source names one folder, and {folder} has one of {' '.join(_PATTERN_SIGNS)}, a pattern to Spark."
        )
    if not _is_here(folder, master):
        return
    if not Path(folder).is_dir():
        raise LogError(f"There is no folder {folder}: --source names the one that files come into.")
    for option, other in written.items():
        if ":" not in other and Path(other).resolve().is_relative_to(Path(folder).resolve()):
            raise LogError(
                f"{option} {other} is in the folder of --source, {folder}, all of whose files are messages: choose "
                f"another {option}."
            )


def _is_here(path: str, master: str) -> bool:
    """Say whether a path is certainly one of the disks of this machine."""
    return ":" not in path and _HADOOP_SETTINGS not in os.environ and master.startswith("local")

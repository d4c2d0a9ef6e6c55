"""Message logs as commands are given them: looked at before Spark is started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from runtime.errors import LogError, UsageError

_PATTERN_SIGNS = "*?[{"


def check_log(path: str, master: str, format_: str | None) -> int | None:
    """Return the size of a log in bytes, None where it is not on the disks of this machine.

    Raises `LogError` for what is no log of this format, as far as that can be told without Spark.
    """
    if not path:
        raise UsageError("--messages is empty: name a file or folder.")
    from runtime.spark.logs.read import find_on_disk, is_on_disk

    if not is_on_disk(path, master):
        return None
    return sum(Path(file).stat().st_size for file in find_on_disk([path], format_).files)


def check_source(folder: str, master: str, written: Mapping[str, str]) -> None:
    """Raise `LogError` when the folder of a stream is none, as far as that can be told without Spark.

    `written` are the folders that the stream writes to, by their options: none of them may be in the source.
    """
    if any(sign in folder for sign in _PATTERN_SIGNS):
        raise LogError(
            f"--source names one folder, and {folder} has one of {' '.join(_PATTERN_SIGNS)}, a pattern to Spark."
        )
    from runtime.spark.logs.read import is_on_disk

    if not is_on_disk(folder, master):
        return
    if not Path(folder).is_dir():
        raise LogError(f"There is no folder {folder}: --source names the one that files come into.")
    for option, other in written.items():
        if ":" not in other and Path(other).resolve().is_relative_to(Path(folder).resolve()):
            raise LogError(
                f"{option} {other} is in the folder of --source, {folder}, all of whose files are messages: choose "
                f"another {option}."
            )

"""Message logs as commands are given them: looked for before Spark is started."""

from __future__ import annotations

import os
from pathlib import Path

from runtime.errors import LogError

_HADOOP_SETTINGS = "HADOOP_CONF_DIR"
_PATTERN_SIGNS = "*?[{"


def check_log(path: str, master: str) -> None:
    """Raise `LogError` when a log is not there, as far as that can be told without Spark."""
    is_elsewhere = ":" in path or _HADOOP_SETTINGS in os.environ or not master.startswith("local")
    if is_elsewhere or any(sign in path for sign in _PATTERN_SIGNS):
        return
    if not Path(path).exists():
        raise LogError(f"There is no log at {path}.")

"""The command line, `consistent`. Imports Spark, Arrow, pandas and Azure only in the commands that need them."""

import os
import sys
from collections.abc import Sequence

from runtime import namesakes

__all__ = ["main"]

_MISSING = (
    "Error: The command line needs {}: pip install 'consistent-messaging[spark]', or 'consistent-messaging[sql]' for "
    "the commands without Spark."
)
_OWNER_ONLY = 0o077  # files of commands, such as outcomes and exports, are readable by their user only

_TYPED_IN = "Warning: the command line contains a secret, visible in the process list and the shell history."


def main(arguments: Sequence[str] | None = None) -> None:
    """Run a command and exit. `arguments` default to those of the process.

    Exit codes: 0 success, 1 failure, 2 usage error, 3 too many dead letters, 130 Ctrl-C.
    """
    namesakes.check()
    try:
        from runtime.cli.application import application
        from runtime.cli.batch_command import holds_secret, remember
        from runtime.cli.console import Screen
        from runtime.cli.failures import answered
    except ModuleNotFoundError as error:
        sys.exit(_MISSING.format(error.name))
    remember(arguments)
    os.umask(os.umask(_OWNER_ONLY) | _OWNER_ONLY)
    option = holds_secret()
    if option is not None:
        instead = f" Put it into an environment variable, and write {option}env:NAME." if option else ""
        Screen().note(f"{_TYPED_IN}{instead}")
    with answered():
        application(args=None if arguments is None else list(arguments), prog_name="consistent")

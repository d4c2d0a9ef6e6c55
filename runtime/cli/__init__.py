"""The command line, `consistent`: quiet, quick to start, and without a stack trace for a user's mistake.

Spark, Arrow, pandas and Azure's packages are imported only by the commands that need them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence

from runtime import namesakes

__all__ = ["main"]

_MISSING = (
    "Error: The command line needs {}: pip install 'consistent-messaging[spark]', or 'consistent-messaging[sql]' for "
    "the commands that do without Spark."
)
_OWNER_ONLY = 0o077
"""What a command writes, outcomes and exports too, nobody but its user may read."""

_TYPED_IN = (
    "Warning: the command line holds a secret, which others see in the list of processes and in the history of the "
    "shell. Put it into an environment variable, and write {}env:NAME."
)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command that the arguments name, by default those of the process, and exit.

    The exit code is 0 when it was done, 1 when it failed, 2 for a usage error, 3 when a batch has too
    many dead letters, 130 after Ctrl-C.
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
    if option:
        Screen().note(_TYPED_IN.format(f"{option} NAME=" if option == "--header" else f"{option} "))
    with answered():
        application(args=None if arguments is None else list(arguments), prog_name="consistent")

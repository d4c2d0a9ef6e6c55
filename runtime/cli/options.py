"""The options that several commands share, each with what it implies."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from runtime.cli.durations import parse_duration

STORE_VARIABLE = "CONSISTENT_STORE"
TABLE_VARIABLE = "CONSISTENT_TABLE"
DEFAULT_MASTER = "local[*,4]"

StoreUrl = Annotated[
    str,
    typer.Option(
        "--store",
        envvar=STORE_VARIABLE,
        metavar="URL",
        show_default=False,
        help="The store: sqlite:///FILE, azurite, https://ACCOUNT.table.core.windows.net, or env:NAME for a "
        "connection string in an environment variable.",
    ),
]
TableName = Annotated[
    str,
    typer.Option(
        "--table",
        envvar=TABLE_VARIABLE,
        metavar="NAME",
        show_default=False,
        help="The table of the store: 3 to 63 letters and digits.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of tables.")]
Master = Annotated[
    str,
    typer.Option(
        "--master",
        metavar="MASTER",
        help="Where Spark works: local[*,4] means all cores, and four attempts for each task.",
    ),
]
LogFile = Annotated[
    Path | None,
    typer.Option(
        "--log-file",
        metavar="FILE",
        dir_okay=False,
        show_default=".consistent/consistent.log",
        help="Takes what Spark prints, and traces of unexpected errors.",
    ),
]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=0, help="Show so many at most; 0 shows all.")]
AppSpec = Annotated[
    str,
    typer.Option(
        "--app",
        metavar="MODULE:ATTRIBUTE",
        show_default=False,
        help="The App with the handlers; its module is looked for in the working directory first.",
    ),
]
Age = Annotated[
    int | None,
    typer.Option(
        "--older-than", parser=parse_duration, metavar="AGE", help="Cut versions older than 7d, 24h, 2w ..."
    ),
]
Window = Annotated[
    int,
    typer.Option(
        "--redelivery-window",
        parser=parse_duration,
        metavar="TIME",
        help="How much later than its first copy a broker may stamp another one, for logs whose broker does; "
        "moves the horizon on by as much.",
    ),
]


class LogFormat(StrEnum):
    """The formats of a message log."""

    PARQUET = "parquet"
    JSON = "json"


class Late(StrEnum):
    """What to do with a message that cannot be told from a duplicate."""

    REFUSE = "refuse"
    PROCESS = "process"


class OnDifference(StrEnum):
    """What to do when a duplicate gives something else than at first."""

    DEAD_LETTER = "dead-letter"
    FAIL = "fail"


class OnError(StrEnum):
    """What to do with the later new messages of a stream after a dead letter."""

    CONTINUE = "continue"
    STOP_STREAM = "stop-stream"

"""The options that several commands share, each with what it implies."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from runtime.cli.durations import parse_duration
from runtime.cli.sizes import parse_size

STORE_VARIABLE = "CONSISTENT_STORE"
TABLE_VARIABLE = "CONSISTENT_TABLE"
DEFAULT_MASTER = "local[*,4]"


class LogFormat(StrEnum):
    """The formats of a message log."""

    PARQUET = "parquet"
    JSON = "json"


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
Remote = Annotated[
    str | None,
    typer.Option(
        "--remote",
        metavar="sc://HOST:PORT",
        show_default=False,
        help="Work on this server of Spark Connect, whatever --master says; needs the extra `connect`.",
    ),
]
OnSpark = Annotated[
    str | None,
    typer.Option(
        "--master",
        metavar="MASTER",
        show_default=False,
        help="Work on Spark there, by ranges of the table, as on local[*,4]; without it in this process alone.",
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
        help="The App with the handlers; its module may be in the working directory, which is searched last.",
    ),
]

Messages = Annotated[
    str,
    typer.Option(
        "--messages",
        metavar="LOG",
        show_default=False,
        help="The message log: a file or folder with the columns message_id, type, body, and optionally "
        "business_id, sequence, enqueued_at, headers, handler.",
    ),
]
Format = Annotated[
    LogFormat | None,
    typer.Option("--format", help="The log's format; by default what its name says, else Parquet."),
]
Source = Annotated[
    str | None,
    typer.Option(
        "--source", metavar="NAME", help="Set the message ids of this log apart from those of other logs."
    ),
]
Partitions = Annotated[
    int | None,
    typer.Option(
        "--partitions",
        metavar="N",
        min=1,
        show_default="two for each core",
        help="Shuffle to so many partitions.",
    ),
]
MaxRounds = Annotated[
    int,
    typer.Option("--max-rounds", metavar="N", min=1, help="Stop a cascade that has not ended after so many."),
]
MaxOutputs = Annotated[
    int,
    typer.Option(
        "--max-outputs",
        metavar="N",
        min=1,
        help="Stop a cascade that has published more than so many messages for each one that it began with.",
    ),
]
MaxLine = Annotated[
    int,
    typer.Option(
        "--max-line",
        parser=parse_size,
        metavar="SIZE",
        help="Refuse longer lines of a log as too_large; a note with size, digest and the first kilobyte is kept.",
    ),
]
MaxBody = Annotated[
    int,
    typer.Option(
        "--max-body",
        parser=parse_size,
        metavar="SIZE",
        help="Refuse messages with larger bodies as too_large.",
    ),
]
MaxHeaders = Annotated[
    int,
    typer.Option(
        "--max-headers",
        parser=parse_size,
        metavar="SIZE",
        help="Refuse messages with more bytes of headers, or in an id or a type, as too_large.",
    ),
]
MaxPublished = Annotated[
    int,
    typer.Option(
        "--max-published", metavar="N", help="Refuse a message for which a handler publishes more messages."
    ),
]
MaxPublishedBytes = Annotated[
    int,
    typer.Option(
        "--max-published-bytes",
        parser=parse_size,
        metavar="SIZE",
        help="Refuse a message for which a handler publishes more bytes of bodies and headers.",
    ),
]
MaxError = Annotated[
    int,
    typer.Option("--max-error", metavar="N", help="Cut the error of a dead letter to so many characters."),
]
MaxDepth = Annotated[
    int,
    typer.Option(
        "--max-depth", metavar="N", help="Refuse JSON that is nested deeper as too_large; 200 at most."
    ),
]
HandlerTimeout = Annotated[
    int,
    typer.Option(
        "--handler-timeout",
        parser=parse_duration,
        metavar="TIME",
        help="Interrupt a handler that takes longer: its message is a dead letter, handler_timeout.",
    ),
]
WorkerMemory = Annotated[
    int,
    typer.Option(
        "--worker-memory",
        parser=parse_size,
        metavar="SIZE",
        help="How much a worker may take beside what it begins with; a handler that takes more fails.",
    ),
]
KeepLarge = Annotated[
    str | None,
    typer.Option(
        "--keep-large",
        metavar="DIR",
        show_default=False,
        help="Write what is too large of the log to DIR/ID.jsonl or DIR/ID.parquet, named after the batch: a log that "
        "can be run with higher limits.",
    ),
]


class AlgorithmChoice(StrEnum):
    """The algorithms that process a table exactly once."""

    STATE_BASED = "state-based"
    OUTBOX = "outbox"
    DEDUPLICATION_STORE = "deduplication-store"
    TOKENS = "tokens"


DeduplicationStoreUrl = Annotated[
    str | None,
    typer.Option(
        "--deduplication-store",
        metavar="URL",
        help="With --algorithm deduplication-store: the store of the ids, if it is not --store.",
    ),
]
DeduplicationTableName = Annotated[
    str | None,
    typer.Option(
        "--deduplication-table",
        metavar="NAME",
        help="With --algorithm deduplication-store: the table of the ids, if it is not --table.",
    ),
]
TokenStoreUrl = Annotated[
    str | None,
    typer.Option(
        "--token-store",
        metavar="URL",
        help="With --algorithm tokens: the store of the tokens, if it is not --store.",
    ),
]
TokenTableName = Annotated[
    str | None,
    typer.Option(
        "--token-table",
        metavar="NAME",
        help="With --algorithm tokens: the table of the tokens, if it is not --table.",
    ),
]
DocumentsUrl = Annotated[
    str | None,
    typer.Option(
        "--documents",
        metavar="URL",
        help="Where documents are kept that handlers store: a folder, s3://BUCKET/FOLDER, "
        "abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, or env:NAME for a url in an environment variable.",
    ),
]


class Late(StrEnum):
    """What to do with a message that cannot be told from a duplicate."""

    REFUSE = "refuse"
    PROCESS = "process"


class OnDifference(StrEnum):
    """What to do when the replay of a duplicate differs from what was recorded."""

    DEAD_LETTER = "dead-letter"
    FAIL = "fail"


class Draws(StrEnum):
    """Whether the draws of a new table go through a secret."""

    PLAIN = "plain"
    KEYED = "keyed"


class OnError(StrEnum):
    """What to do with the later new messages of a stream after a dead letter."""

    CONTINUE = "continue"
    STOP_STREAM = "stop-stream"
    PARK = "park"

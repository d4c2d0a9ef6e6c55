"""`consistent sample`: message logs to try things with."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from runtime.cli.console import Screen
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson
from runtime.cli.sample_log import generate_log

Games = Annotated[int, typer.Option("--games", metavar="N", min=1, help="How many games are played at once.")]
Messages = Annotated[int, typer.Option("--messages", metavar="N", min=1, help="How many different messages.")]
Duplicates = Annotated[
    float,
    typer.Option(
        "--duplicates", metavar="SHARE", min=0.0, help="Add copies of so many of them: 0.1 adds a tenth."
    ),
]
Shuffle = Annotated[bool, typer.Option("--shuffle", help="Put the deliveries in no order at all.")]
Seed = Annotated[int, typer.Option("--seed", metavar="S", help="The same seed gives the same log.")]
Out = Annotated[
    Path,
    typer.Option(
        "--out",
        metavar="LOG",
        show_default=False,
        help="The file to write: JSON lines if .jsonl, else Parquet.",
    ),
]


def shooting_range(
    *,
    out: Out,
    games: Games = 500,
    messages: Messages = 20_000,
    duplicates: Duplicates = 0.0,
    shuffle: Shuffle = False,
    seed: Seed = 1,
    as_json: AsJson = False,
) -> None:
    r"""Write a message log of games on a shooting range, as a queue would deliver it.

        consistent sample shooting-range --games 500 --messages 20000 \
            --duplicates 0.1 --shuffle --out log.parquet

    Each game begins with StartNewRound, and then come shots, FireAt. The rows are made in memory, about 1 KB each; no
    Spark is started. A file that is there already is not replaced.
    """
    if out.exists():
        raise NotPossibleError(f"{out} is there already: remove it, or write to another --out.")
    from runtime.spark.logs.files import write_log

    rows = generate_log(games, messages, duplicates=duplicates, shuffle=shuffle, seed=seed)
    written = write_log(rows, out)
    screen = Screen(as_json)
    screen.give(
        {
            "out": str(out),
            "deliveries": written,
            "messages": messages,
            "duplicates": written - messages,
            "games": games,
        }
    )
    screen.show(
        f"Wrote {written:,} deliveries of {messages:,} messages in {games:,} games to {out}.",
        f"Run them: consistent run --app samples.shooting_range:app --messages {out} --cascade "
        f"--store sqlite:///store.db --table games --out outcomes",
    )

"""The command: `python -m benchmarks delivery`."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.delivery.kills import Seen, deliver_and_kill
from benchmarks.delivery.receiver import running_receiver
from benchmarks.delivery.sender import STRATEGIES, Work
from benchmarks.marks import put_parts
from tests.plugins.redis import ON_DISK, RedisServer

PART = "kills"
STORES = ("SQLite", "Redis")
HELP = """Deliver messages to a web server that counts them, and kill the process that delivers, again and again.

For each strategy and each store of keys: what arrived, what was lost, what was sent twice, and what the records say. A
promise that is broken ends the command.
"""

cli = typer.Typer(add_completion=False)


@cli.command(help=HELP)
def main(
    messages: Annotated[int, typer.Option(help="How many messages each delivery has.")] = 10_000,
    kills: Annotated[int, typer.Option(help="How often each delivery is killed.")] = 200,
    seed: Annotated[int, typer.Option(help="The moments of the kills are drawn from it.")] = 1,
    document: Annotated[Path | None, typer.Option(help="Put the table into this page.")] = None,
) -> None:
    """Run all deliveries, print what was seen and put it into a page."""
    found: list[Seen] = []
    with running_receiver() as receiver:
        for store in STORES:
            for strategy in STRATEGIES:
                with tempfile.TemporaryDirectory() as folder, _keys(store, Path(folder)) as keys:
                    given = Work(strategy, keys, f"{folder}/records", messages, receiver.port)
                    seen = deliver_and_kill(given, kills, receiver, random.Random(seed), store)  # noqa: S311
                print(f"{seen.seconds:.0f} s: {_row(seen)}", flush=True)
                found.append(seen)
    if document is not None:
        put_parts(document, {PART: markdown(found)})


@contextmanager
def _keys(store: str, folder: Path) -> Iterator[str]:
    if store == "SQLite":
        yield f"sqlite:///{folder}/keys.db"
        return
    server = RedisServer(folder, ON_DISK)
    server.start()
    try:
        yield server.url
    finally:
        server.kill()


def markdown(found: Sequence[Seen]) -> str:
    """Return what was seen as a table."""
    head = ("strategy", "keys", "messages", "kills", "arrived", "lost", "sent twice", "`sent`", "`unknown`")
    lines = [f"| {' | '.join(head)} |", f"|---|---|{'---:|' * 7}"]
    return "\n".join(["", *lines, *map(_row, found), "", ""])


def _row(seen: Seen) -> str:
    numbers = (
        seen.messages,
        seen.kills,
        seen.requests,
        seen.lost,
        seen.duplicates,
        seen.recorded["sent"],
        seen.recorded["unknown"],
    )
    return f"| {seen.strategy} | {seen.keys} | {' | '.join(f'{number:,}' for number in numbers)} |"


if __name__ == "__main__":
    cli()

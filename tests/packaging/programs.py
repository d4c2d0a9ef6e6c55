"""What programs do that find little installed. Nothing is imported here before it is needed."""

import asyncio
import contextlib
import io
import json
from typing import Any

GAME = "7d444840-9dc0-11d1-b245-5ffdce74fad2"
AT_SEVEN: dict[str, Any] = {"game_id": GAME, "position": 7}


def consume(url: str) -> None:
    """Handle a message that starts a round, and two deliveries of a shot; print what came of it."""
    print(*asyncio.run(_consume(url)))


async def _consume(url: str) -> list[str]:
    from eventstore import connect
    from runtime import Envelope, Output, Processor
    from samples.shooting_range import app

    told = []

    async def publish(output: Output) -> None:
        told.append(output.type)

    body = json.dumps(AT_SEVEN)
    start, shot = Envelope.of("m-1", "StartNewRound", body), Envelope.of("m-2", "FireAt", body)
    async with connect(url) as store:
        processor = Processor(app, await store.table("games"), publish)
        for message in (start, shot, shot):
            told += [outcome.status.value for outcome in await processor.process(message)]
    return told


def run_commands(commands: str) -> None:
    """Run commands of the command line, and print exit code, output and errors of each."""
    print(json.dumps([_run_command(arguments) for arguments in json.loads(commands)]))


def _run_command(arguments: list[str]) -> tuple[object, str, str]:
    from runtime.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            main(arguments)
        except SystemExit as ended:
            return ended.code, out.getvalue(), err.getvalue()
    return None, out.getvalue(), err.getvalue()

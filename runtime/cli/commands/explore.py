"""`consistent explore`: look at a table in a browser."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
import uuid
from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from tempfile import NamedTemporaryFile
from typing import TYPE_CHECKING, Any

from eventstore.connect import portable_url
from runtime.batch_options import STORE_VARIABLE, TABLE_VARIABLE, TablePlace
from runtime.cli.checks import load_app, require_table
from runtime.cli.console import Screen
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import CHOSEN, of_environment
from runtime.dead_letters import FoundLetter, to_line
from runtime.options import flag, option

if TYPE_CHECKING:
    from runtime.explore import Explorer


def explore(
    *,
    states: TablePlace,
    port: int = option("The port on this machine. 0 takes a free one.", default=8765, min=0, max=65535),
    app: str | None = option("The App whose handlers replay versions.", metavar="MODULE:ATTRIBUTE"),
    out: str | None = option("The folder or URL of outcomes, if they were moved.", metavar="DIR"),
    allow_changes: bool = flag(
        "Allow discarding dead letters, and with --app and --out redriving them. Each change must be confirmed."
    ),
    env: str | None = of_environment(),
) -> None:
    r"""Look at a table in a browser: batches, objects, messages, dead letters and publications.

        consistent explore --store sqlite:///store.db --table games

    Prints a URL with a secret token, and serves this machine only, until Ctrl-C. The page of an object shows each
    version with its message, the recorded clock and values, and the changed fields. Each page links to its JSON form.

        consistent explore --app samples.shooting_range:app \
            --store sqlite:///store.db --table games

    With --app, a version can be replayed with the current handlers, which writes nothing. Without --allow-changes the
    table is only read. A page examines at most 2,000 objects.
    """
    from runtime.explore import Explorer

    loaded = load_app(app) if app else None
    states = require_table(states)
    redrive = partial(_redrive, states=states, app=app, out=out, env=env) if app and out else None
    changes: Any = {"allow_changes": allow_changes, "redrive": redrive}
    explorer = Explorer(states.store, states.table, app=loaded, out=out, **changes)
    try:
        listening = socket.create_server(("127.0.0.1", port))
    except OSError as error:
        raise NotPossibleError(f"Port {port} is in use: choose another --port.") from error
    # uvicorn completes open requests, and then raises the signal again.
    with listening, suppress(KeyboardInterrupt):
        asyncio.run(_serve(explorer, listening))


async def _serve(explorer: Explorer, listening: socket.socket) -> None:
    import uvicorn

    config = uvicorn.Config(explorer, lifespan="off", log_level="warning", server_header=False)
    url = f"http://127.0.0.1:{listening.getsockname()[1]}/?token={explorer.token}"
    Screen().show("Open this URL, and stop with Ctrl-C:", f"  {url}")
    await uvicorn.Server(config).serve(sockets=[listening])


async def _redrive(
    found: Sequence[FoundLetter], states: TablePlace, app: str, out: str, env: str | None = None
) -> str:
    """Redrive dead letters as a separate batch, in another process. Return the batch id."""
    batch_id = f"redrive-{uuid.uuid4().hex[:12]}"
    command = ["letters", "redrive", "--app", app, "--out", out, "--batch-id", batch_id]
    # Lines of an export select exactly these letters: message ids and reasons could also match other letters.
    # The URL may contain a secret, and other users see arguments. -P: nothing in the working directory is run.
    place = {STORE_VARIABLE: portable_url(states.store), TABLE_VARIABLE: states.table, CHOSEN: env or ""}
    with NamedTemporaryFile("w", encoding="utf-8", suffix=".jsonl") as lines:
        lines.writelines(f"{to_line(each)}\n" for each in found)
        lines.flush()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "runtime", *command, "--edit", lines.name, env={**os.environ, **place},
            stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        _, said = await process.communicate()
    if process.returncode:
        raise NotPossibleError(f"The redrive failed. {said.decode(errors='replace').strip()[-1000:]}")
    return batch_id

"""`consistent serve`: handle the messages of a live queue as they arrive, without Spark."""

import asyncio
import logging
import os
import signal
import threading
from collections.abc import Mapping

from eventstore import connect
from handlers import App
from runtime.batch_options import TablePlace
from runtime.cli.checks import load_app
from runtime.cli.console import Screen, counted
from runtime.cli.options import AppSpec, AsJson
from runtime.ledger.settings import open_current
from runtime.options import REQUIRED, option
from runtime.serve.options import ServeOptions
from runtime.telemetry import Lines


def serve(
    *,
    app: AppSpec,
    from_: str = option(
        "Where messages come from: stdin:, kafka://HOST:PORT/TOPIC?group=NAME, amqp://HOST/?queue=NAME, "
        "azurequeue://HOST:PORT/QUEUE, servicebus://HOST/QUEUE, or env:NAME.",
        default=REQUIRED,
        is_secret=True,
        metavar="URL",
        group="serve",
    ),
    states: TablePlace,
    publish: str | None = option(
        "The target of outputs: stdout:, kafka://HOST:PORT, amqp://..., azurequeue://..., http://... By default they "
        "are dropped.",
        is_secret=True,
        metavar="URL",
        group="serve",
        is_rare=False,
    ),
    options: ServeOptions,
    as_json: AsJson = False,
) -> None:
    r"""Handle the messages of a queue as they arrive, and acknowledge each once its outputs are published.

        consistent serve --app samples.shooting_range:app \
            --from "kafka://localhost:9092/shots?group=range" \
            --publish kafka://localhost:9092 \
            --store sqlite:///store.db --table games

    Messages of one business object are handled in order, and waiting ones are stored in one transaction. Different
    objects are handled concurrently. A rejected message becomes a dead letter of the table, and is acknowledged.
    SIGTERM or Ctrl-C finishes messages in progress and exits with 0. After a kill, unacknowledged messages are
    redelivered.
    """
    handler = logging.StreamHandler()
    handler.setFormatter(Lines("%(asctime)s %(levelname)s %(message)s"))
    logging.basicConfig(handlers=[handler])
    logging.getLogger("consistent").setLevel(logging.INFO)
    counts = asyncio.run(_serve(load_app(app), from_, states, publish, options))
    described = {str(name): count for name, count in counts.items()}
    listed = ", ".join(f"{count:,} {name}" for name, count in described.items() if name != "published")
    said = f"Handled {listed or 'nothing'}; {counted(described.get('published', 0), 'output')} published."
    if as_json or not (publish or "").startswith("stdout:"):
        Screen(as_json).put(described, said)
    else:
        Screen().note(said)  # standard output is for outputs


async def _serve(
    app: App, source: str, states: TablePlace, target: str | None, options: ServeOptions
) -> Mapping[str, int]:
    from runtime.serve.consumer import Consumer

    async with connect(states.store) as store:
        _, table = await open_current(store, states.table)
        consumer = Consumer(app, table=table, source=source, target=target, options=options)
        loop = asyncio.get_running_loop()

        def stop() -> None:
            consumer.stop()
            # A library that hangs, or a handler that ignores signals, has ten seconds more, to disconnect.
            last = threading.Timer(options.drain.total_seconds() + 10, os._exit, (1,))
            last.daemon = True
            last.start()

        for each in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(each, stop)
        return await consumer.run()

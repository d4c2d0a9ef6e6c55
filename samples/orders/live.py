"""The sample as a live shop: `python -m samples.orders --live`, or `--live kafka://HOST:PORT` on your broker.

`consistent serve` handles each order as it comes. Its outputs for handlers return to it: through a pipe, or topics
that it reads and writes in transactions. The run ends when all customers have been told.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

from samples.orders import app
from samples.orders.log import generate

Told = Generator[dict[str, str], None, None]

ORDERS = 40
HANDLED = sorted({type_ for handler in app.handlers.values() for type_ in handler.routes})
_SERVE = [
    sys.executable,
    "-m",
    "runtime",
    "serve",
    "--app",
    "samples.orders:app",
    "--store",
    "sqlite:///live.db",
]
_SERVE += ["--table", "orders", "--documents", "documents"]


def run(url: str, folder: Path) -> None:
    """Send all orders, and print the results for customers."""
    folder.mkdir(parents=True, exist_ok=True)
    orders = set[str]()
    told = _through_kafka(url, folder) if url.startswith("kafka:") else _through_a_pipe(folder)
    for each in told:
        if each["order_id"] not in orders:
            orders.add(each["order_id"])
            print(f"{each['customer']}: {each['text']}")
        if len(orders) == ORDERS:
            told.close()


def _through_a_pipe(folder: Path) -> Told:
    command, pipe = [*_SERVE, "--from", "stdin:", "--publish", "stdout:"], subprocess.PIPE
    with subprocess.Popen(command, cwd=folder, stdin=pipe, stdout=pipe, text=True, bufsize=1) as served:
        inlet, outlet = served.stdin, served.stdout
        if inlet is None or outlet is None:
            return
        inlet.writelines(f"{json.dumps(row)}\n" for row in generate(ORDERS))
        try:
            for line in outlet:
                output = json.loads(line)
                if output["type"] in HANDLED:
                    inlet.write(line)
                elif output["type"] == "CustomerTold":
                    yield output["body"]
        finally:
            served.terminate()


def _through_kafka(url: str, folder: Path) -> Told:
    from confluent_kafka import Consumer, Producer  # noqa: PLC0415 - of the extra `serve`
    from confluent_kafka.admin import AdminClient  # noqa: PLC0415
    from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415 - typed there only

    broker: Any = {"bootstrap.servers": url.removeprefix("kafka://")}
    admin, topics = AdminClient(broker), (*HANDLED, "CustomerTold", "OrderPaid")
    for made in admin.create_topics([NewTopic(each, 3, 1) for each in topics]).values():
        made.result()
    producer = Producer(broker)
    for row in generate(ORDERS):
        body, headers = json.loads(row["body"]), {"message_id": row["message_id"], "type": row["type"]}
        producer.produce(row["type"], row["body"], body.get("order_id", body["customer"]), headers=headers)
    producer.flush()
    reader = Consumer({**broker, "group.id": "customers", "auto.offset.reset": "earliest"})
    reader.subscribe(["CustomerTold"])
    command = [*_SERVE, "--from", f"{url}/{','.join(HANDLED)}?group=shop", "--publish", url]
    with subprocess.Popen(command, cwd=folder) as served:
        try:
            while served.poll() is None:
                record = reader.poll(1.0)
                if record is not None and not record.error():
                    yield json.loads(record.value() or b"")
        finally:
            served.terminate()
            reader.close()

"""`python -m samples.orders`: the sample from its log to the warehouse and the letters, in the folder `orders-output`.

Options name other places than the files of that folder, such as Azurite, PostgreSQL and Redis. With `--live`,
`consistent serve` handles orders as they come: through a pipe, or on the Kafka broker that is named.
"""

import argparse
import json
import shlex
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from samples.orders import app
from samples.orders.log import generate

FOLDER = Path("orders-output")
LOG, BATCH, ORDERS = "orders.jsonl", "orders-1", 40
_LETTERS_ARE_LEFT = 3  # the exit code if dead letters remain: here, for the customer who has moved


class Places(NamedTuple):
    """The URLs of states, documents, the warehouse's table, and the keys of letters, by default those of the states."""

    store: str = "sqlite:///store.db"
    documents: str = "documents"
    warehouse: str = "sqlite:///warehouse.db"
    keys: str | None = None


EMBEDDED = Places()  # files in the working folder of the steps


def steps(places: Places) -> Iterator[str]:
    """Yield the commands in order: handle, publish, send letters, and list the orders that the warehouse can send.

    Each resumes if it was killed and is idempotent, so all of them can be run again.
    """
    batch = f"--batch {BATCH} --store {places.store} --table orders"
    yield (
        f"consistent run --app samples.orders:app --messages {LOG} --cascade --batch-id {BATCH} --out outcomes "
        f"--store {places.store} --table orders --documents {places.documents}"
    )
    yield f"consistent publish {batch} --to {places.warehouse} --types OrderPaid --map OrderPaid=paid_orders"
    letters = "--types CustomerTold --customer customer --strategy at-most-once"
    keys = f" --keys {places.keys}" if places.keys else ""
    yield f"consistent publish {batch} --to samples.orders.post:send {letters}{keys}"
    yield f"python -m samples.orders.warehouse {places.warehouse} {places.documents}"


def run(places: Places, folder: Path) -> None:
    """Write the log into a folder, and run each step there. Exits with the code of a step that fails."""
    folder.mkdir(parents=True, exist_ok=True)
    write_log(folder)
    for step in steps(places):
        print(f"\n{step}", flush=True)
        program, *arguments = shlex.split(step)
        module = ["-m", "runtime"] if program == "consistent" else []
        done = subprocess.run([sys.executable, *module, *arguments], cwd=folder, check=False)
        if done.returncode not in (0, _LETTERS_ARE_LEFT):
            sys.exit(done.returncode)


def write_log(folder: Path) -> None:
    """Write the log into a folder, unless it exists."""
    file = folder / LOG
    if not file.exists():
        file.write_text("".join(f"{json.dumps(row)}\n" for row in generate(ORDERS)))


Told = Generator[dict[str, str], None, None]

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


def run_live(url: str, folder: Path) -> None:
    """Let `consistent serve` handle all orders as they come, until all customers have been told, and print the results.

    Outputs for handlers return to it: through a pipe, or topics of Kafka that it reads and writes in transactions.
    """
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


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m samples.orders", description="Run the sample of orders.")
    for name, url in Places._field_defaults.items():
        parser.add_argument(f"--{name}", metavar="URL", default=url)
    parser.add_argument(
        "--live", nargs="?", const="pipe", metavar="kafka://HOST:PORT", help="by consistent serve"
    )
    given = vars(parser.parse_args())
    live = given.pop("live")
    if live:
        run_live(live, FOLDER / "live")
        return
    run(Places(**given), FOLDER)
    print(f"\nLook into {FOLDER}: warehouse.db, letters.txt, documents. Run it again: nothing changes.")


if __name__ == "__main__":
    main()

"""`python -m samples.orders`: the sample from its log to the warehouse and the letters, in the folder `orders-output`.

Options replace the files in that folder by other stores, such as Azurite, PostgreSQL and Redis. With `--live`,
`consistent serve` handles orders as they arrive: through a pipe, or on the given Kafka broker.
"""

import argparse
import json
import random
import shlex
import subprocess
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from samples.orders import app
from samples.orders.domain import RATES

FOLDER = Path("orders-output")
LOG, BATCH, ORDERS = "orders.jsonl", "orders-1", 40
_HAS_DEAD_LETTERS = 3  # an exit code: the letter to the customer who has moved is rejected
_CUSTOMERS = ("Ada", "Grace", "Edsger", "Barbara", "Tony")
_TOP_UP_CENTS, _MOST_CENTS = 20_000, 9_000

Row = dict[str, Any]


def generate(orders: int, *, duplicates: float = 0.1, seed: int = 1) -> Iterator[Row]:
    """Yield the rows of a log in random order: a top-up for each customer, orders in all currencies, and duplicates."""
    chance = random.Random(seed)
    rows = [
        _row(f"top-up-{each}", number, "TopUp", {"customer": each, "cents": _TOP_UP_CENTS})
        for number, each in enumerate(_CUSTOMERS, 1)
    ]
    for number in range(1, orders + 1):
        body = {
            "order_id": f"o-{number:04}",
            "customer": chance.choice(_CUSTOMERS),
            "cents": chance.randint(100, _MOST_CENTS),
            "currency": chance.choice(sorted(RATES)),
        }
        rows.append(_row(f"order-{number:04}", len(rows) + 1, "PlaceOrder", body))
    rows += [dict(chance.choice(rows)) for _ in range(round(len(rows) * duplicates))]
    chance.shuffle(rows)
    yield from rows


def _row(message_id: str, sequence: int, type_: str, body: Row) -> Row:
    return {"message_id": message_id, "type": type_, "sequence": sequence, "body": json.dumps(body)}


class Places(NamedTuple):
    """Where states, documents, the warehouse's table, and the keys of sent letters are stored: URLs or folders.

    If `keys` is None, the keys are stored with the states.
    """

    store: str = "sqlite:///store.db"
    documents: str = "documents"
    warehouse: str = "sqlite:///warehouse.db"
    keys: str | None = None


EMBEDDED = Places()  # files in the working folder of the steps


def steps(places: Places) -> Iterator[str]:
    """Yield the commands in order: handle, publish, send letters, and check the invoices of the paid orders.

    Each command is idempotent, and resumes after a kill. So all commands can be run again.
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
    """Write the log into a folder, and run each step there. Exits with the code of a failed step.

    Dead letters are no failure: the letter to a customer without an address is always rejected.
    """
    write_log(folder)
    for step in steps(places):
        print(f"\n{step}", flush=True)
        program, *arguments = shlex.split(step)
        module = ["-m", "runtime"] if program == "consistent" else []
        done = subprocess.run([sys.executable, *module, *arguments], cwd=folder, check=False)
        if done.returncode not in (0, _HAS_DEAD_LETTERS):
            sys.exit(done.returncode)


def write_log(folder: Path) -> None:
    """Create the folder if necessary, and write the log into it unless the log exists."""
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / LOG
    if not file.exists():
        file.write_text("".join(f"{json.dumps(row)}\n" for row in generate(ORDERS)))


Told = Generator[dict[str, str], None, None]
HANDLED = sorted({type_ for handler in app.handlers.values() for type_ in handler.routes})
_OPTIONS = "--app samples.orders:app --store sqlite:///live.db --table orders --documents documents"
_SERVE = [sys.executable, "-m", "runtime", "serve", *shlex.split(_OPTIONS)]


def run_live(url: str, folder: Path) -> None:
    """Start `consistent serve`, send it all orders, and print the result of each. Return after the last result.

    Outputs for handlers return to `consistent serve`: through topics for a kafka: URL, otherwise through a pipe.
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
    serve = "handle orders as they arrive"
    parser.add_argument("--live", nargs="?", const="pipe", metavar="kafka://HOST:PORT", help=serve)
    given = vars(parser.parse_args())
    live = given.pop("live")
    if live:
        run_live(live, FOLDER / "live")
        return
    run(Places(**given), FOLDER)
    print(f"\nLook into {FOLDER}: warehouse.db, letters.txt, documents. Run it again: nothing changes.")


if __name__ == "__main__":
    main()

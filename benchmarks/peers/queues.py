"""Consumers from Kafka to Kafka beside `consistent serve`.

`python -m benchmarks.peers.queues NAME BROKER TOPIC FOLDER`. All call the same handler, and publish to the topic with
`-outputs` after the name of theirs. `by-hand` is aiokafka with a table of message ids, the states and an outbox in one
transaction of SQLite for each message; what it has read at once shares a sending and a commit of offsets. `dbos` runs a
workflow for each message, in the order of partitions. `bare` stores nothing.
"""

from __future__ import annotations

import asyncio
import json
import sqlite3
import sys
import threading
from typing import Any

from confluent_kafka import Producer

from handlers import Context
from tests.serve_kills.apps import Account, Accounts, Add

TABLES = """
CREATE TABLE IF NOT EXISTS seen (id TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS states (account TEXT PRIMARY KEY, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS outbox (id TEXT NOT NULL, account TEXT NOT NULL, body BLOB NOT NULL);
"""


def handle(state: Account, message_id: str, message: Add) -> tuple[Account, str, bytes]:
    """Return the next state, and the id and body of the output."""
    context = Context("Accounts", message.account, message_id, 0)
    after = Accounts().add(state, message, context)
    (output,) = context.published
    return after, output.message_id, output.body


def _open(folder: str) -> sqlite3.Connection:
    database = sqlite3.connect(f"{folder}/hand.db", isolation_level=None, check_same_thread=False)
    database.executescript(f"PRAGMA journal_mode=WAL; PRAGMA synchronous=FULL; {TABLES}")
    return database


def _store(database: sqlite3.Connection, message_id: str, content: bytes) -> None:
    """Handle one message in one transaction."""
    database.execute("BEGIN IMMEDIATE")
    if database.execute("INSERT OR IGNORE INTO seen VALUES (?)", (message_id,)).rowcount:
        message = Add.model_validate_json(content)
        key = (message.account,)
        found = database.execute("SELECT state FROM states WHERE account = ?", key).fetchone()
        state = Account.model_validate_json(found[0]) if found else Account()
        after, id_, body = handle(state, message_id, message)
        database.execute("INSERT OR REPLACE INTO states VALUES (?, ?)", (*key, after.model_dump_json()))
        database.execute("INSERT INTO outbox VALUES (?, ?, ?)", (id_, *key, body))
    database.execute("COMMIT")


async def by_hand(broker: str, topic: str, folder: str, *, is_bare: bool = False) -> None:
    """Consume with aiokafka."""
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # noqa: PLC0415 - each contender has its own library

    own: dict[str, Any] = {"group_id": topic, "enable_auto_commit": False, "auto_offset_reset": "earliest"}
    own |= {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 300}
    consumer = AIOKafkaConsumer(topic, bootstrap_servers=broker, **own)
    producer = AIOKafkaProducer(bootstrap_servers=broker, enable_idempotence=True)
    await asyncio.gather(consumer.start(), producer.start())
    database, states = _open(folder), dict[str, Account]()

    async def send(id_: str, account: str, body: bytes) -> Any:  # noqa: ANN401 - a future of its record
        headers = [("message_id", id_.encode()), ("type", b"Added")]
        return await producer.send(f"{topic}-outputs", body, account.encode(), headers=headers)

    while True:
        some = await consumer.getmany(timeout_ms=1_000, max_records=500)
        sent = []
        for record in (each for records in some.values() for each in records):
            message_id = dict(record.headers)["message_id"].decode()
            if is_bare:
                message = Add.model_validate_json(record.value)
                before = states.get(message.account, Account())
                states[message.account], id_, body = handle(before, message_id, message)
                sent.append(await send(id_, message.account, body))
            else:
                await asyncio.to_thread(
                    _store, database, message_id, record.value
                )  # heartbeats are sent meanwhile
        if not is_bare:
            sent = [await send(*row) for row in database.execute("SELECT * FROM outbox ORDER BY rowid")]
        await asyncio.gather(*sent)
        if some:
            database.execute("DELETE FROM outbox")
            await consumer.commit()


def dbos(broker: str, topic: str, folder: str) -> None:
    """Consume with workflows, whose transaction and publication are steps."""
    import sqlalchemy as sa  # noqa: PLC0415
    from dbos import DBOS, KafkaMessage, SQLAlchemyDatasource  # noqa: PLC0415

    config: Any = {"name": "queues", "system_database_url": f"sqlite:///{folder}/system.sqlite"}
    config["kafka_queue_polling_interval_sec"] = 0.01  # a second by default
    DBOS(config=config)
    source = SQLAlchemyDatasource.create(f"sqlite:///{folder}/states.sqlite")
    states = sa.Table(
        "states",
        sa.MetaData(),
        sa.Column("account", sa.String, primary_key=True),
        sa.Column("state", sa.String),
    )
    states.metadata.create_all(source.engine)
    producer = Producer({"bootstrap.servers": broker, "enable.idempotence": True, "linger.ms": 0})

    @source.transaction()
    def store(message_id: str, content: str) -> tuple[str, str]:
        message = Add.model_validate_json(content)
        key = states.c.account == message.account
        session = source.sql_session()
        found = session.execute(sa.select(states.c.state).where(key)).scalar()
        after, id_, body = handle(Account.model_validate_json(found or "{}"), message_id, message)
        row = {"account": message.account, "state": after.model_dump_json()}
        session.execute(
            sa.insert(states).values(row) if found is None else sa.update(states).where(key).values(row)
        )
        return id_, body.decode()

    @DBOS.step()
    def publish(id_: str, body: str) -> None:
        producer.produce(
            f"{topic}-outputs",
            body,
            json.loads(body)["account"],
            headers={"message_id": id_, "type": "Added"},
        )
        producer.flush()

    own: dict[str, Any] = {"bootstrap.servers": broker, "group.id": topic, "auto.offset.reset": "earliest"}
    own |= {"session.timeout.ms": 3_000, "heartbeat.interval.ms": 300}

    @DBOS.kafka_consumer(own, [topic], ordering="partition")
    @DBOS.workflow()
    def consume(message: KafkaMessage) -> None:
        headers: Any = dict(message.headers or ())
        content: Any = message.value
        publish(*store(headers["message_id"].decode(), content.decode()))

    DBOS.launch()
    threading.Event().wait()


if __name__ == "__main__":
    name, *given = sys.argv[1:]
    if name == "dbos":
        dbos(*given)
    else:
        asyncio.run(by_hand(*given, is_bare=name == "bare"))

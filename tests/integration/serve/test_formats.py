"""`consistent serve` reads records in the formats of docs/kafka.md, and keeps what it cannot decode."""

from __future__ import annotations

import asyncio
import json

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from eventstore import connect
from runtime.messages.records import Decoding
from runtime.serve import Consumer, ServeOptions
from samples.shooting_range import app
from tests.support.logs import fire, start
from tests.support.registry import registry
from tests.unit.runtime.serve.topics import until


@pytest.mark.thorough
def test_records_in_avro_are_handled_and_others_are_dead_letters(kafka, tmp_path):
    kafka.make_topics("in-avro", partitions=1)
    schema = {"type": "record", "name": "FireAt", "fields": [
        {"name": "game_id", "type": "string"}, {"name": "position", "type": "int"}
    ]}  # fmt: skip
    with registry() as (url, _):
        write = AvroSerializer(SchemaRegistryClient({"url": url}), json.dumps(schema))
        producer = Producer({"bootstrap.servers": kafka.address})
        for row in (start(1, 40), fire(2, 40), fire(3, 41)):
            value = write(json.loads(row["body"]), SerializationContext("in-avro", MessageField.VALUE))
            headers = {"message_id": row["message_id"], "type": row["type"]}
            producer.produce("in-avro", value if row["message_id"][-1] != "3" else b"plain", headers=headers)
        producer.flush(10)

        async def consume() -> dict[str, int]:
            async with connect(f"sqlite:///{tmp_path}/store.db") as store:
                source, options = (
                    f"kafka://{kafka.address}/in-avro?group=avro",
                    ServeOptions(decoding=Decoding("avro", url)),
                )
                consumer = Consumer(app, table=await store.table("games"), source=source, options=options)
                async with consumer, asyncio.timeout(60):
                    await until(lambda: sum(consumer.counts.values()) >= 3 and not consumer.held)
                return {str(name): count for name, count in consumer.counts.items()}

        counts = asyncio.run(consume())

    assert (counts["processed"], counts["dead_letter"]) == (2, 1)

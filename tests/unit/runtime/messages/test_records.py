"""Records as messages: in JSON, with schemas of a registry, and as CloudEvents."""

import base64
import itertools
import json
import sys
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from decimal import Decimal
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest
from cloudevents.core.bindings import kafka as cloud
from cloudevents.core.v1.event import CloudEvent
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from runtime.clock import to_microseconds
from runtime.errors import SchemasUnavailableError, UsageError
from runtime.messages.records import Decoding, read_record
from tests.support.registry import registry

ID, SHOT = "7d444840-9dc0-41d1-b245-5ffdce74fad2", {"game_id": "g", "position": 40}
HEADERS = {"message_id": ID, "type": "FireAt", "trace": "7"}
CONTEXT = SerializationContext("shots", MessageField.VALUE)
TIME = datetime(2026, 1, 31, 12, tzinfo=UTC)


@pytest.fixture
def schemas() -> Iterator[tuple[str, Any]]:
    with registry() as found:
        yield found


def read(content: bytes, decoding: Decoding, headers: Mapping[str, str] = HEADERS):
    return read_record(content, "shots/0/7", headers, 5, decoding.decoder())


AVRO = {
    "type": "record",
    "name": "FireAt",
    "fields": [
        {"name": "game_id", "type": "string"},
        {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "by", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def test_avro_becomes_json_with_its_logical_types(schemas):
    url, _ = schemas
    row = {"game_id": "g", "price": Decimal("12.30"), "at": TIME, "by": UUID(ID), "note": None}
    content = AvroSerializer(SchemaRegistryClient({"url": url}), json.dumps(AVRO))(row, CONTEXT)

    found, problem = read(content, Decoding("avro", url))

    assert problem is None
    assert (found.message_id, found.type, found.headers, found.enqueued_at) == (
        ID,
        "FireAt",
        {"trace": "7"},
        5,
    )
    assert json.loads(found.body) == {**row, "price": "12.30", "at": "2026-01-31T12:00:00Z", "by": ID}


def test_json_with_a_schema(schemas):
    url, _ = schemas
    schema = {"title": "FireAt", "type": "object", "properties": {"position": {"type": "integer"}}}
    content = JSONSerializer(json.dumps(schema), SchemaRegistryClient({"url": url}))(SHOT, CONTEXT)

    found, problem = read(content, Decoding("json-schema", url))

    assert (problem, json.loads(found.body)) == (None, SHOT)
    assert "not decoded" in str(read(content.replace(b"40", b'"4"'), Decoding("json-schema", url))[1])


_modules = itertools.count(1)


@pytest.fixture
def generated(monkeypatch) -> str:
    """Give the name of a module like those that protoc generates."""
    name = f"shots_{next(_modules)}_pb2"
    file = descriptor_pb2.FileDescriptorProto(name=f"{name}.proto", package=name, syntax="proto3")
    message = file.message_type.add(name="FireAt")
    message.field.add(name="game_id", number=1, type=9, label=1)
    message.field.add(name="position", number=2, type=5, label=1)
    message.field.add(name="time_of_shot", number=3, type=3, label=1)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{name}.FireAt"))
    monkeypatch.setitem(sys.modules, name, SimpleNamespace(FireAt=made))
    return name


def test_protobuf_becomes_json_with_the_names_of_its_fields(schemas, generated):
    url, _ = schemas
    made = sys.modules[generated].FireAt
    content = ProtobufSerializer(made, SchemaRegistryClient({"url": url}))(made(**SHOT), CONTEXT)

    found, problem = read(content, Decoding(f"protobuf:{generated}", url))

    assert problem is None
    assert json.loads(found.body) == {**SHOT, "time_of_shot": "0"}  # defaults are written


@pytest.mark.parametrize("write", [cloud.to_binary_event, cloud.to_structured_event])
def test_cloud_events(write):
    event = CloudEvent(
        {"id": ID, "type": "FireAt", "source": "/range", "time": TIME, "datacontenttype": "application/json"},
        SHOT,
    )
    record = write(event)
    headers = {name: value.decode() for name, value in record.headers.items()}

    found, problem = read(record.value, Decoding("cloudevents"), {**headers, "trace": "7"})

    assert problem is None
    assert (found.message_id, found.type, found.enqueued_at) == (ID, "FireAt", to_microseconds(TIME))
    assert json.loads(found.body) == SHOT
    assert {"ce_source": "/range", "trace": "7"}.items() <= (found.headers or {}).items()


def own(content: bytes, headers: Mapping[str, str]) -> Mapping[str, Any]:
    game, _, position = content.decode().partition(";")
    body = {"game_id": game, "position": int(position)}
    return {"message_id": f"{game}-{position}", "type": "FireAt", "body": body}


def test_a_function_of_ones_own():
    decoding = Decoding(f"{__name__}:own")
    sys.modules.setdefault(__name__, sys.modules[own.__module__])

    found, problem = read(b"g;40", decoding, {})
    assert (found.message_id, json.loads(found.body), problem) == ("g-40", SHOT, None)
    assert read(b"g;forty", decoding, {})[1] == (
        "It is not decoded, ValueError: invalid literal for int() with base 10: 'forty'"
    )


@pytest.mark.parametrize(
    "content", [b"", b"plain", b"\x00\x00\x00\x00\x09\x02", b"\x00\x00\x00\x00\x01\xff\xff\xff"]
)
@pytest.mark.parametrize("kind", ["avro", "json-schema", "protobuf"])
def test_what_cannot_be_decoded_is_kept_with_its_place_and_a_reason(schemas, generated, kind, content):
    url, handler = schemas
    handler.schemas[1] = {"schema": json.dumps(AVRO)}
    if kind == "protobuf":
        file = descriptor_pb2.FileDescriptorProto()
        sys.modules[generated].FireAt.DESCRIPTOR.file.CopyToProto(file)
        text = base64.b64encode(file.SerializeToString()).decode()
        handler.schemas[1] = {"schema": text, "schemaType": "PROTOBUF"}
    name = f"protobuf:{generated}" if kind == "protobuf" else kind

    found, problem = read(content, Decoding(name, url))

    assert (found.message_id, found.type) == ("shots/0/7", "")
    assert isinstance(found.body, str)
    assert problem is not None
    assert problem.startswith("It is not decoded, ")


@pytest.mark.thorough  # its client tries again
def test_a_registry_that_is_away_makes_no_dead_letters():
    with registry() as (url, handler):
        content = AvroSerializer(SchemaRegistryClient({"url": url}), json.dumps(AVRO))(
            {"game_id": "g", "price": Decimal(1), "at": TIME, "by": UUID(ID)}, CONTEXT
        )
        handler.fails = True
        with pytest.raises(SchemasUnavailableError):
            read(content, Decoding("avro", url))
    with pytest.raises(SchemasUnavailableError):
        read(content, Decoding("avro", url))


PLACE = "t/0/1"
FIELDS = {"message_id": "m", "type": "T", "body": {}}


@pytest.mark.parametrize(
    "fields",
    [
        *({"type": 7}, {"headers": {"a": 1}}, {"sequence": 2**63}, {"body": "\ud800"}),
        *({"message_id": ""}, {"message_id": "x" * 256}),
    ],
)
def test_what_no_store_takes_is_invalid_in_an_envelope_and_from_a_function(fields):
    content = json.dumps({**FIELDS, **fields}).encode()

    for headers, decode in (({}, None), (HEADERS, lambda *_: {**FIELDS, **fields})):
        envelope, problem = read_record(content, PLACE, headers, None, decode)
        assert (envelope.message_id, problem is None) == (PLACE, False)


def test_a_time_in_the_headers_that_is_no_number_is_ignored():
    assert read_record(b"{}", PLACE, {**HEADERS, "enqueued_at": "²"})[0].enqueued_at is None


@pytest.mark.parametrize(
    ("decode", "url"),
    [
        *(("avro", None), ("protobuf", "http://here"), ("json", "http://here"), ("yaml", None)),
        *(("protobuf:x", None), ("no.such.module:f", None), ("json:nothing", None)),
    ],
)
def test_contradictory_options_and_functions_that_are_missing_are_refused(decode, url):
    with pytest.raises(UsageError):
        Decoding(decode, url).decoder()


def test_a_url_may_be_in_the_environment(monkeypatch):
    monkeypatch.setenv("REGISTRY", "http://user:password@here")

    found = Decoding("avro", "env:REGISTRY")

    assert found.schema_registry == "http://user:password@here"
    assert "password" not in repr(found)

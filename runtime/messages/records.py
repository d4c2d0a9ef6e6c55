"""Convert records of a broker to messages.

A record is an envelope in JSON, or a body in another format whose message id and type are in the headers.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pkgutil import resolve_name
from typing import Annotated, Any, ClassVar

import msgspec
import pydantic_core

from runtime.clock import to_microseconds
from runtime.errors import MissingExtraError, SchemasUnavailableError, UsageError
from runtime.messages.envelope import MAX_LENGTH, Envelope, canonical
from runtime.options import check_fields, option, resolved

Decode = Callable[[bytes, Mapping[str, str]], Mapping[str, Any]]
"""Takes the content and headers of a record. Returns fields of an envelope; the headers supply the missing fields.

The body is JSON text, or a value that pydantic encodes as JSON.
"""

_IN_REGISTRY = ("avro", "json-schema", "protobuf")
_FORMATS = "json, json-schema, avro, protobuf:MODULE, cloudevents or MODULE:FUNCTION"
_UNKNOWN_SCHEMA = (404, 422)
_DIGITS = 18  # the longest time in microseconds that every store accepts


@dataclass(frozen=True)
class Decoding:
    """The options that say how values of Kafka records are decoded."""

    GROUP: ClassVar = "log"

    decode: str = option(
        "How records in Kafka are encoded: json; with a schema registry json-schema, avro, or protobuf:MODULE with its "
        "generated classes; cloudevents; or MODULE:FUNCTION.",
        default="json",
        metavar="FORMAT",
    )
    schema_registry: str | None = option(
        "The schema registry: http://HOST:PORT, https://USER:PASSWORD@HOST, or env:NAME.",
        default=None,
        is_secret=True,
        metavar="URL",
    )

    def __post_init__(self) -> None:
        check_fields(self)
        kind, _, name = self.decode.partition(":")
        needs_name = kind == "protobuf" or kind not in ("json", "cloudevents", *_IN_REGISTRY)
        if needs_name and not name:
            raise UsageError(f"The option decode is {self.decode}: use {_FORMATS}.")
        if (self.schema_registry is None) is (kind in _IN_REGISTRY):
            raise UsageError(
                f"Bodies in {kind} need the option schema-registry: set its URL."
                if kind in _IN_REGISTRY
                else f"The option schema-registry is used with {', '.join(_IN_REGISTRY)} only."
            )
        # Resolved here, because a worker may have other environment variables.
        object.__setattr__(self, "schema_registry", self.schema_registry and resolved(self.schema_registry))

    def described(self) -> str:
        """Return the option `decode` in the form recorded in the ledger, or an empty text for the default."""
        return "" if self.decode == "json" else f", decode={self.decode}"

    def decoder(self) -> Decode | None:
        """Return the decoder of records, or `None` for plain JSON.

        Raises `UsageError` if the option names no function, and `MissingExtraError` if a package is missing.
        """
        kind, _, name = self.decode.partition(":")
        try:
            if self.decode == "json":
                return None
            if kind == "cloudevents":
                return _cloud_event()
            if kind in _IN_REGISTRY:
                return _of_registry(kind, name, self.schema_registry or "")
        except ModuleNotFoundError as error:
            if name and error.name == name.partition(".")[0]:
                raise UsageError(f"The option decode names the module {name}, which is not found.") from error
            raise MissingExtraError(
                f"Bodies in {kind} need {error.name}: pip install 'consistent-messaging[kafka]'."
            ) from error
        try:
            decode: Decode = resolve_name(self.decode)
        except (ImportError, AttributeError, ValueError) as error:
            raise UsageError(f"The option decode does not name a function: {error}.") from error
        return decode


AS_JSON = Decoding()


_Number = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]


class _Fields(msgspec.Struct):
    message_id: str
    type: str
    body: Any
    business_id: str | None = None
    sequence: _Number | None = None
    enqueued_at: datetime | _Number | None = None
    headers: dict[str, str] | None = None


class _InJson(_Fields):
    body: msgspec.Raw
    enqueued_at: datetime | None = None


_DECODER = msgspec.json.Decoder(_InJson)


def read_record(
    content: bytes,
    place: str,
    headers: Mapping[str, str],
    stamped: datetime | int | None = None,
    decode: Decode | None = None,
) -> tuple[Envelope, str | None]:
    """Return the message in a record, and why the record is invalid, or `None` if it is valid.

    `content` is decoded by `decode`, if given. Otherwise it is the body if id and type are among the headers, or else a
    JSON envelope. An invalid record gets the message id `place`. Messages without a time get `stamped`, the broker's
    time. Raises `SchemasUnavailableError` if the registry does not answer, as the record may be valid.
    """
    own = {name: each for name, each in headers.items() if name not in {"handler", "sequence"}}
    id_, type_, given = (own.pop(name, "") for name in ("message_id", "type", "enqueued_at"))
    sent = int(given) if given.isdecimal() and len(given) <= _DIGITS else None
    try:
        if decode is not None:
            known = {"message_id": id_, "type": type_, "enqueued_at": sent, "headers": own}
            found = msgspec.convert({**known, **decode(content, headers)}, _Fields)
            text = found.body if isinstance(found.body, str) else pydantic_core.to_json(found.body).decode()
        elif "message_id" in headers and "type" in headers:
            found, text = _Fields(id_, type_, None, None, None, sent, own), content.decode()
        else:
            found = _DECODER.decode(content)
            text = bytes(found.body).decode()
            text = json.loads(text) if text.startswith('"') else text
        time = found.enqueued_at or stamped
        if isinstance(time, datetime):
            time = to_microseconds(time if time.tzinfo else time.replace(tzinfo=UTC))
        if not 0 < len(found.message_id) <= MAX_LENGTH:
            raise ValueError(f"A message id must be text of 1 to {MAX_LENGTH} characters.")  # noqa: TRY301 - caught below
        texts = (found.message_id, found.type, found.business_id or "", text, *(found.headers or {}).values())
        "".join(texts).encode()  # raises for a lone surrogate, which no store takes
        id_, more = canonical(found.message_id), (found.sequence, time, found.headers or None)
        return Envelope(id_, found.type, text, found.business_id, *more), None
    except SchemasUnavailableError:
        raise
    except Exception as error:  # noqa: BLE001 - libraries and the user's function may raise anything
        text = content.decode("utf-8", "backslashreplace")
        what = "no envelope" if decode is None else f"not decoded, {type(error).__name__}"
        return Envelope(place, "", text), f"It is {what}: {error}"


@cache  # a decoder keeps the schemas that it has seen
def _of_registry(kind: str, module: str, url: str) -> Decode:
    from confluent_kafka.schema_registry import SchemaRegistryClient  # noqa: PLC0415 - of an extra
    from confluent_kafka.schema_registry.error import SchemaRegistryError  # noqa: PLC0415

    client = SchemaRegistryClient({"url": url})
    deserialize = _deserializer(kind, module, client)

    def decode(content: bytes, headers: Mapping[str, str]) -> Mapping[str, Any]:
        try:
            return {"body": deserialize(content, headers)}
        except Exception as error:
            # Which of the packages httpx* raises it depends on the version.
            is_away = type(error).__module__.startswith("httpx")
            if isinstance(error, SchemaRegistryError):
                is_away = error.http_status_code not in _UNKNOWN_SCHEMA
            if is_away:
                raise SchemasUnavailableError(f"The schema registry does not answer: {error}") from error
            raise

    return decode


def _deserializer(kind: str, module: str, client: Any) -> Callable[[bytes, Mapping[str, str]], Any]:  # noqa: ANN401
    if kind == "avro":
        from confluent_kafka.schema_registry.avro import AvroDeserializer  # noqa: PLC0415

        of_avro = AvroDeserializer(client)
        return lambda content, _: of_avro(content, None)
    if kind == "json-schema":
        from confluent_kafka.schema_registry.json_schema import JSONDeserializer  # noqa: PLC0415

        no_subject = {"subject.name.strategy": lambda *_: None}  # the id in the record is enough
        of_json = JSONDeserializer(None, conf=no_subject, schema_registry_client=client)
        return lambda content, _: of_json(content, None)
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer  # noqa: PLC0415
    from google.protobuf import json_format  # noqa: PLC0415

    classes = resolve_name(module)
    of_type = cache(lambda name: ProtobufDeserializer(getattr(classes, name), {}, client))

    def of_protobuf(content: bytes, headers: Mapping[str, str]) -> str:
        text: str = json_format.MessageToJson(
            of_type(headers.get("type", ""))(content, None),
            preserving_proto_field_name=True,
            always_print_fields_with_no_presence=True,
            indent=None,
        )
        return text

    return of_protobuf


def _cloud_event() -> Decode:
    from cloudevents.core.bindings.kafka import KafkaMessage, from_kafka  # noqa: PLC0415 - of an extra
    from cloudevents.core.formats.json import JSONFormat  # noqa: PLC0415

    def decode(content: bytes, headers: Mapping[str, str]) -> Mapping[str, Any]:
        texts = {name: value.encode() for name, value in headers.items()}
        event = from_kafka(KafkaMessage(texts, None, content), JSONFormat())
        known = ("id", "type", "time", "datacontenttype", "specversion")
        attributes = {
            f"ce_{name}": str(each) for name, each in event.get_attributes().items() if name not in known
        }
        return {
            "message_id": event.get_id(),
            "type": event.get_type(),
            "body": event.get_data(),
            "enqueued_at": event.get_time(),
            "headers": {name: each for name, each in headers.items() if not name.startswith("ce_")}
            | attributes,
        }

    return decode

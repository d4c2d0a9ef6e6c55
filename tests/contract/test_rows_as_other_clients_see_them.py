"""What is written here can be read with Azure's own client, and the other way round."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest
from azure.core.credentials import AzureNamedKeyCredential
from azure.data.tables import EdmType, EntityProperty, TableClient

from eventstore import EventData, Int64, Operation, Partition, Stream, Value
from eventstore.backends.azure.client import account_of

ID = UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
WHEN = datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)

pytestmark = pytest.mark.parametrize("store_url", ["azurite"], indirect=True)


@pytest.fixture
def other(store_url, table):
    account = account_of(store_url)
    key = AzureNamedKeyCredential(
        account.name,
        "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==",
    )
    with TableClient(account.endpoint, table._name, credential=key) as client:
        yield client


def test_another_client_reads_the_rows_of_a_stream(run, table, other):
    properties: dict[str, Value] = {
        "Text": "é",
        "Big": Int64(2**40),
        "Real": 1.5,
        "Bytes": b"\x00",
        "Id": ID,
        "When": WHEN,
        "Yes": True,
    }
    partition = Partition(table, "order's/7|items")
    run(
        Stream.write(
            partition, EventData(properties, id="first"), expected_version=0, properties={"Owner": "me"}
        )
    )

    rows = {entity["RowKey"]: dict(entity) for entity in other.list_entities()}

    key = "order~27s~2F7"
    assert rows == {
        "items|SS-HEAD": {"PartitionKey": key, "RowKey": "items|SS-HEAD", "Version": 1, "Owner": "me"},
        "items|SS-SE-0000000001": {
            "PartitionKey": key,
            "RowKey": "items|SS-SE-0000000001",
            "Version": 1,
            **properties,
            "Big": EntityProperty(2**40, EdmType.INT64),
        },
        "items|SS-UID-first": {"PartitionKey": key, "RowKey": "items|SS-UID-first", "Version": 1},
    }


def test_rows_of_another_client_are_a_stream(run, table, other):
    other.create_entity({"PartitionKey": "orders", "RowKey": "SS-HEAD", "Version": 1, "Owner": "me"})
    other.create_entity(
        {
            "PartitionKey": "orders",
            "RowKey": "SS-SE-0000000001",
            "Version": 1,
            "Text": "é",
            "Big": EntityProperty(2**40, EdmType.INT64),
            "Small": EntityProperty(1, EdmType.INT64),
            "Whole": 1.0,
            "Bytes": b"\x00",
            "Id": ID,
            "When": WHEN,
            "Yes": True,
        }
    )

    found = run(Stream.read(Partition(table, "orders")))

    assert found.stream.properties == {"Owner": "me"}
    assert found.events[0].properties == {
        "Text": "é",
        "Big": 2**40,
        "Small": 1,
        "Whole": 1.0,
        "Bytes": b"\x00",
        "Id": ID,
        "When": WHEN,
        "Yes": True,
    }
    assert type(found.events[0].properties["Small"]) is Int64
    assert type(found.events[0].properties["Whole"]) is float


def test_an_etag_of_one_client_is_valid_for_the_other(run, table, other):
    run(table.transact("p", [Operation.insert("r", {"V": 1})]))
    etag = other.get_entity("p", "r").metadata["etag"]

    run(table.transact("p", [Operation.replace("r", {"V": 2}, etag)]))

    assert other.get_entity("p", "r").metadata["etag"] == run(table.get("p", "r")).etag

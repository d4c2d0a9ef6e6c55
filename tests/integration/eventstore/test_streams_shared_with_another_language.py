"""A client in another language reads streams of this library and writes streams for it, in Streamstone's layout.

The other side is `streamstone.mjs`, with Microsoft's client for JavaScript.
"""

import asyncio
import base64
import json
import os
import shutil
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

import pytest

from eventstore import (
    ConcurrencyConflictError,
    DuplicateEventError,
    EventData,
    Include,
    Int64,
    Partition,
    Stream,
    Value,
    connect,
)
from eventstore.backends.azure import account_of
from tests.plugins.azurite import REPOSITORY
from tests.support.names import new_name

pytestmark = pytest.mark.thorough

SCRIPT = Path(__file__).with_name("streamstone.mjs")
ID = UUID("6f9619ff-8b86-d011-b42d-00cf4fc964ff")
WHEN = datetime(2024, 1, 2, 3, 4, 5, 678901, tzinfo=UTC)


@pytest.fixture
def run():
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture
def partition(azurite_url, run):
    store = connect(azurite_url)
    yield Partition(run(store.table(new_name())), "order-7")
    run(store.close())


@pytest.fixture
def other(azurite_url, partition):
    """Let the other client do something with the stream; return what it says."""
    node = shutil.which("node")
    if node is None or not (REPOSITORY / "node_modules" / "@azure" / "data-tables").is_dir():
        message = "Node.js or its client of tables is not installed: run `make setup-test`."
        pytest.fail(message) if os.environ.get("CI") else pytest.skip(message)
    account = account_of(azurite_url)
    settings = f"AccountName={account.name};AccountKey={account.key};TableEndpoint={account.endpoint};"

    def speak(command, *arguments):
        call = [node, str(SCRIPT), command, partition.table.name, partition.key, *map(str, arguments)]
        environment = {**os.environ, "CONNECTION_STRING": f"DefaultEndpointsProtocol=http;{settings}"}
        done = subprocess.run(call, env=environment, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, "")
        return json.loads(done.stdout)

    return speak


def typed(**properties: str | tuple[str, str]):
    """Return properties as the other client sees them: texts, and values of the types named."""
    return {
        name: {"type": "String", "value": value}
        if isinstance(value, str)
        else {"type": value[0], "value": value[1]}
        for name, value in properties.items()
    }


def test_the_other_client_reads_a_stream_of_this_library(run, partition, other):
    first: dict[str, Value] = {
        "Type": "Käse \u2028 'n' /",
        "Yes": True,
        "Count": -1,
        "Large": Int64(2**40),
        "Small": Int64(1),
        "Real": 1.5,
        "Endless": float("-inf"),
        "When": WHEN,
        "Id": ID,
        "Bytes": b"\x00\xff" * 500,
    }
    written = run(
        Stream.write(
            partition,
            EventData(first, id="first"),
            EventData({"Type": "Second"}),
            expected_version=0,
            properties={"Owner": "Ada", "Opened": WHEN},
            includes=[Include.insert("list", {"Open": True})],
        )
    )
    third = EventData({"Type": "Third"}, id=ID)
    written = run(Stream.write(written.stream, third, properties={"Owner": "Grace"}))

    assert other("read") == {
        "etag": written.stream.etag,
        "version": 3,
        "properties": typed(Owner="Grace"),
        "events": [
            typed(
                Type="Käse \u2028 'n' /",
                Yes=("Boolean", "true"),
                Count=("Int32", "-1"),
                Large=("Int64", "1099511627776"),
                Small=("Int64", "1"),
                Real=("Double", "1.5"),
                Endless=("Double", "-Infinity"),
                When=("DateTime", "2024-01-02T03:04:05.678901Z"),
                Id=("Guid", str(ID)),
                Bytes=("Binary", base64.b64encode(b"\x00\xff" * 500).decode()),
            ),
            typed(Type="Second"),
            typed(Type="Third"),
        ],
        "ids": {"first": 1, str(ID): 3},
        "others": {"list": typed(Open=("Boolean", "true"))},
    }


def test_this_library_reads_a_stream_of_the_other_client(run, partition, other):
    etag = other("create")

    found = run(Stream.read(partition))

    assert (found.stream.version, found.stream.first_version, found.stream.etag) == (3, 1, etag)
    assert found.stream.properties == {"Owner": "Grace"}
    assert [(event.version, with_types(event.properties)) for event in found.events] == [
        (1, with_types({"Type": "Created", "Count": 1, "Large": Int64(2**40), "Small": Int64(1)})),
        (
            2,
            with_types(
                {
                    "Type": "Käse",
                    "Real": 1.5,
                    "Whole": 2.0,
                    "Endless": float("inf"),
                    "Yes": True,
                    "Id": ID,
                    "When": WHEN,
                    "Bytes": b"\x00\xff",
                }
            ),
        ),
        (3, with_types({"Type": "Appended"})),
    ]


def with_types(properties):
    return {name: (type(value), value) for name, value in properties.items()}


def test_both_append_to_one_stream_and_neither_writes_what_the_other_wrote(run, partition, other):
    # Given a stream of the other client
    etag = other("create")
    stream = run(Stream.open(partition))

    # When this library appends to it, it refuses the other's ids and versions
    with pytest.raises(DuplicateEventError, match="'third'"):
        run(Stream.write(stream, EventData({}, id="third")))
    with pytest.raises(ConcurrencyConflictError):
        run(Stream.write(partition, EventData({}), expected_version=2))
    mine = run(Stream.write(stream, EventData({"Type": "Mine"}, id="fourth"))).stream

    # Then the other client's is refused where it holds what was before, or the id is known
    assert other("append", 3, etag, "fifth") == {"refused": [412, "UpdateConditionNotSatisfied"]}
    assert other("append", 4, mine.etag, "fourth") == {"refused": [409, "EntityAlreadyExists"]}
    after = other("append", 4, mine.etag, "fifth")

    # And this library's as well
    for stale in (Stream.write(mine, EventData({})), Stream.set_properties(mine, {"Owner": "Mine"})):
        with pytest.raises(ConcurrencyConflictError):
            run(stale)
    stream = run(Stream.open(partition))
    assert stream.etag == after["etag"]

    # And both see one stream
    last = run(Stream.write(stream, EventData({"Type": "Last"}), properties={"Owner": "Ada"})).stream
    seen = other("read")
    assert (seen["version"], seen["etag"]) == (6, last.etag)
    assert seen["properties"] == typed(Owner="Ada")
    assert [event["Type"]["value"] for event in seen["events"]] == [
        event.properties["Type"] for event in run(Stream.read(partition)).events
    ]
    assert seen["ids"] == {"first": 1, "third": 3, "fourth": 4, "fifth": 5}

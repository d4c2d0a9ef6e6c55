"""A batch to Service Bus, as far as the wire: there is no server to test with, and none is faked.

What is sent, the first bytes on the connection, and when a slice is not resumed are tested; that a queue takes the
messages, and recognises duplicates, is not.
"""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from runtime.publishing.publisher import CommittedOutput, TargetOptions
from runtime.publishing.targets.choice import open_target
from runtime.publishing.targets.servicebus import ServiceBusTarget, message_of
from tests.support.done_batches import TABLE

AT = datetime(2026, 3, 1, tzinfo=UTC)
OUTPUT = CommittedOutput("7f0c", "Hit", '{"points": 3}', "game 1", "ShootingRange", 5, AT, {"trace": "7"})
_KEY = "SharedAccessKeyName=name;SharedAccessKey=c2VjcmV0"


def at(port):
    return f"Endpoint=sb://127.0.0.1:{port};{_KEY};UseDevelopmentEmulator=true"


def test_a_message_has_the_id_of_the_output_and_the_business_object_as_session():
    message = message_of(OUTPUT)

    assert (message.message_id, message.session_id, message.subject) == ("7f0c", "game 1", "Hit")
    assert b"".join(message.body) == b'{"points": 3}'
    assert message.application_properties == {"trace": "7", "handler": "ShootingRange", "sequence": 5}

    # An id that is too long is replaced by its digest
    first, second = (message_of(replace(OUTPUT, business_id="x" * length)) for length in (200, 201))
    assert len(str(first.session_id)) == 64
    assert first.session_id != second.session_id


def test_the_queue_is_that_of_the_map_or_of_the_connection_string():
    named = open_target(f"{at(1)};EntityPath=all", TargetOptions(names={"Hit": "hits"}))

    assert isinstance(named, ServiceBusTarget)
    assert (named.entity_of("Hit"), named.entity_of("Missed")) == ("hits", "all")
    assert "c2VjcmV0" not in named.name + named.identity


@pytest.mark.thorough
def test_it_speaks_amqp_and_resumes_only_within_the_window(make):
    batch = make(1, 2)
    with socket.create_server(("127.0.0.1", 0)) as server:
        heard: list[bytes] = []

        def hang_up():
            while True:
                connection, _ = server.accept()
                with connection:
                    heard.append(connection.recv(8))

        threading.Thread(target=hang_up, daemon=True).start()

        def said(*options):
            # In a process of its own: the client leaves its socket open when the other side hangs up.
            of_batch = ["--batch", "b1", "--store", batch.store, "--table", TABLE, "--to", "env:BUS"]
            return subprocess.run(
                [sys.executable, "-m", "runtime", "publish", *of_batch, "--attempts", "1", *options],
                env={**os.environ, "BUS": at(server.getsockname()[1])}, capture_output=True, text=True, check=False,
            )  # fmt: skip

        first = said()
        late = said("--duplicate-window", "0s")
        forced = said("--duplicate-window", "0s", "--force")

    assert heard == [b"AMQP\x03\x01\x00\x00"] * 2
    assert [first.returncode, late.returncode, forced.returncode] == [1, 2, 1]
    assert "sb://127.0.0.1" in first.stderr
    assert "If the receiver tolerates duplicates, add --force." in late.stderr
    assert "c2VjcmV0" not in first.stderr + late.stderr + forced.stderr

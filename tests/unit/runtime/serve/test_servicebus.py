"""Service Bus as a source, with a fake of its client: there is no server to test with."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any, Self
from unittest.mock import Mock

import pytest
from azure.core.exceptions import ClientAuthenticationError
from azure.servicebus import NEXT_AVAILABLE_SESSION
from azure.servicebus.exceptions import (
    MessageLockLostError,
    MessagingEntityNotFoundError,
    OperationTimeoutError,
    ServiceBusConnectionError,
)

from runtime.errors import UsageError
from runtime.serve.brokers import servicebus
from runtime.serve.messages import Received, SourceUnavailableError, open_source


class Message(SimpleNamespace):
    def __str__(self) -> str:
        return str(self.body)


def message(number: int, session: str = "") -> Message:
    return Message(
        lock_token=f"lock {number}",
        sequence_number=number,
        message_id=f"m{number}",
        subject="Add",
        session_id=session,
        body=json.dumps({"account": "anna", "number": number}),
        application_properties={b"trace": b"7", b"sequence": 3},
        enqueued_time_utc=datetime(2026, 3, 1, tzinfo=UTC),
    )


class Namespace:
    """A queue, with the calls of the client, of its receivers and of its renewer."""

    def __init__(self, *messages: Message) -> None:
        self.waiting = deque(messages)
        self.completed: list[str] = []
        self.opened: list[dict[str, Any]] = []
        self.closed = 0
        self.lost: set[str] = set()
        self.problem: Exception | None = None
        self._session = ""
        self._is_busy = False

    def get_queue_receiver(self, *entity: str, **given: Any) -> Namespace:
        self.opened.append({"entity": entity, **given})
        return self

    get_subscription_receiver = get_queue_receiver

    async def __aenter__(self) -> Self:
        if self.problem:
            raise self.problem
        if self.opened[-1].get("session_id"):
            if not self.waiting:
                await asyncio.sleep(0.001)
                raise OperationTimeoutError(message="no session has messages")
            self._session = self.waiting[0].session_id
        return self

    async def __aexit__(self, *error: object) -> None:
        self.closed += 1

    async def receive_messages(self, most: int, seconds: float) -> list[Message]:
        assert not self._is_busy
        self._is_busy = True
        await asyncio.sleep(0.001)
        self._is_busy = False
        found: list[Message] = []
        while self.waiting and self.waiting[0].session_id == self._session and len(found) < most:
            found.append(self.waiting.popleft())
        return found

    async def complete_message(self, message: Message) -> None:
        assert not self._is_busy
        if message.message_id in self.lost:
            raise MessageLockLostError(message="the lock was lost")
        self.completed.append(message.message_id)

    async def close(self) -> None: ...


def consume(
    monkeypatch: pytest.MonkeyPatch, namespace: Namespace, count: int, url: str = ""
) -> list[Received]:
    """Read and acknowledge some messages."""
    monkeypatch.setattr(servicebus.ServiceBusSource, "_connected", lambda _: namespace)

    async def run() -> list[Received]:
        found: list[Received] = []
        source = open_source(f"servicebus://name.servicebus.windows.net/entries{url}")
        await source.open(None)  # type: ignore[arg-type]
        try:
            async with asyncio.timeout(30):
                while len(found) < count:
                    some = await source.read(2, 0)
                    await source.acknowledge(some or ())
                    found += some or ()
        finally:
            await source.close()
        return found

    return asyncio.run(run())


def test_messages_are_completed_once_they_are_acknowledged(monkeypatch):
    namespace = Namespace(*map(message, range(5)))

    found = consume(monkeypatch, namespace, 5)

    assert [each.envelope.message_id for each in found] == namespace.completed == [f"m{n}" for n in range(5)]
    assert (found[0].envelope.type, found[0].envelope.headers) == ("Add", {"trace": "7"})
    (opened,) = namespace.opened
    assert opened["entity"] == ("entries",)
    assert "session_id" not in opened


def test_the_next_session_is_taken_when_one_is_idle_and_settled(monkeypatch):
    monkeypatch.setattr(servicebus, "_IDLE_SECONDS", 0.001)
    namespace = Namespace(message(1, "a"), message(2, "a"), message(3, "b"))

    consume(monkeypatch, namespace, 3, "?sessions=1")

    assert namespace.completed == ["m1", "m2", "m3"]
    assert [each["session_id"] for each in namespace.opened[:2]] == [NEXT_AVAILABLE_SESSION] * 2
    assert namespace.closed >= 2


def test_a_message_whose_lock_was_lost_is_left_to_others(monkeypatch, caplog):
    namespace = Namespace(message(1), message(2))
    namespace.lost = {"m1"}

    consume(monkeypatch, namespace, 2)

    assert namespace.completed == ["m2"]
    assert "1 messages of servicebus://name.servicebus.windows.net/entries are redelivered" in caplog.text


@pytest.mark.parametrize(
    ("problem", "kind"),
    [
        (ServiceBusConnectionError(message="it does not answer"), SourceUnavailableError),
        (ClientAuthenticationError("there is no token"), SourceUnavailableError),
        (MessagingEntityNotFoundError(message="there is none"), UsageError),
        (ZeroDivisionError(), ZeroDivisionError),
    ],
)
def test_an_error_of_the_service_is_told(monkeypatch, problem, kind):
    namespace = Namespace()
    namespace.problem = problem

    with pytest.raises(kind):
        consume(monkeypatch, namespace, 1)


def test_a_connection_string_for_another_queue_is_refused(monkeypatch):
    monkeypatch.setattr(Namespace, "get_queue_receiver", Mock(side_effect=ValueError("not its EntityPath")))

    with pytest.raises(UsageError, match="The connection string is invalid: not its EntityPath"):
        consume(monkeypatch, Namespace(), 1)


@pytest.mark.parametrize("url", ["servicebus:///entries", "servicebus://here", "servicebus://here/a/b/c"])
def test_a_url_that_names_no_queue_is_refused(url):
    with pytest.raises(UsageError, match="Service Bus is written"):
        open_source(url)

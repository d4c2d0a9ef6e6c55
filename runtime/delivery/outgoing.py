"""Outgoing messages: what a sender is given for one customer."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eventstore import connect
from runtime.batches.ledger import Ledger
from runtime.clock import system_clock
from runtime.publishing.outputs import BatchOutputs

DEFAULT_CUSTOMER = "default"
"""The customer of all messages when no field names one."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message for a customer.

    `message_id` is the same whenever the message is delivered: a receiver that de-duplicates takes it for a key.
    `problem` says why it cannot be sent at all.
    """

    message_id: str
    type: str
    body: Mapping[str, Any]
    customer: str = DEFAULT_CUSTOMER
    headers: Mapping[str, str] = field(default_factory=dict)
    batch_id: str | None = None
    problem: str | None = None


def messages_of(
    batch_id: str, outputs: BatchOutputs, customer: str | None = None
) -> Iterator[OutgoingMessage]:
    """Give the outputs of a batch as messages. `customer` names the field of their bodies that holds the customer.

    Without it they are all for one customer. A message may be given twice, as an output may be in two rounds.
    """
    for table in outputs.tables():
        for row in table.to_pylist():
            yield _message(batch_id, row, customer)


async def batch_messages(
    store: str, table: str, batch_id: str, *, types: Sequence[str] = (), customer: str | None = None
) -> Iterator[OutgoingMessage]:
    """Return the outputs of a batch as messages, from where the ledger in a table of a store has its outcomes.

    Raises `BatchRefusedError` when there is no such batch or it has not ended, `UsageError` when its outcomes are gone.
    """
    async with connect(store) as opened:
        record = await Ledger(await opened.table(table, make=False), system_clock).get(batch_id)
    return messages_of(batch_id, BatchOutputs.of(record, record.out, types), customer)


def _message(batch_id: str, row: Mapping[str, Any], field_name: str | None) -> OutgoingMessage:
    body = json.loads(row["body"])
    customer, problem = DEFAULT_CUSTOMER, None
    if field_name is not None:
        value = body.get(field_name)
        if isinstance(value, str | int) and value != "":
            customer = str(value)
        else:
            problem = f"Its body names no customer: {field_name} is {json.dumps(value)}."
    headers = dict(row["headers"] or ())
    return OutgoingMessage(row["message_id"], row["type"], body, customer, headers, batch_id, problem)

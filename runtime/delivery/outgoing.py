"""Outgoing messages: what a sender is given for one customer."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

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


@dataclass(frozen=True, slots=True)
class Selection:
    """Which outputs are delivered, and the field of their bodies that names the customer, None if they have one only.

    Without `types` all are.
    """

    types: Sequence[str] = ()
    customer: str | None = None

    def of(self, outputs: Iterable[Mapping[str, Any]]) -> Iterator[OutgoingMessage]:
        """Give the messages of outputs, which are rows with the columns of an output, and `batch_id`."""
        for row in outputs:
            if not self.types or row["type"] in self.types:
                yield self._message(row)

    def _message(self, row: Mapping[str, Any]) -> OutgoingMessage:
        body = json.loads(row["body"])
        customer, problem = DEFAULT_CUSTOMER, None
        if self.customer is not None:
            value = body.get(self.customer)
            if isinstance(value, str | int) and value != "":
                customer = str(value)
            else:
                problem = f"Its body names no customer: {self.customer} is {json.dumps(value)}."
        headers = dict(row.get("headers") or ())
        return OutgoingMessage(
            row["message_id"], row["type"], body, customer, headers, row.get("batch_id"), problem
        )

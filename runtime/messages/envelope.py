"""Envelopes: messages as a log holds them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any, NamedTuple

from handlers.text import is_text
from runtime.clock import shown_time, to_microseconds
from runtime.messages import message_ids


class Envelope(NamedTuple):
    """One delivery of a message.

    `message_id` is canonical; `body` is JSON text, or msgpack bytes; `business_id` is given when the sender names it;
    times are microseconds since 1970 UTC. `enqueued_at` is what the sender stamped.
    """

    message_id: str
    type: str
    body: str | bytes
    business_id: str | None = None
    sequence: int | None = None
    enqueued_at: int | None = None
    headers: Mapping[str, str] | None = None

    @classmethod
    def of(
        cls,
        message_id: str,
        message_type: str,
        body: str | bytes,
        *,
        business_id: str | None = None,
        sequence: int | None = None,
        enqueued_at: datetime | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Envelope:
        """Make an envelope of what came off a queue: the id made canonical, the time in microseconds.

        Raises `ValueError` for an id that is empty, has more than 255 characters, or is no valid text.
        """
        if not 0 < len(message_id) <= message_ids.MAX_LENGTH:
            problem = f"A message id has 1 to {message_ids.MAX_LENGTH} characters, not {len(message_id)}."
            raise ValueError(problem)
        if not is_text(message_id):
            problem = f"A message id is text, and {message_id!a} holds half a character."
            raise ValueError(problem)
        moment = None if enqueued_at is None else to_microseconds(enqueued_at)
        return cls(
            message_ids.canonical(message_id),
            message_type,
            body,
            business_id,
            sequence,
            moment,
            dict(headers) if headers else None,
        )

    def to_json(self, handler: str | None = None) -> str:
        """Return the delivery as one line of JSON, as a log may hold it: for one handler alone, if it is named.

        A msgpack body is in hexadecimal digits.
        """
        body = self.body if isinstance(self.body, str) else self.body.hex()
        fields: dict[str, Any] = {"message_id": self.message_id, "type": self.type, "body": body}
        if self.business_id is not None:
            fields["business_id"] = self.business_id
        if self.sequence is not None:
            fields["sequence"] = self.sequence
        if self.enqueued_at is not None:
            fields["enqueued_at"] = shown_time(self.enqueued_at)
        if self.headers:
            fields["headers"] = dict(self.headers)
        if handler is not None:
            fields["handler"] = handler
        return json.dumps(fields, ensure_ascii=False)

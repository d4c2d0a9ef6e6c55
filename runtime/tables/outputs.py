"""Outputs of versions, which no store keeps: they are what replaying the versions' messages gives.

A replay that does not meet the digests of its version gives none: what is shown was published.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from handlers import App, CodecError
from handlers.app import HandlerDefinition
from runtime.algorithms.invocation import HandlerFailedError
from runtime.algorithms.state_based.replay import Replayer, find_difference
from runtime.errors import UsageError
from runtime.messages.copies import is_copy
from runtime.messages.deliveries import Prepared
from runtime.messages.digests import NO_OUTPUTS
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Output
from runtime.messages.outputs import outputs_of
from runtime.messages.parsing import prepare
from runtime.storage.version import RunVersions, Version
from runtime.tables.columns import TEXT, TIME
from runtime.tables.decoding import Decoded

TYPE = pa.list_(
    pa.struct(
        [
            ("message_id", TEXT),
            ("type", TEXT),
            ("body", TEXT),
            ("sequence", pa.int64()),
            ("enqueued_at", TIME),
            ("headers", pa.map_(TEXT, TEXT)),
        ]
    )
)
"""The outputs of a version, each with the columns of a message log."""


class Outputs:
    """The outputs of one handler's versions, given the messages that made them, which it holds by their ids."""

    def __init__(self, app: App, handler: str, messages: Iterable[Envelope]) -> None:
        self._app = app
        self._handler: HandlerDefinition = app.handlers[handler]
        self._messages: Mapping[str, Envelope] = {
            each.message_id: each for each in messages if each.type in self._handler.routes
        }

    def keyed(self, draw_key: bytes | None) -> Outputs:
        """Return the same for a table with this secret of its draws, None for one without."""
        return Outputs(self._app.keyed(draw_key), self._handler.name, self._messages.values())

    def of(self, some: Decoded) -> Sequence[Sequence[Mapping[str, Any]] | None]:
        """Return the outputs of each version; None where its message is not there or cannot be replayed."""
        replayer = Replayer(self._handler, some.stream.business_id)
        return [self._of(replayer, some.stream.business_id, version) for version in RunVersions(some.run)]

    def _of(self, replayer: Replayer, business_id: str, version: Version) -> list[Mapping[str, Any]] | None:
        if version.record.outputs_digest == NO_OUTPUTS:
            return []
        envelope = self._messages.get(version.message_id)
        delivery = None if envelope is None else prepare(self._handler, business_id, envelope)
        if not isinstance(delivery, Prepared) or not is_copy(delivery, version.record.fingerprint):
            return None
        try:
            replayed = replayer.replay(version.message_id, delivery.route, delivery.message, version)
            if find_difference(self._handler, replayed, version) is not None:
                return None
        except (HandlerFailedError, CodecError):
            return None
        return list(map(_row, outputs_of(replayed.published, version.number, version.record.now)))


def outputs_by(app: App | None, handler: str | None, messages: Iterable[Envelope]) -> Outputs:
    """Return what replays the versions of one handler of an app. Raises `UsageError` when it is not said which."""
    if app is None or handler is None:
        raise UsageError("Outputs are what replay gives: say with which app, and of which handler.")
    if handler not in app.handlers:
        raise UsageError(f"The app has no handler {handler}: it has {', '.join(app.handlers)}.")
    return Outputs(app, handler, messages)


def _row(output: Output) -> Mapping[str, Any]:
    return {**output._asdict(), "headers": list((output.headers or {}).items())}

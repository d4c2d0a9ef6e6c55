"""Differences between a replay and what was recorded of the version.

The next state is recorded, so its fields are compared one by one. Of the outputs only a digest is recorded: which of
them differ is known where those of the first delivery are in memory, or where the digest fits some of today's outputs.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from handlers import Published
from runtime.messages.digests import digest_outputs
from runtime.messages.outcome import Output
from runtime.storage.readable_states import ABSENT, Change, changes, decode

_SHOWN = 5
_VALUE_LENGTH = 80
_TRIED = 64
"""Up to how many outputs the digest is tried on."""


@dataclass(frozen=True, slots=True)
class Difference:
    """How a replay of version `number` differs from what was recorded.

    `state` are the fields of the next state that differ, None when it is the same; `outputs` says in words which
    outputs differ, None when they are the same. `schemas` are the recorded schema version and today's, None when they
    are one.
    """

    number: int
    state: tuple[Change, ...] | None
    outputs: str | None
    schemas: tuple[int, int] | None = None

    def __str__(self) -> str:
        kinds = [("other outputs", self.outputs), ("another next state", self.state)]
        what = " and ".join(kind for kind, found in kinds if found is not None)
        details = "; ".join(filter(None, (self._state_text(), self.outputs)))
        return (
            f"The replay of version {self.number} has {what} than recorded: {details}. The handler is not "
            f"deterministic, or was changed without a new revision."
        )

    def _state_text(self) -> str | None:
        if self.state is None:
            return None
        more = f" and {len(self.state) - _SHOWN} fields more" if len(self.state) > _SHOWN else ""
        fields = ", ".join(map(_change_text, self.state[:_SHOWN])) or "the same fields are written otherwise"
        if self.schemas is None:
            return f"{fields}{more}"
        old, new = self.schemas
        return f"{fields}{more} (compared in schema version {new}, upcast from {old})"


def compare_states(recorded: bytes, now: bytes) -> tuple[Change, ...]:
    """Return the fields of two encoded states that differ."""
    return tuple(changes(decode(recorded), decode(now)))


def compare_outputs(now: Sequence[Published], digest: bytes, first: Sequence[Output] | None = None) -> str:
    """Say how today's outputs differ from those with this digest, or from the `first`, where they are in memory."""
    if first is not None:
        return "; ".join(_each_difference(first, now)) or "the outputs have other ids"
    if not now:
        return "nothing is published, and something was"
    if digest == digest_outputs(()):
        return f"{_listed(now)} published, and nothing was"
    return _new_outputs(now, digest) or f"{_listed(now)} published; of what was, only the digest is known"


def _new_outputs(now: Sequence[Published], digest: bytes) -> str | None:
    """Say which outputs are new, when those before them are what was published."""
    for kept in range(len(now) - 1, max(0, len(now) - _TRIED), -1):
        if digest_outputs(now[:kept]) == digest:
            return f"{_listed(now[kept:])} published after the {kept} that were"
    return None


def _each_difference(first: Sequence[Output], now: Sequence[Published]) -> Iterator[str]:
    if len(first) != len(now):
        yield f"{len(now)} outputs instead of {len(first)}"
    for number, (was, is_) in enumerate(zip(first, now, strict=False), 1):
        if was.type != is_.type:
            yield f"output {number} is a {is_.type} instead of a {was.type}"
            return
        found = changes(_fields(was), _fields(is_))
        if found:
            yield f"output {number} ({is_.type}): {', '.join(map(_change_text, found[:_SHOWN]))}"
            return


def _fields(output: Output | Published) -> dict[str, Any]:
    body = output.body.encode() if isinstance(output.body, str) else output.body
    return {"message_id": output.message_id, "body": decode(body), "headers": dict(output.headers)}


def _listed(outputs: Sequence[Published]) -> str:
    names = [output.type for output in outputs[:_SHOWN]]
    more = f" and {len(outputs) - _SHOWN} more" if len(outputs) > _SHOWN else ""
    return f"{', '.join(names)}{more} {'is' if len(outputs) == 1 else 'are'}"


def _change_text(change: Change) -> str:
    return f"{change.field} was {shown(change.before)} and is {shown(change.after)}"


def shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return a value for a sentence, not longer than one can read."""
    text = ABSENT if value == ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_LENGTH else f"{text[:_VALUE_LENGTH]}..."

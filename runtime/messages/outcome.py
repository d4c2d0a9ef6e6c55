"""Outcomes: the result of each delivery in one handler."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import chain, repeat
from typing import Any, NamedTuple, Self, overload

from handlers import Published
from runtime.messages.envelope import Columnar, Envelope, Envelopes, Headers, with_trace

# A regular expression, for Python and Spark, of the parts in which errors of a group may differ.
VARYING = r"""'[^']*'|"[^"]*"|-?\d+"""

_VARYING = re.compile(VARYING)
_EXAMPLES = 2


@dataclass(slots=True)
class DeadLetters:
    """A group of dead letters: their number, one of their errors, and up to two message ids."""

    reason: str
    handler: str | None
    type: str | None
    error: str
    count: int
    message_ids: list[str] = field(default_factory=list)


def without_values(error: str) -> str:
    return _VARYING.sub("", error)


class DeadLetterGroups:
    """Groups dead letters by reason, handler, type and error. Numbers and quoted values in errors are ignored."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Any, ...], DeadLetters] = {}

    def add(
        self, reason: str, handler: str | None, type_: str | None, error: str, message_id: str | None
    ) -> None:
        key = (reason, handler, type_, without_values(error))
        group = self._groups.setdefault(key, DeadLetters(reason, handler, type_, error, 0))
        group.count += 1
        if message_id and message_id not in group.message_ids and len(group.message_ids) < _EXAMPLES:
            group.message_ids.append(message_id)

    def largest_first(self) -> list[DeadLetters]:
        return sorted(self._groups.values(), key=lambda group: (-group.count, group.reason, group.error))


def group_dead_letters(rows: Iterable[Mapping[str, Any]]) -> list[DeadLetters]:
    """Group rows of an outcome file, all dead letters, as `DeadLetterGroups` does. Return the largest group first."""
    groups = DeadLetterGroups()
    for row in rows:
        groups.add(row["reason"], row["handler"], row["type"], row["error"], row["message_id"])
    return groups.largest_first()


OUTPUT_INDEX_BITS = 20  # of `Output.sequence`

MAX_ERROR_LENGTH = 2000
_END = 100  # characters kept from the end of a long error, which names the line


class Status(StrEnum):
    """How a delivery ended."""

    PROCESSED = "processed"
    DUPLICATE = "duplicate"
    TOO_LATE = "too_late"
    DEAD_LETTER = "dead_letter"


class Reason(StrEnum):
    """Why a delivery became a dead letter."""

    INVALID_ENVELOPE = "invalid_envelope"
    UNKNOWN_TYPE = "unknown_type"
    TYPE_NOT_ALLOWED = "type_not_allowed"
    UNKNOWN_HANDLER = "unknown_handler"
    INVALID_BODY = "invalid_body"
    NO_BUSINESS_ID = "no_business_id"
    BUSINESS_ID_MISMATCH = "business_id_mismatch"
    KEY_TOO_LONG = "key_too_long"
    HANDLER_ERROR = "handler_error"
    HANDLER_TIMEOUT = "handler_timeout"
    HANDLER_CRASHED = "handler_crashed"
    ID_REUSED = "id_reused"
    NONDETERMINISTIC = "nondeterministic"
    REPLAY_FAILED = "replay_failed"
    ENQUEUED_IN_FUTURE = "enqueued_in_future"
    TOO_LARGE = "too_large"
    STATE_TOO_LARGE = "state_too_large"
    HELD_BACK = "held_back"
    FORGOTTEN = "forgotten"
    STREAM_DAMAGED = "stream_damaged"


class Output(NamedTuple):
    """A message that a handler published. The fields are columns of a message log."""

    message_id: str
    type: str
    body: str
    sequence: int  # the version that the parent made, shifted by 20 bits, plus the index of the output
    enqueued_at: int  # the recorded time of the parent, in microseconds since 1970 UTC
    headers: Mapping[str, str]

    def envelope(self) -> Envelope:
        return Envelope(
            self.message_id, self.type, self.body, None, self.sequence, self.enqueued_at, self.headers or None
        )


Maker = tuple[str, int | None]
"""The id and number of the batch that made a version."""


class Outcome(NamedTuple):
    """The outcome of one delivery in one handler."""

    envelope: Envelope
    handler: str | None
    business_id: str | None
    status: Status
    reason: Reason | None = None
    error: str | None = None
    version: int | None = None  # numbered from 1 in each stream
    outputs: tuple[Output, ...] = ()
    made_by: Maker | None = None  # for a duplicate whose version a batch made

    @property
    def is_dead_letter(self) -> bool:
        return self.status is Status.DEAD_LETTER


def dead_letter(
    envelope: Envelope,
    reason: Reason,
    error: str,
    handler: str | None = None,
    business_id: str | None = None,
    *,
    length: int = MAX_ERROR_LENGTH,
) -> Outcome:
    """Return the outcome of a rejected delivery. An error longer than `length` characters is shortened."""
    if len(error) > length:
        end = f" ... ({len(error):,} characters) ... {error[-_END:]}"
        error = error[: length - len(end)] + end if length >= 2 * len(end) else error[:length]
    shown = error.encode("utf-8", "backslashreplace").decode()
    return Outcome(envelope, handler, business_id, Status.DEAD_LETTER, reason, shown)


@dataclass(slots=True)
class Outputs(Columnar[Output]):
    """Outputs by column: one list for each field of `Output`. A body is text or UTF-8 bytes."""

    row = Output

    message_ids: list[str] = field(default_factory=list)
    types: list[str] = field(default_factory=list)
    bodies: list[str | bytes] = field(default_factory=list)
    sequences: list[int] = field(default_factory=list)
    enqueued_at: list[int] = field(default_factory=list)
    headers: list[Mapping[str, str]] = field(default_factory=list)


def outputs_of(
    published: Sequence[Published], version: int, now: int, cause: Headers = None
) -> tuple[Output, ...]:
    """Return the outputs of `version`. `now` is its recorded time. `cause` has the headers of its message."""
    return tuple(
        Output(id_, name, body.decode(), number, now, with_trace(headers, cause))
        for number, (id_, name, body, headers) in enumerate(published, version << OUTPUT_INDEX_BITS)
    )


class Outcomes(Sequence[Outcome]):
    """Outcomes by column, in the order of deliveries. Rows are created on access.

    `refused` maps positions to outcomes that the columns cannot represent, such as dead letters.
    """

    def __init__(
        self, envelopes: Envelopes, handler: str | None = None, business_id: str | None = None
    ) -> None:
        self.envelopes = envelopes
        self.handler = handler
        self.business_id = business_id
        self.business_ids: list[str | None] | None = None
        self.statuses: list[Status] = []
        self.versions: list[int | None] = []
        self.nows: list[int] = []
        self.published: list[Sequence[Published]] = []
        self.refused: dict[int, Outcome] = {}
        self.makers: dict[int, Maker] = {}  # `Outcome.made_by`, by position
        self.made = 0  # the number of new versions

    @classmethod
    def of(cls, outcomes: Sequence[Outcome]) -> Outcomes:
        """Convert outcomes to columns."""
        if isinstance(outcomes, Outcomes):
            return outcomes
        columns = cls(Envelopes.of(each.envelope for each in outcomes))
        for outcome in outcomes:
            columns.refuse(outcome)
        return columns

    def processed(self, first: int, nows: Sequence[int], published: Sequence[Sequence[Published]]) -> None:
        """Append outcomes of deliveries that made versions from `first` on. `nows` has the versions' recorded times."""
        self.made += len(nows)
        self.statuses += [Status.PROCESSED] * len(nows)
        self.versions += range(first, first + len(nows))
        self.nows += nows
        self.published += published

    def conclude(self, status: Status, version: int | None, now: int, published: Sequence[Published]) -> None:
        """Append the outcome of a delivery that made or repeats `version`. `now` is the version's recorded time."""
        self.statuses.append(status)
        self.versions.append(version)
        self.nows.append(now)
        self.published.append(published)

    def refuse(self, outcome: Outcome) -> None:
        """Append an outcome that the columns cannot represent, such as a dead letter."""
        self.refused[len(self)] = outcome
        if outcome.made_by is not None:
            self.makers[len(self)] = outcome.made_by
        self.conclude(outcome.status, outcome.version, 0, ())

    def outputs(self) -> tuple[list[int], Outputs]:
        """Return the number of outputs of each outcome, and the outputs of all outcomes."""
        if any(outcome.outputs for outcome in self.refused.values()):
            rows = [outcome.outputs for outcome in self]
            return [len(outputs) for outputs in rows], Outputs.of(chain.from_iterable(rows))
        counts = list(map(len, self.published))
        flat = list(chain.from_iterable(self.published))
        if not flat:
            return counts, Outputs()
        message_ids, types, bodies, headers = map(list, zip(*flat, strict=True))
        if any(causes := self.envelopes.headers):
            caused_by = chain.from_iterable(map(repeat, causes, counts))
            headers = list(map(with_trace, headers, caused_by))
        firsts = [(version or 0) << OUTPUT_INDEX_BITS for version in self.versions]
        sequences = [
            first + index for first, count in zip(firsts, counts, strict=True) for index in range(count)
        ]
        times = list(chain.from_iterable(map(repeat, self.nows, counts)))
        return counts, Outputs(message_ids, types, bodies, sequences, times, headers)

    def __iadd__(self, other: Outcomes) -> Self:
        first = len(self)
        self.refused.update({first + position: outcome for position, outcome in other.refused.items()})
        self.makers.update({first + position: made_by for position, made_by in other.makers.items()})
        self.statuses += other.statuses
        self.versions += other.versions
        self.nows += other.nows
        self.published += other.published
        self.made += other.made
        return self

    def __len__(self) -> int:
        return len(self.statuses)

    @overload
    def __getitem__(self, index: int) -> Outcome: ...

    @overload
    def __getitem__(self, index: slice) -> Outcomes: ...

    def __getitem__(self, index: int | slice) -> Outcome | Outcomes:
        if isinstance(index, slice):
            part = Outcomes(self.envelopes[index], self.handler, self.business_id)
            part.business_ids = None if self.business_ids is None else self.business_ids[index]
            part.statuses, part.versions = self.statuses[index], self.versions[index]
            part.nows, part.published = self.nows[index], self.published[index]
            positions = list(enumerate(range(len(self))[index]))
            part.refused = {new: self.refused[old] for new, old in positions if old in self.refused}
            part.makers = {new: self.makers[old] for new, old in positions if old in self.makers}
            return part
        position = range(len(self))[index]
        if position in self.refused:
            return self.refused[position]
        version = self.versions[position]
        envelope, status = self.envelopes[position], self.statuses[position]
        outputs = outputs_of(self.published[position], version or 0, self.nows[position], envelope.headers)
        business_id = self.business_id if self.business_ids is None else self.business_ids[position]
        made_by = self.makers.get(position)
        return Outcome(envelope, self.handler, business_id, status, None, None, version, outputs, made_by)

    def __iter__(self) -> Iterator[Outcome]:
        return map(self.__getitem__, range(len(self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment] # a list

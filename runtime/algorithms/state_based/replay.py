"""Replay duplicates on the version before their own, with the recorded context."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, NamedTuple

from eventstore import InvalidKeyError, Table
from handlers import CodecError, Context, Message, Published, State
from handlers.app import HandlerDefinition, Route, settle
from runtime.algorithms.algorithm import HandlerFailedError, failure_of
from runtime.messages.envelope import NO_OUTPUTS, IdKey, digest_outputs, digest_state, id_key
from runtime.messages.outcome import Outcome, Output, Reason, outputs_of
from runtime.messages.parsing import Delivery, Prepared, has_fingerprint, is_copy
from runtime.namesakes import is_from_outside
from runtime.retries import RetryPolicy, until_undisturbed
from runtime.versions.head import Head
from runtime.versions.properties import error_location
from runtime.versions.readable import ABSENT, Change, changes, decode, read_state
from runtime.versions.run import Version
from runtime.versions.stream import History, find_versions

_SHOWN = 5
_VALUE_LENGTH = 80


@dataclass(frozen=True, slots=True)
class Difference:
    """How the replay of a version differs from the record."""

    number: int  # of the version
    state: tuple[Change, ...] | None  # the fields of the next state that differ; None: the states are equal
    outputs: str | None  # describes the difference; None: the outputs are equal
    schemas: tuple[int, int] | None = None  # the recorded schema version and the current one, if they differ

    def __str__(self) -> str:
        kinds, details = [], []
        if self.outputs is not None:
            kinds.append("other outputs")
        if self.state is not None:
            kinds.append("another next state")
            more = f" and {len(self.state) - _SHOWN} fields more" if len(self.state) > _SHOWN else ""
            upcast = ""
            if self.schemas is not None:
                upcast = " (compared in schema version {1}, upcast from {0})".format(*self.schemas)
            fields = [f"{one.field} was {shown(one.before)} and is {shown(one.after)}" for one in self.state]
            listed = ", ".join(fields[:_SHOWN]) or "the same fields are encoded differently"
            details.append(f"{listed}{more}{upcast}")
        if self.outputs:
            details.append(self.outputs)
        return (
            f"The replay of version {self.number} has {' and '.join(kinds)} than recorded: {'; '.join(details)}. "
            f"The handler is not deterministic, or was changed without a new revision."
        )


def shown(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Format a JSON value for an error message, shortened to 80 characters."""
    text = ABSENT if value == ABSENT else json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_LENGTH else f"{text[:_VALUE_LENGTH]}..."


def compare_outputs(now: Sequence[Published], digest: bytes) -> str:
    """Describe how the outputs of a replay differ from the recorded ones, known only by their different `digest`."""
    if not now:
        return "no outputs, but some were recorded"
    recorded = "none were" if digest == NO_OUTPUTS else "only the digest of the outputs was"
    names = ", ".join([output.type for output in now[:_SHOWN]])
    more = f" and {len(now) - _SHOWN} more" if len(now) > _SHOWN else ""
    return f"{names}{more} {'was' if len(now) == 1 else 'were'} published; {recorded} recorded"


IN_A_ROW = 512
"""The maximum number of duplicates replayed at once. This bounds the memory for their outputs."""


class RevisionGoneError(HandlerFailedError):
    """Raised when the code no longer has the revision that made a version."""


class Replayed(NamedTuple):
    """The result of a replay: the encoded next state, and the outputs."""

    after: bytes
    published: Sequence[Published]


class Copy(NamedTuple):
    """A duplicate: a delivery of a message that made a version."""

    message_id: str
    route: Route
    message: Message
    version: Version
    position: int = 0  # among the deliveries

    @classmethod
    def of(cls, delivery: Prepared, version: Version, position: int = 0) -> Copy:
        return cls(delivery.envelope.message_id, delivery.route, delivery.message, version, position)


class Replayer:
    """Replays known messages of one stream."""

    def __init__(self, handler: HandlerDefinition, business_id: str) -> None:
        self._handler = handler
        self._business_id = business_id
        self._context: Context | None = None
        """The context of the current call. While this is set, an error comes from the handler."""

    def replay_all(
        self, copies: Sequence[Copy]
    ) -> tuple[list[Replayed], HandlerFailedError | CodecError | None]:
        """Replay consecutive known messages as recorded, up to the first error. Return the results, and any error."""
        replayed: list[Replayed] = []
        run = partial(self._replay_all, copies, replayed)
        try:
            self._handler.interceptor.call(run, lambda: self._context)
        except BaseException as error:
            called, self._context = self._context, None
            if called is not None and not is_from_outside(error):
                return replayed, failure_of(called.exceeded or error)
            if isinstance(error, CodecError | HandlerFailedError):
                return replayed, error
            raise
        return replayed, None

    def _replay_all(self, copies: Sequence[Copy], replayed: list[Replayed]) -> None:
        handler, codec = self._handler, self._handler.codec
        state: State | None = None
        encoded = b""
        for message_id, route, message, version, _ in copies:
            record, before = version.record, version.before
            method = route.revisions.get(record.revision)
            if method is None:
                raise RevisionGoneError(
                    f"{handler.name} no longer has revision {record.revision} for {record.type}: restore it."
                )
            if version.schema != codec.version:
                before = codec.upcast(before, version.schema)
            if state is None or encoded != before:
                state = codec.reread(before)
            self._context = context = Context(
                handler.name,
                self._business_id,
                message_id,
                record.now,
                record.headers,
                recorded=record.captured or {},
                draw_key=handler.draw_key,
            )
            values = list(state.__dict__.values())
            returned = method(state, message, context)
            state, encoded = settle(handler, method, state, values, before, returned, context)
            published = context.published
            self._context = None
            replayed.append(Replayed(encoded, published))

    def replay(self, copy: Copy) -> Replayed:
        """Replay one known message. Raises the error that `replay_all` would return."""
        replayed, error = self.replay_all([copy])
        if error is not None:
            raise error
        return replayed[0]


def meets_digests(replayed: Replayed, version: Version) -> bool:
    record, (after, published) = version.record, replayed
    return digest_state(after) == record.state_digest and digest_outputs(published) == record.outputs_digest


def find_difference(handler: HandlerDefinition, replayed: Replayed, known: Version) -> Difference | None:
    """Return how a replay differs from a version, or `None` if equal. Raises `CodecError` if a state cannot be read."""
    codec, record = handler.codec, known.record
    is_upcast = known.schema != codec.version
    recorded = codec.upcast(known.after, known.schema)
    expected = digest_state(recorded) if is_upcast else record.state_digest
    after, published = replayed
    state = outputs = None
    if digest_state(after) != expected:
        state = tuple(changes(decode(recorded), decode(after)))
    if digest_outputs(published) != record.outputs_digest:
        outputs = compare_outputs(published, record.outputs_digest)
    if state is None and outputs is None:
        return None
    return Difference(known.number, state, outputs, (known.schema, codec.version) if is_upcast else None)


class Verdict(StrEnum):
    """How the current code would handle a redelivery."""

    MATCH = "match"
    NONDETERMINISTIC = "nondeterministic"
    REPLAY_FAILED = "replay_failed"
    REVISION_GONE = "revision_gone"
    STATE_UNREADABLE = "state_unreadable"
    REFUSED = "refused"
    STREAM_DAMAGED = "stream_damaged"
    STREAM_LOST = "stream_lost"
    ID_REUSED = "id_reused"
    NOT_KEPT = "not_kept"
    UNKNOWN = "unknown"

    @property
    def is_difference(self) -> bool:
        return self not in {Verdict.MATCH, Verdict.ID_REUSED, Verdict.NOT_KEPT, Verdict.UNKNOWN}


@dataclass(frozen=True, slots=True)
class Finding:
    """The verdict on one delivery to one handler. The finding that the newest state is unreadable has no message."""

    handler: str | None
    business_id: str | None
    message_id: str | None
    type: str | None
    verdict: Verdict
    version: int | None = None  # the stored version, if any
    revision: int | None = None  # of the stored version
    error: str | None = None
    changes: tuple[Change, ...] = ()  # the fields of the next state that differ
    outputs: tuple[Output, ...] = ()  # of a match


class _Judgement(NamedTuple):
    """The fields of a finding that a comparison with the stored version yields."""

    verdict: Verdict
    error: str | None = None
    changes: tuple[Change, ...] = ()
    outputs: tuple[Output, ...] = ()


FindCut = Callable[[str, str, Collection[IdKey], int], Mapping[IdKey, Version]]
"""Returns truncated versions of a handler and business id by message id. Ignores versions written before a time."""


@dataclass(eq=False, repr=False)
class Verifier:
    """Compares deliveries of one handler with the stored versions, one stream at a time."""

    table: Table
    handler: HandlerDefinition
    retries: RetryPolicy
    with_outputs: bool = field(default=False, kw_only=True)  # keep the outputs of matches
    find_cut: FindCut | None = field(default=None, kw_only=True)  # searches an archive

    def __post_init__(self) -> None:
        self.retries = self.retries.beside(self.table)

    async def verify(self, business_id: str, deliveries: Sequence[Delivery]) -> list[Finding]:
        """Return a finding for each delivery of a stream, and one more if its newest state cannot be read."""
        name, keys = self.handler.name, list(map(_key, deliveries))
        ids = {key for key in keys if key is not None}
        head, known = Head(None, self.handler.codec.version), dict[IdKey, Version]()
        with error_location(self.table, f"{name}-{business_id}"):
            with suppress(InvalidKeyError):  # there is no such stream
                find = partial(find_versions, self.table, name, business_id, ids)
                stream = await until_undisturbed(self.retries, find)
                if stream is not None:
                    head, known = stream.head, self._known(stream, business_id, ids)
            versions = [None if key is None else known.get(key) for key in keys]
            judgements = self._judge(head, business_id, deliveries, versions)
            judged = zip(deliveries, versions, judgements, strict=True)
            findings = [self._finding(business_id, *each) for each in judged]
        error = None if head.state is None else self._unreadable(head.state, head.schema)
        if error is None:
            return findings
        newest = Finding(name, business_id, None, None, Verdict.STATE_UNREADABLE, head.versions, error=error)
        return [newest, *findings]

    def _known(self, stream: History, business_id: str, ids: Collection[IdKey]) -> dict[IdKey, Version]:
        known = {key: version for key in ids if (version := stream.find(key)) is not None}
        others = [key for key in ids if key not in known]
        if self.find_cut is None or stream.head.kept_from == 1 or not others:
            return known
        forgotten = stream.head.tombstone
        since = forgotten.at if forgotten else 0
        return {**self.find_cut(self.handler.name, business_id, others, since), **known}

    def _unreadable(self, encoded: bytes, schema: int) -> str | None:
        codec = self.handler.codec
        try:
            read_state(codec, codec.upcast(encoded, schema), self.handler.name)
        except CodecError as error:
            return str(error)
        return None

    def _judge(
        self, head: Head, business_id: str, deliveries: Sequence[Delivery], versions: Sequence[Version | None]
    ) -> Iterator[_Judgement]:
        """Yield the judgement of each delivery, given its version. Consecutive copies are replayed together."""
        replayer = Replayer(self.handler, business_id)
        position = 0
        while position < len(deliveries):
            copies, row = list[Copy](), slice(position, position + IN_A_ROW)
            for delivery, version in zip(deliveries[row], versions[row], strict=True):
                if version is None or isinstance(delivery, Outcome):
                    break
                if not is_copy(delivery, version.record.fingerprint):
                    break
                copies.append(Copy.of(delivery, version))
            replayed, error = replayer.replay_all(copies)
            judged = [self._compare(copy.version, each) for copy, each in zip(copies, replayed, strict=False)]
            if error is not None:
                judged.append(self._failed(copies[len(judged)].version, error))
            if not judged:
                judged.append(self._of_other(head, deliveries[position], versions[position]))
            yield from judged
            position += len(judged)

    def _of_other(self, head: Head, delivery: Delivery, known: Version | None) -> _Judgement:
        if known is None:
            if isinstance(delivery, Outcome):
                return _Judgement(Verdict.UNKNOWN, delivery.error)
            is_too_late = head.is_too_late(delivery.envelope.enqueued_at)
            return _Judgement(Verdict.NOT_KEPT if is_too_late else Verdict.UNKNOWN)
        if isinstance(delivery, Outcome):
            route, type_ = self.handler.routes.get(delivery.envelope.type), delivery.envelope.type
            names = (type_,) if route is None else route.names
            if has_fingerprint(delivery.envelope, names, known.record.fingerprint, route):
                return _Judgement(Verdict.REFUSED, delivery.error)
        error = f"Version {known.number} was made by another message with this id."
        return _Judgement(Verdict.ID_REUSED, error)

    def _failed(self, known: Version, error: Exception) -> _Judgement:
        if isinstance(error, RevisionGoneError):
            return _Judgement(Verdict.REVISION_GONE, str(error))
        if isinstance(error, HandlerFailedError):
            # If the state cannot be read, the handler is not to blame.
            unreadable = self._unreadable(known.before, known.schema)
            if unreadable is None:
                return _Judgement(Verdict.REPLAY_FAILED, str(error))
            return _Judgement(Verdict.STATE_UNREADABLE, unreadable)
        return _Judgement(Verdict.STATE_UNREADABLE, str(error))

    def _compare(self, known: Version, made: Replayed) -> _Judgement:
        try:
            difference = None if meets_digests(made, known) else find_difference(self.handler, made, known)
        except CodecError as error:
            return self._failed(known, error)
        if difference is not None:
            return _Judgement(Verdict.NONDETERMINISTIC, str(difference), difference.state or ())
        outputs = outputs_of(made.published, known.number, known.record.now) if self.with_outputs else ()
        return _Judgement(Verdict.MATCH, outputs=outputs)

    def _finding(
        self, business_id: str, delivery: Delivery, known: Version | None, judged: _Judgement
    ) -> Finding:
        name, id_, type_ = self.handler.name, delivery.envelope.message_id, delivery.envelope.type
        number, revision = (None, None) if known is None else (known.number, known.record.revision)
        verdict, error, differing, outputs = judged
        return Finding(name, business_id, id_, type_, verdict, number, revision, error, differing, outputs)


def _key(delivery: Delivery) -> IdKey | None:
    if isinstance(delivery, Prepared):
        return delivery.key
    if delivery.reason is Reason.INVALID_ENVELOPE or not delivery.envelope.message_id:
        return None
    return id_key(delivery.envelope.message_id)

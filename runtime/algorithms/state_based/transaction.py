"""A transaction: the versions that one commit stores, and the outcomes that depend on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from handlers import State
from runtime.batches.seen import Seen, is_dead_letter
from runtime.messages.message_ids import IdKey
from runtime.messages.outcome import Outcome, Output
from runtime.messages.parsing import Delivery, Prepared
from runtime.storage.columns import StateVersion
from runtime.storage.history import History
from runtime.storage.packing import Packer
from runtime.storage.stream import Append
from runtime.storage.version import Version


class Folded(NamedTuple):
    """A transaction that was sealed: what it appends, if anything, and the outcomes to publish once that is stored.

    `appended` are the versions made since the load, as far as more copies of their messages wait; `seen` is what has
    been seen after the outcomes.
    """

    outcomes: Sequence[Outcome]
    append: Append | None
    appended: Mapping[IdKey, Version]
    seen: Seen


class Transaction:
    """Collects new versions and outcomes on top of a history until it is full, and is sealed then.

    `state` is the newest state, and `before` its encoded bytes, on which the next version is made; `number` is the
    number of the newest version, and `last_now` the time when it was made.
    """

    def __init__(self, history: History, seen: Seen, state: State, batch: str | None) -> None:
        head = history.head
        self.head = head
        self.seen = seen
        self.state = state
        self.before = head.state or b""
        self.number = head.versions
        self.last_now = head.last_now
        self.delivered = set(seen.delivered)
        self.dead_letter = seen.dead_letter
        self._history = history
        self._batch = batch
        self._packer = Packer(head.versions, self.before, head.schema, batch)
        self._added: dict[IdKey, Version] = {}
        self._outcomes: list[Outcome] = []
        self._outcomes_before: list[int] = []

    @property
    def is_full(self) -> bool:
        """Whether a commit may have no room for more."""
        return self._packer.is_full

    def find(self, message_id: IdKey) -> Version | None:
        """Return the version that a message made, before or in this transaction."""
        return self._added.get(message_id) or self._history.find(message_id)

    def add(self, record: StateVersion, size: int, state: State, after: bytes) -> None:
        """Add a version of this raw size, and make its state the newest. The next reply is its outcome."""
        self._packer.add(record, size, self.before)
        self.number += 1
        self._added[record.message_id] = Version(
            self.number, record, self.before, after, self.head.schema, self._batch
        )
        self._outcomes_before.append(len(self._outcomes))
        self.last_now = record.now
        self.state, self.before = state, after

    def reply(self, outcome: Outcome, delivered: IdKey | None = None) -> None:
        """Add the outcome of the next delivery; `delivered` is the message, if this was a delivery of its version."""
        self._outcomes.append(outcome)
        if delivered is not None:
            self.delivered.add(delivered)
        elif is_dead_letter(outcome):
            self.dead_letter = True

    def outputs_of(self, number: int) -> Sequence[Output] | None:
        """Return the outputs of a version's first delivery, None when that was not in this transaction."""
        return next((each.outputs for each in self._outcomes if each.version == number), None)

    def seal(self, written_at: int, waiting: Sequence[Delivery]) -> Folded:
        """Return the longest prefix that one commit holds; `waiting` are the deliveries from the first on.

        The outcomes are those up to the first version that is left out.
        """
        if not self._added:
            return self._folded(None, self._outcomes, {}, waiting)
        packed = self._packer.pack(self.head.tail, self.before, written_at)
        versions = list(self._added.values())[: packed.last - self.head.versions]
        newest = versions[-1]
        head = replace(
            self.head,
            state=newest.after,
            versions=newest.number,
            last_now=newest.record.now,
            tail=packed.tail,
        )
        outcomes = self._outcomes
        if len(versions) < len(self._added):
            outcomes = outcomes[: self._outcomes_before[len(versions)]]
        added = {version.record.message_id: version for version in versions}
        return self._folded(Append(head, packed.runs), outcomes, added, waiting)

    def _folded(
        self,
        append: Append | None,
        outcomes: Sequence[Outcome],
        added: Mapping[IdKey, Version],
        waiting: Sequence[Delivery],
    ) -> Folded:
        rest = {each.key for each in waiting[len(outcomes) :] if isinstance(each, Prepared)}
        made = {**self._history.appended, **added} if rest else {}
        appended = {key: version for key, version in made.items() if key in rest}
        is_whole = len(outcomes) == len(self._outcomes)
        seen = Seen(self.delivered, self.dead_letter) if is_whole else self.seen.after(outcomes)
        return Folded(outcomes, append, appended, seen)

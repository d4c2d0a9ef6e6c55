"""The chronicle: the facts of all executions under numbers, so that equal ones are known at once."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any, NamedTuple

from tests.model.calls import Call
from tests.model.contents import Contents
from tests.model.facts import Done, Facts, Scenario
from tests.model.freezing import Numbered
from tests.model.histories import Moment

Held = Mapping[Hashable, Any]


class _Entry(NamedTuple):
    """Facts by the numbers of their items: what was committed in its order, the rest sorted."""

    committed: tuple[int, ...] = ()
    published: tuple[int, ...] = ()
    done: tuple[int, ...] = ()


class Chronicle:
    """Facts, each state of them under a number."""

    def __init__(self, scenario: Scenario, contents: Contents) -> None:
        self._scenario = scenario
        self._contents = contents
        self._entries: list[_Entry] = []
        self._numbers: dict[_Entry, int] = {}
        self._items: Numbered[Any] = Numbered()
        self._held: dict[int, Held | str] = {}
        self._commits: dict[int, tuple[int, ...]] = {}
        self._outputs: dict[int, int] = {}
        self._ends: dict[int, int] = {}

    def __getitem__(self, number: int) -> Facts:
        return Facts(*[tuple([self._items[item] for item in items]) for items in self._entries[number]])

    def begin(self, snapshot: int) -> int:
        """Return the number of the facts before anything happened."""
        return self.committed(self._number(_Entry()), snapshot)

    def held(self, snapshot: int) -> Held | str:
        """Return what a snapshot holds, or why it cannot be read."""
        held = self._held.get(snapshot)
        if held is None:
            try:
                held = self._scenario.committed(self._contents.snapshots[snapshot])
            except Exception as error:  # noqa: BLE001 - whatever reading raises, what is stored is broken
                held = repr(error)
            self._held[snapshot] = held
        return held

    def committed(self, facts: int, snapshot: int) -> int:
        """Return the facts when the tables have become a snapshot."""
        commits = self._commits.get(snapshot)
        if commits is None:
            held = self.held(snapshot)
            items = () if isinstance(held, str) else held.items()
            commits = self._commits[snapshot] = tuple([self._items.number(item) for item in items])
        entry = self._entries[facts]
        new = [item for item in commits if item not in entry.committed]
        return self._number(entry._replace(committed=(*entry.committed, *new))) if new else facts

    def forgotten(self, facts: int, kept: int) -> int:
        """Return the facts when of what was committed only that is left which other facts have."""
        return self._number(self._entries[facts]._replace(committed=self._entries[kept].committed))

    def published(self, facts: int, call: int) -> int:
        """Return the facts when a message was published."""
        item = self._outputs.get(call)
        if item is None:
            published: Call = self._contents.calls[call]
            item = self._outputs[call] = self._items.number(published.arguments[0])
        entry = self._entries[facts]
        if item in entry.published:
            return facts
        return self._number(entry._replace(published=tuple(sorted([*entry.published, item]))))

    def done(self, facts: int, number: int, job: str, moment: Moment) -> int:
        """Return the facts when the run at this moment was acknowledged."""
        item = self._ends.get(number)
        if item is None:
            item = self._ends[number] = self._items.number(Done(job, moment.result))
        entry = self._entries[facts]
        if item in entry.done:
            return facts
        return self._number(entry._replace(done=tuple(sorted([*entry.done, item]))))

    def _number(self, entry: _Entry) -> int:
        number = self._numbers.get(entry)
        if number is None:
            number = self._numbers[entry] = len(self._entries)
            self._entries.append(entry)
        return number

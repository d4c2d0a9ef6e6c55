"""Versions: what is recorded of each, with its number and the states around it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from runtime.messages.message_ids import id_text
from runtime.storage.columns import StateVersion
from runtime.storage.run import Run


class Version(NamedTuple):
    """One version of a stream.

    `before` and `after` are the encoded states around it, in schema version `schema`. `batch` wrote it, None for a
    single message, at `written_at`, in microseconds since 1970 UTC; None for one that was appended since the load.
    `batch_number` is the number of that batch, as in `Commit`.
    """

    number: int
    record: StateVersion
    before: bytes
    after: bytes
    schema: int
    batch: str | None
    written_at: int | None = None
    batch_number: int | None = None

    @property
    def message_id(self) -> str:
        """The id of the message that made the version."""
        return id_text(self.record.message_id)


class RunVersions:
    """The versions of one run, each made when it is asked for."""

    __slots__ = ("_commits", "_records", "_run", "_states")

    def __init__(self, run: Run) -> None:
        self._run = run
        self._records = list(run.versions)
        self._states = run.states_before()
        self._commits = [commit for commit in run.commits for _ in range(commit.length)]

    def __iter__(self) -> Iterator[Version]:
        return map(self.at, range(len(self._states)))

    def at(self, position: int) -> Version:
        """Return the version at a position of the run, from 0."""
        run, before = self._run, self._states[position]
        record = self._records[position]
        commit = self._commits[position]
        after = before if record.after is None else record.after
        return Version(
            run.first + position,
            record,
            before,
            after,
            run.schema,
            commit.batch,
            commit.written_at,
            commit.number,
        )

"""Messages off a queue, handled one at a time by the shipped processor, with the state-based algorithm."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import ModuleType
from typing import Any

import pytest

from handlers import App
from runtime import Processor
from runtime.ledger.settings import TableSettings
from runtime.messages.envelope import Envelope
from runtime.retries import RetryPolicy
from runtime.versions import index as id_index
from runtime.versions import limits
from tests.model import invariants
from tests.model.calls import SteppedTable, publish
from tests.model.contents import Snapshot
from tests.model.facts import Invariant
from tests.model.histories import Job
from tests.model.processes import Process
from tests.model.scribe import app, write
from tests.model.versions import Handled, committed_versions, refused_of


async def no_pause(seconds: float) -> None:
    """Try again at once: how long others take is the explorer's choice."""


PATIENCE = RetryPolicy(sleep=no_pause)


Limit = tuple[ModuleType, str, object]
"""A constant of a module of the shipped code, by its name, and what it is in a scenario."""

RUNS: list[Limit] = [(limits, "MAX_SEGMENT_BYTES", 0)]
"""Each commit becomes a run, in a row of its own."""
FULL_TAIL: list[Limit] = [(limits, "MAX_TAIL_BYTES", 1)]
"""The tail is full after each commit: the next one turns it into a run."""
MIXED: list[Limit] = [(limits, "MAX_SEGMENT_BYTES", 400), (limits, "MAX_TAIL_BYTES", 400)]
"""A tail takes two commits or so; then it becomes a run."""


@dataclass(frozen=True, slots=True)
class StateBasedScenario:
    """Copies of messages wait in a queue; each delivery is handled by a processor of its own."""

    name: str
    jobs: Sequence[Job]
    earlier: Sequence[Job] = ()
    invariants: Sequence[Invariant] = invariants.ALL
    limits: Sequence[Limit] = ()

    def committed(self, snapshot: Snapshot) -> Mapping[Hashable, Any]:
        """Return the versions in the table."""
        return committed_versions(snapshot)

    def patch(self, patch: pytest.MonkeyPatch) -> None:
        """Set the limits of this scenario, and the key of each index: a run that is repeated draws the same."""
        patch.setattr(id_index, "new_key", lambda: bytes(id_index.KEY_BYTES))
        for module, name, value in self.limits:
            patch.setattr(module, name, value)


def deliver(message: Envelope, copies: int = 1, app: App = app) -> Job:
    """Return the job of handling a message, which is delivered so many times."""
    return Job(message.message_id, partial(_process, app, message), copies)


def messages(*lines: str, copies: int = 1) -> StateBasedScenario:
    """Return the scenario of some different lines, each delivered so many times."""
    name = f"{len(lines)} message{'s' * (len(lines) > 1)}, {copies} cop{'ies' if copies > 1 else 'y'}"
    return StateBasedScenario(name, [deliver(write(line), copies) for line in lines])


async def _process(app: App, message: Envelope, process: Process) -> Handled:
    processor = Processor(
        app, SteppedTable(), publish, clock=process.clock, retries=PATIENCE, settings=TableSettings()
    )
    outcomes = await processor.process(message)
    refused = refused_of(outcomes)
    return Handled(() if refused else (message.message_id,), refused=refused)

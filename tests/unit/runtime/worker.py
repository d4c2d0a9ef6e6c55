"""A worker: handles deliveries of one stream as the worker of a batch does, with a clock that is told the time."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from eventstore import Table, drive
from handlers import App
from runtime.algorithms.choice import AlgorithmName, Dependencies, make_batch_algorithms
from runtime.clock import Clock
from runtime.documents import DocumentStore
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Output
from runtime.messages.parsing import prepare
from runtime.versions.dead_letter_rows import Letter
from runtime.versions.run import Version
from runtime.versions.stream import find_versions, versions
from tests.unit.runtime import diary
from tests.unit.runtime.patience import PATIENCE

NOW = 1_767_225_600_000_000
"""The beginning of 2026, in microseconds."""

SECOND = 1_000_000
HOUR = 3600 * SECOND
DAY = 24 * HOUR


class ToldClock:
    def __init__(self, now: int = NOW) -> None:
        self.now = now

    def __call__(self) -> int:
        return self.now


class Worker:
    def __init__(
        self,
        table: Table,
        app: App = diary.app,
        *,
        clock: Clock | None = None,
        batch: BatchContext | str | None = None,
        attempts: int = 12,
        business_id: str = diary.DIARY,
        algorithm: AlgorithmName = "state-based",
        documents: DocumentStore | None = None,
    ) -> None:
        (self.handler,) = app.handlers.values()
        self.business_id = business_id
        self.clock = clock or ToldClock()
        context = batch if isinstance(batch, BatchContext) else BatchContext(batch)
        retries = replace(PATIENCE, attempts=attempts)
        given = Dependencies(
            app, table, clock=self.clock, retries=retries, batch=context, documents=documents
        )
        self.algorithm: Any = make_batch_algorithms(algorithm, given)[self.handler.name]

    async def handle(self, *deliveries: Envelope) -> list[Outcome]:
        prepared = [prepare(self.handler, self.business_id, delivery) for delivery in deliveries]
        return list(await self.algorithm.process(self.business_id, prepared))

    def process(self, *deliveries: Envelope) -> list[Outcome]:
        return drive(self.handle(*deliveries))


@dataclass(frozen=True, slots=True)
class OpenByName(OpenBatches):
    """The batches with some names are open, whatever their numbers."""

    names: tuple[str, ...] = ()

    def is_finished(self, batch: str | None, number: int | None) -> bool:
        return batch not in self.names


def open_batches(*names: str) -> OpenBatches:
    """Return what tells that these batches are open, for batches that have no numbers."""
    return OpenByName(names=names)


def ends(outcomes: Sequence[Outcome]) -> list[str]:
    """Return what became of each delivery: its status, or for dead letters its reason."""
    return [str(outcome.reason or outcome.status) for outcome in outcomes]


def outputs(outcomes: Sequence[Outcome]) -> list[Output]:
    return [output for outcome in outcomes for output in outcome.outputs]


def stored(table: Table, handler: str = "Diary", business_id: str = diary.DIARY) -> list[Version]:
    """Return the stored versions of a stream, none when there is no stream."""
    return drive(versions(table, handler, business_id)) or []


def made_by(table: Table, handler: str = "Diary", business_id: str = diary.DIARY) -> list[str]:
    """Return the ids of the messages that made the stored versions of a stream, in their order."""
    return [version.message_id for version in stored(table, handler, business_id)]


def letters(table: Table, handler: str = "Diary", business_id: str = diary.DIARY) -> Sequence[Letter]:
    """Return the letters of a stream, in the order in which they were refused first."""
    history = drive(find_versions(table, handler, business_id, ()))
    return () if history is None else history.letters.all

"""Batches without Spark: what their workers do, in the order in which their driver has them do it."""

from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from eventstore import drive
from runtime import Envelope, Outcome, Output
from runtime.algorithms.choice import Dependencies, make_outboxes
from runtime.algorithms.outbox.algorithm import OutboxAlgorithm
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.messages.envelope import IdKey, id_key
from runtime.messages.outcome import Status
from runtime.messages.parsing import Delivery, prepare, read_body
from tests.unit.runtime.algorithms.world import Step, World
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.worker import open_batches

_FINISHED = (Status.PROCESSED, Status.DUPLICATE)
Entity = tuple[str, str]
UNFINISHED = open_batches("died", "night", "other")


@dataclass
class Batch:
    """One batch in a world, round by round. `committed` are the outcomes of its committed rounds."""

    world: World
    batch_id: str | None = "night"
    on_error: Literal["continue", "stop-stream", "park"] = "continue"
    open_batches: OpenBatches = UNFINISHED
    is_redrive: bool = False
    committed: list[list[Outcome]] = field(default_factory=list)

    def run(self, *messages: Envelope) -> list[Outcome]:
        while messages:
            self.commit(self.first_pass(*messages))
            self.second_pass()
            messages = tuple(output.envelope() for output in self.outputs_for_handlers())
        return self.outcomes

    @property
    def outcomes(self) -> list[Outcome]:
        return [outcome for found in self.committed for outcome in found]

    def outputs_for_handlers(self) -> Iterable[Output]:
        found = [output for outcome in self.committed[-1] for output in outcome.outputs]
        return {each.message_id: each for each in found if self.world.app.routes(each.type)}.values()

    def first_pass(
        self, *messages: Envelope, before: Step | None = None, after: Step | None = None
    ) -> list[Outcome]:
        return drive(self.handling(*messages, before=before, after=after))

    async def handling(
        self, *messages: Envelope, before: Step | None = None, after: Step | None = None
    ) -> list[Outcome]:
        sent = [await self.world.send(message) for message in messages]
        self.world.calls.clear()
        algorithms = self.algorithms(before, after)
        outcomes: list[Outcome] = []
        for (handler, business_id), deliveries in self._routed(sent).items():
            outcomes += await algorithms[handler].process(business_id, deliveries)
        return outcomes

    def commit(self, outcomes: Sequence[Outcome]) -> None:
        """Commit the outcomes of a round: by that, what they hold is published."""
        self.committed.append(list(outcomes))

    def second_pass(self, *, before: Step | None = None, after: Step | None = None) -> None:
        drive(self.finishing(before=before, after=after))

    async def finishing(self, *, before: Step | None = None, after: Step | None = None) -> None:
        self.world.calls.clear()
        algorithms = self.algorithms(before, after)
        for (handler, business_id), keys in self._to_finish().items():
            await algorithms[handler].finish(business_id, keys)

    def unfinished(self, latest: int) -> list[Outcome]:
        """Return what a sweep finds in all entities."""
        found: list[Outcome] = []
        for algorithm in self.algorithms().values():
            entities = algorithm.entities
            for key in drive(_all(entities.unfinished())):
                found += drive(algorithm.unfinished(entities.business_id(key), latest))
        return found

    def algorithms(self, before: Step | None = None, after: Step | None = None) -> dict[str, OutboxAlgorithm]:
        world = self.world
        other = world.watched("other", world.other, before, after)
        context = BatchContext(
            self.batch_id, self.open_batches, on_error=self.on_error, is_redrive=self.is_redrive
        )
        return make_outboxes(
            world.algorithm,
            Dependencies(
                world.app,
                world.watched("states", world.states, before, after),
                deduplication_store=other,
                token_store=other,
                clock=world.clock,
                retries=PATIENCE,
                batch=context,
            ),
        )

    def _routed(self, messages: Iterable[Envelope]) -> dict[Entity, list[Delivery]]:
        groups: dict[Entity, list[Delivery]] = {}
        for message in messages:
            for route in self.world.app.routes(message.type):
                business_id = route.business_id(read_body(route, message.body)) or ""
                handler = self.world.app.handlers[route.handler]
                groups.setdefault((handler.name, business_id), []).append(
                    prepare(handler, business_id, message)
                )
        return groups

    def _to_finish(self) -> dict[Entity, set[IdKey]]:
        entities: dict[Entity, set[IdKey]] = {}
        for outcome in self.committed[-1]:
            if outcome.status in _FINISHED:
                entity = (outcome.handler or "", outcome.business_id or "")
                entities.setdefault(entity, set()).add(id_key(outcome.envelope.message_id))
        return entities


async def _all(keys: AsyncIterator[str]) -> list[str]:
    return [key async for key in keys]

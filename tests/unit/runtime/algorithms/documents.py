"""A world in which each hit and miss has a document, which is another one each time that it is written."""

from __future__ import annotations

from datetime import timedelta
from hashlib import sha256
from itertools import count

from eventstore import Table, drive
from handlers import App
from runtime import Envelope, Outcome, Output
from runtime.algorithms.algorithm import AT_ONCE, Publish
from runtime.algorithms.documents.draft import DIGEST, DOCUMENT
from runtime.algorithms.documents.effects import TableEffects
from runtime.algorithms.documents.prepare_commit_publish import PrepareCommitPublish
from runtime.messages.parsing import prepare, read_body
from tests.unit.runtime.algorithms.world import Step, World
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import rows


class DocumentWorker:
    """Processes messages as a `Processor` does, with documents."""

    def __init__(self, world: DocumentWorld, states: Table, effects: Table, publish: Publish) -> None:
        self.world = world
        self.algorithms = {
            name: PrepareCommitPublish(
                states, TableEffects(effects), handler, world.render, publish,
                clock=world.clock, new_id=lambda: f"attempt{next(world.numbers)}", retries=PATIENCE,
            )
            for name, handler in world.app.handlers.items()
        }  # fmt: skip

    async def process(self, message: Envelope) -> list[Outcome]:
        outcomes = []
        for route in self.world.app.routes(message.type):
            handler = self.world.app.handlers[route.handler]
            prepared = prepare(handler, route.business_id(read_body(route, message.body)), message)
            assert not isinstance(prepared, Outcome)
            outcomes.append(await self.algorithms[handler.name].process(prepared))
        return outcomes

    async def issue(self, message: Envelope) -> Envelope:
        return message

    async def sweep(self, older_than: timedelta = AT_ONCE) -> int:
        return sum([await algorithm.sweep(older_than) for algorithm in self.algorithms.values()])


class DocumentWorld(World):
    """Effects stand in the other table."""

    def __init__(self, app: App) -> None:
        super().__init__("outbox", app)
        self.numbers = count(1)
        self.rendered = count(1)
        self.effects = TableEffects(self.other)

    def render(self, output: Output) -> bytes | None:
        """Write a document: no two are alike."""
        return f"{output.type}, copy {next(self.rendered)}".encode()

    def worker(self, before: Step | None = None, after: Step | None = None) -> DocumentWorker:  # type: ignore[override]
        states = self.watched("states", self.states, before, after)
        effects = self.watched("other", self.other, before, after)
        return DocumentWorker(self, states, effects, self.publisher(before, after))

    def unpublished(self) -> list[str]:
        """Return the effects that nobody can see."""
        return [key for (key, _), properties in rows(self.other).items() if not properties["Published"]]

    def garbage(self) -> list[str]:
        """Return what a sweep does not clean up, and published documents that are not as they were announced."""
        drive(self.worker().sweep())
        wrong = [
            output.headers[DOCUMENT]
            for output in self.published
            if digest(drive(self.effects.read(output.headers[DOCUMENT]))) != output.headers[DIGEST]
        ]
        announced = {f"effects.{output.headers[DOCUMENT]}" for output in self.published}
        strange = {key for key, _ in rows(self.other)} - announced
        return [*super().garbage(), *self.unpublished(), *wrong, *strange]


def digest(content: bytes | None) -> str | None:
    """Return the digest of a document, None when there is none."""
    return None if content is None else sha256(content).hexdigest()

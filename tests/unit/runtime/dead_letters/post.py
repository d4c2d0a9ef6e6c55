"""A post office: takes parcels but those that are damaged, until they are mended; and a way to run batches there."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from eventstore import Table, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime import Envelope, Outcome, Processor
from runtime.algorithms.choice import (
    AlgorithmName,
    Dependencies,
    make_batch_algorithms,
    published_by_nobody,
)
from runtime.algorithms.outbox.entity import ENTITY, read_entity
from runtime.dead_letters import FoundLetter, Selection, discard, find_letters
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import canonical
from runtime.messages.parsing import Deliveries, prepare
from runtime.versions.head import read_head
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import NOW, ToldClock

DAMAGED: set[str] = set()
"""The parcels that cannot be taken now."""

NEEDS = {"e": "d"}
"""Parcels that stand on others, which must be there first."""

ALL = Selection()


class Parcel(Message):
    box: str
    name: str


class Box(State):
    names: tuple[str, ...] = ()


class Boxes(Handler[Box]):
    @handles(by="box")
    def parcel(self, state: Box, message: Parcel, context: Context) -> Box:
        if message.name in DAMAGED:
            raise ValueError(f"{message.name} is damaged")
        if message.name in NEEDS and NEEDS[message.name] not in state.names:
            raise ValueError(f"{message.name} stands on another")
        return Box(names=(*state.names, message.name))


app = App(Boxes)


def parcel(name: str, box: str = "b", **fields: Any) -> Envelope:
    """Return a parcel, whose name is the id of its message."""
    return Envelope(canonical(name), "Parcel", json.dumps({"box": box, "name": name}), **fields)


@dataclass
class PostOffice:
    """A table, and batches on it with one algorithm."""

    algorithm: AlgorithmName = "state-based"
    table: Table = field(default_factory=memory_table)
    clock: ToldClock = field(default_factory=lambda: ToldClock(NOW))
    number: int = 0

    def batch(self, *messages: Envelope, park: bool = False, box: str = "b") -> list[Outcome]:
        self.number += 1
        return self.attempt(self.table, self.number, messages, "park" if park else "continue", box=box)

    def redrive(self, *found: FoundLetter) -> list[Outcome]:
        """Run a redrive over letters of one box, by default those that wait."""
        self.number += 1
        letters = found or self.letters()
        return self.attempt_redrive(self.number, [(each, None) for each in letters])

    def attempt_redrive(
        self, number: int, letters: Sequence[tuple[FoundLetter, Envelope | None]], table: Table | None = None
    ) -> list[Outcome]:
        """Make one attempt at a redrive over letters of one box, some of them with a mended message."""
        messages = [mended or found.letter.envelope or parcel("gone") for found, mended in letters]
        box = next((found.business_id or "" for found, _ in letters), "b")
        numbers = [found.letter.number for found, _ in letters]
        return self.attempt(table or self.table, number, messages, is_redrive=True, box=box, letters=numbers)

    def attempt(
        self,
        table: Table,
        number: int,
        messages: Sequence[Envelope],
        on_error: Literal["continue", "park"] = "continue",
        *,
        is_redrive: bool = False,
        box: str = "b",
        letters: Sequence[int] | None = None,
    ) -> list[Outcome]:
        """Make one attempt at a batch; the messages of a redrive are letters with these numbers."""
        batch = BatchContext(f"batch-{number}", on_error=on_error, is_redrive=is_redrive, number=number)
        given = Dependencies(app, table, clock=self.clock, retries=PATIENCE, batch=batch)
        algorithm = make_batch_algorithms(self.algorithm, given)["Boxes"]
        prepared = Deliveries.of([prepare(app.handlers["Boxes"], box, each) for each in messages])
        return list(drive(algorithm.process(box, replace(prepared, letters=letters))))

    def processor(self) -> Processor:
        given = {"clock": self.clock, "retries": PATIENCE, "algorithm": self.algorithm}
        return Processor(app, self.table, published_by_nobody, **given)  # type: ignore[arg-type] # its options

    def state(self, box: str = "b") -> list[str]:
        """Return the parcels in a box, in the order in which they were taken."""
        header = drive(self.table.get(f"Boxes-{box}", "SS-HEAD"))
        entity = drive(self.table.get(f"Boxes-{box}", ENTITY))
        if header is not None:
            encoded = read_head(header.properties).state
        else:
            encoded = None if entity is None else read_entity(entity).state
        return list(json.loads(encoded or b"{}").get("names", ()))

    def letters(self, selection: Selection = ALL) -> list[FoundLetter]:

        async def read() -> list[FoundLetter]:
            return [found async for found in find_letters(self.table, selection)]

        return drive(read())

    def names(self, selection: Selection = ALL) -> list[str]:
        return [found.letter.message_id for found in self.letters(selection)]

    def discard(self, selection: Selection = ALL) -> int:
        return drive(discard(self.table, selection, PATIENCE))

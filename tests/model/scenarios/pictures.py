"""State-based, with documents: each line of a book has a picture, another one each time that it is drawn."""

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from hashlib import sha256
from typing import Any

import pytest

from eventstore import Operation, RowNotFoundError, drive
from handlers import App, Context, DocumentReference, Handler, Message, handles
from handlers.codec import unpack
from handlers.context import DOCUMENT, new_document
from runtime import documents as protocol
from runtime.algorithms.algorithm import AT_ONCE
from runtime.algorithms.state_based.algorithm import StateBased, StateBasedOneByOne
from runtime.algorithms.state_based.truncation import DAY
from runtime.clock import Clock
from runtime.documents import MARKER, Documents, DocumentStore, DocumentSweep, delete
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import Ledger
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Output
from runtime.messages.parsing import Prepared, prepare
from runtime.versions.stream import versions
from tests.model import invariants
from tests.model.book import BOOK, Handled, Lines, Turned, Write, write
from tests.model.calls import SteppedTable, publish
from tests.model.contents import Snapshot
from tests.model.facts import Invariant, Scenario, View, count_of
from tests.model.histories import Job
from tests.model.mistakes import ALONE_CRASH, ALONE_LOSS, Mistakes, instead_of
from tests.model.processes import NOW, Dependencies, Process, draw_id
from tests.model.scenarios.state_based import ONE_TOKEN, PATIENCE, publish_first, state_based, task
from tests.model.world import Bounds

PICTURES, STATES, PICTURE = "other", "states", "PICTURE"


class Drawn(Message, name="Wrote"):
    lines: tuple[str, ...]
    picture: DocumentReference


class Illustrator(Handler[Lines], name="Scribe"):
    @handles(by="book")
    def write(self, state: Lines, message: Write, context: Context) -> Lines:
        lines = (*state.lines, message.line)
        picture = context.store_document(Dependencies.process.draw, media_type="image/png", name="picture")
        context.publish(Drawn(lines=lines, picture=picture))
        context.publish(Turned(page=len(lines)))
        return state.model_copy(update={"lines": lines})


app = App(Illustrator)
(ILLUSTRATOR,) = app.handlers.values()


@dataclass(frozen=True, slots=True)
class Pictures(DocumentStore):
    """Documents in a table: each call is one operation, which may be lost, late or repeated as those of tables are."""

    table: SteppedTable = field(default_factory=lambda: SteppedTable(PICTURES))

    async def prepare(self, reference: DocumentReference, content: bytes) -> None:
        await self.table.transact(
            reference.name, [Operation.insert_or_replace(PICTURE, {"Content": content})]
        )
        await self.table.barrier()

    async def delete(self, name: str) -> None:
        with suppress(RowNotFoundError):
            await self.table.transact(name, [Operation.delete(PICTURE)])
        await self.table.barrier()


def illustrated(*lines: str, copies: int = 1, swept: bool = False) -> Scenario:
    """Return the scenario of some different lines, each delivered so many times, with a sweeper beside them or not."""
    jobs = [Job(line, partial(_process, write(line)), copies) for line in lines]
    name = f"pictures: {', '.join(lines)}; {count_of(copies)} each"
    if swept:
        return state_based(f"{name}, and a sweeper", [*jobs, Job("sweep", _sweep)], (), INVARIANTS)
    return state_based(name, jobs, (), INVARIANTS)


def _algorithm(table: SteppedTable, clock: Clock, batch: BatchContext) -> StateBased:
    documents = Documents(Pictures(), table, clock, draw_id, PATIENCE)
    return StateBased(table, ILLUSTRATOR, clock, batch, PATIENCE, documents=documents)


def _prepared(message: Envelope) -> Prepared:
    prepared = prepare(ILLUSTRATOR, BOOK, message)
    assert not isinstance(prepared, Outcome)
    return prepared


async def _process(message: Envelope, process: Process) -> Handled:
    algorithm = _algorithm(SteppedTable(), process.clock, BatchContext())
    await StateBasedOneByOne(algorithm, publish).process(_prepared(message))
    return Handled((message.message_id,))


async def _fold(table, clock, batch, messages) -> list[Outcome]:
    return list(await _algorithm(table, clock, batch).process(BOOK, [_prepared(each) for each in messages]))


async def _sweep(process: Process) -> Handled:
    table = SteppedTable()
    open_batches = await Ledger(table, process.clock, PATIENCE).open_batches()
    await DocumentSweep(table, Pictures(), process.clock, PATIENCE, open_batches).sweep(AT_ONCE)
    return Handled()


def _not_as_announced(view: View) -> str | None:
    """Say which picture that a version or a message refers to is not there, or another one."""
    for picture in (*_committed(view.snapshot), *_announced(view.facts.published)):
        content = _content(view.snapshot, picture.name)
        if content is None:
            return "a picture that was committed or announced is not there"
        if sha256(content).hexdigest() != picture.sha256:
            return "a picture is another one than was committed or announced"
    return None


def _left_over(view: View) -> str | None:
    """Sweep twice when all is done, and say what is there that should not be."""
    if not view.is_quiescent:
        return None
    states, pictures = view.snapshot.table(STATES), view.snapshot.table(PICTURES)
    for later in (10 * DAY, 20 * DAY):
        late = Process(view.snapshot.writes, NOW + later)
        open_batches = drive(Ledger(states, late.clock, PATIENCE).open_batches())
        sweep = DocumentSweep(states, Pictures(pictures), late.clock, PATIENCE, open_batches)  # type: ignore[arg-type]
        drive(sweep.sweep(AT_ONCE))
    known = {picture.name for picture in _committed(view.snapshot)}
    strange = [row for row in drive(pictures.scan(PICTURE)).rows if row.partition_key not in known]
    if strange:
        return f"{len(strange)} pictures are left that no version refers to"
    left = [
        row for partition in states._partitions.values() for row in partition.rows if row.startswith(MARKER)
    ]
    return f"{len(left)} rows of registrations are left" if left else None


def _committed(snapshot: Snapshot) -> Iterator[DocumentReference]:
    for stored in drive(versions(snapshot.table(STATES), ILLUSTRATOR.name, BOOK)) or ():
        for name, packed in (stored.record.captured or {}).items():
            if name.startswith(DOCUMENT):
                yield DocumentReference.model_validate(unpack(packed))


def _announced(published: Sequence[Output]) -> Iterator[DocumentReference]:
    for output in published:
        body = json.loads(output.body)
        if "picture" in body:
            yield DocumentReference.model_validate(body["picture"])


def _content(snapshot: Snapshot, name: str) -> bytes | None:
    row = drive(snapshot.table(PICTURES).get(name, PICTURE))
    if row is None:
        return None
    content = row.properties["Content"]
    assert isinstance(content, bytes)
    return content


INVARIANTS = (*invariants.ALL, Invariant("Documented", _not_as_announced), Invariant("NoGarbage", _left_over))


def _batch(name: str, *jobs: Job) -> Scenario:
    return state_based(f"pictures: {name}", jobs, invariants=INVARIANTS, limits=ONE_TOKEN)


_X, _Y = write("x"), write("y")
ATTEMPTS = _batch(
    "2 attempts of a batch with a copy in it", task("batch-1", _X, _Y, _X, copies=2, fold=_fold)
)
SWEPT = _batch("a batch, and a sweeper", task("batch-1", _X, fold=_fold), Job("sweep", _sweep))
BESIDE = _batch(
    "a batch beside a message that is in it too",
    task("batch-1", _X, _Y, fold=_fold),
    Job("y", partial(_process, _Y)),
)


MISTAKES = Mistakes()
mistake = MISTAKES.add

_ONE, _TWICE, _SWEPT = illustrated("x"), illustrated("x", copies=2), illustrated("x", swept=True)


@mistake("pictures: all attempts use one name", "Documented", _TWICE)
@instead_of(Context, "__init__")
def _(begin: Any, self: Any, *given: Any, **named: Any) -> None:
    begin(self, *given, **{**named, "place": named.get("place") and "same"})


@mistake("pictures: committed before they are prepared", "Documented", _ONE)
@instead_of(Documents, "commit")
async def _(_: Any, self: Any, drafts: Any, commit: Any) -> Any:
    registered = await self.register(drafts)
    committed = await self.commit_registered(registered, commit)
    await self.prepare(drafts)
    return committed


mistake("pictures: announced before they are prepared", "NoGhost", _ONE)(publish_first)


@mistake("pictures: not registered", "NoGarbage", _ONE, ALONE_CRASH)
@instead_of(Documents, "commit")
async def _(_: Any, self: Any, drafts: Any, commit: Any) -> Any:
    await self.prepare(drafts)
    return await commit([])


@mistake("pictures: still registered when committed", "Documented", _SWEPT)
@instead_of(Documents, "commit_registered")
def _(_: Any, __: Any, ___: Any, commit: Any) -> Any:
    return commit([])


@mistake("pictures: a commit with a lost answer is taken for failed", "Documented", _ONE, ALONE_LOSS)
@instead_of(Documents, "withdraw")
async def _(_: Any, self: Any, registered: Any, **__: Any) -> None:
    await delete(self.store, registered)


@mistake("pictures: swept before their attempt is given up", "Documented", _SWEPT)
@instead_of(DocumentSweep, "clean_up")
async def _swept_without_giving_up(_: Any, self: Any, registration: Any, __: Any) -> None:
    await delete(self.store, registration)


@mistake("pictures: swept beside an open batch, which is not given up", "Documented", SWEPT)
def _(patch: pytest.MonkeyPatch) -> None:
    _swept_without_giving_up(patch)
    patch.setattr(DocumentSweep, "_is_dead", lambda _, registration, __: registration.given_up_at is None)


@mistake(
    "pictures: an attempt is forgotten as soon as it is given up", "NoGarbage", _SWEPT, Bounds(1, losses=1)
)
def _(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(protocol, "FORGET_AFTER", timedelta())


@mistake("pictures: a replay makes the reference anew", "DoneWhenAcknowledged", _TWICE, ALONE_CRASH)
@instead_of(Context, "store_document")
def _(_: Any, self: Any, content: Any, *, media_type: str, name: str) -> Any:
    document = new_document(content(), media_type, f"{self._place}-{name}")
    self.documents.append(document)
    return document.reference

"""A desk that writes a letter for each request. No two letters are alike, and a reader is told of each by its hash."""

import json
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import closing
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import pytest

from eventstore import InterceptedTable, Table, drive
from handlers import App, Context, DocumentReference, Handler, Message, State, handles
from runtime import Envelope, Outcome, Output, Processor
from runtime.algorithms.state_based.truncation import DAY
from runtime.clock import system_clock
from runtime.documents import MARKER, DocumentStore, FolderDocuments
from tests.unit.runtime.accidents import At, CrashError, crash
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import memory_table, rows

T = TypeVar("T")
Step = Callable[[str], Awaitable[None] | None]
"""Is called at each call of a table, a store of documents and `publish`; what it raises ends the worker."""

_written = count(1)


class Ask(Message):
    reader: str


class Written(Message):
    reader: str
    letter: DocumentReference


class Letters(State):
    newest: DocumentReference | None = None
    count: int = 0


class Desk(Handler[Letters]):
    @handles(by="reader")
    def ask(self, state: Letters, message: Ask, context: Context) -> Letters:
        letter = context.store_document(write_a_letter, media_type="text/plain", name="letter.txt")
        context.publish(Written(reader=message.reader, letter=letter))
        return state.model_copy(update={"newest": letter, "count": state.count + 1})


app = App(Desk)


def write_a_letter() -> bytes:
    """Write a letter: another one each time."""
    return f"Letter {next(_written)}".encode()


def ask(message_id: str = "m-1", reader: str = "r-1") -> Envelope:
    return Envelope.of(message_id, "Ask", json.dumps({"reader": reader}))


async def nothing(_: str) -> None:
    """Go on."""


class WatchedDocuments(DocumentStore):
    """A store with a step before and after each call."""

    def __init__(self, store: DocumentStore, before: Step, after: Step) -> None:
        self._store, self._before, self._after = store, before, after

    async def prepare(self, reference: DocumentReference, content: bytes) -> None:
        await self._watched("prepare", self._store.prepare(reference, content))

    async def delete(self, name: str) -> bool | None:
        return await self._watched("delete", self._store.delete(name))

    async def _watched(self, name: str, call: Coroutine[Any, Any, T]) -> T:
        with closing(call):
            await _awaited(self._before(name))
            result = await call
            await _awaited(self._after(name))
            return result


class Office:
    """A table and a folder of documents, with as many workers as one wants, and what they publish."""

    def __init__(self, folder: Path, table: Table | None = None) -> None:
        self.folder = folder
        self.table = memory_table() if table is None else table
        self.documents = FolderDocuments(str(folder))
        self.published: list[Output] = []

    def worker(self, before: Step = nothing, after: Step = nothing, *, days_later: int = 0) -> Processor:
        async def publish(output: Output) -> None:
            await _awaited(before("publish"))
            self.published.append(output)
            await _awaited(after("publish"))

        table = InterceptedTable(
            self.table, before=lambda name, *_: before(name), after=lambda name, *_: after(name)
        )
        return Processor(
            app,
            table,
            publish,
            clock=lambda: system_clock() + days_later * DAY,
            retries=PATIENCE,
            documents=WatchedDocuments(self.documents, before, after),
        )

    def process(self, message: Envelope, before: Step = nothing, after: Step = nothing) -> list[Outcome]:
        return drive(self.worker(before, after).process(message))

    def sweep(self, *, days_later: int = 0) -> int:
        return drive(self.worker(days_later=days_later).sweep())

    def sweep_twice(self) -> None:
        """Sweep, and again when attempts that were given up are forgotten."""
        self.sweep()
        self.sweep(days_later=2)

    def die_prepared(self, message_id: str) -> None:
        """Let a worker die that has prepared a document."""
        with pytest.raises(CrashError):
            self.process(ask(message_id), after=lambda call: crash() if call == "prepare" else None)

    @property
    def files(self) -> dict[str, bytes]:
        """The documents by their names."""
        found = (file for file in self.folder.rglob("*") if file.is_file())
        return {str(file.relative_to(self.folder)): file.read_bytes() for file in found}

    @property
    def announced(self) -> list[DocumentReference]:
        """What was published, a copy for each time."""
        return [Written.model_validate_json(output.body).letter for output in self.published]

    @property
    def registrations(self) -> list[str]:
        """The row keys of what is registered."""
        return [row_key for _, row_key in rows(self.table) if row_key.startswith(MARKER)]

    def check(self, messages: int) -> None:
        """Assert that each message announces one document, the same every time, and that no other is there."""
        files, announced = self.files, self.announced
        for letter in announced:
            assert sha256(files[letter.name]).hexdigest() == letter.sha256
            assert len(files[letter.name]) == letter.size
        assert {letter.name for letter in announced} == set(files)
        assert len(files) == messages
        assert not self.registrations


async def _awaited(result: Awaitable[None] | None) -> None:
    if result is not None:
        await result


def every_step(folder: Path, deed: Callable[[], Any], *before: Envelope) -> Iterator[tuple[Office, At]]:
    """Yield an office that has processed some messages, and a step that does the deed at the first call, and so on."""
    number, is_left = 1, True
    while is_left:
        step, office = At(number, deed), Office(folder / f"step {number}")
        for message in before:
            office.process(message)
        yield office, step
        is_left = step.count >= number
        number += 1

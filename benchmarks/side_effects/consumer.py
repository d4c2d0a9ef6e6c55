"""A consumer of orders in a process of its own, which kills itself by SIGKILL before or after one of its calls."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import NamedTuple

from eventstore import InterceptedTable, connect
from handlers import DocumentReference
from runtime import Envelope, Output, Processor
from runtime.documents import DocumentStore, FolderDocuments
from samples.invoices import app


class Place(NamedTuple):
    """Where the states, the documents and what was announced are, in one folder."""

    folder: Path

    @property
    def store(self) -> str:
        """The url of the store."""
        return f"sqlite:///{self.folder}/store.db"

    @property
    def documents(self) -> Path:
        """The folder of the documents."""
        return self.folder / "documents"

    @property
    def announced(self) -> Path:
        """The file with the bodies of the messages that were published, a line for each."""
        return self.folder / "announced.jsonl"


class Kill(NamedTuple):
    """At which call, from 1, the consumer is killed: before it, or after it took effect. Never for call 0."""

    call: int
    after: bool = False


NEVER = Kill(0)


def handled(place: Place, orders: list[Envelope], *kills: Kill) -> list[bool]:
    """Handle the same orders in consumers that begin at once, one for each kill; say which of them were killed."""
    started = [_start(place, orders, kill) for kill in kills]
    return [os.WIFSIGNALED(os.waitpid(process, 0)[1]) for process in started]


def _start(place: Place, orders: list[Envelope], kill: Kill) -> int:
    process = os.fork()
    if process:
        return process
    code = 1
    try:
        asyncio.run(_consume(place, orders, _Steps(kill)))
        code = 0
    finally:
        os._exit(code)


async def _consume(place: Place, orders: list[Envelope], steps: _Steps) -> None:
    async def publish(output: Output) -> None:
        steps.before()
        with place.announced.open("a") as file:
            file.write(f"{output.body}\n")
        steps.after()

    documents = _Watched(FolderDocuments(str(place.documents)), steps)
    async with connect(place.store) as store:
        table = InterceptedTable(
            await store.table("invoices"), before=lambda *_: steps.before(), after=lambda *_: steps.after()
        )
        processor = Processor(app, table, publish, documents=documents)
        for order in orders:
            await processor.process(order)


class _Steps:
    """Counts the calls of a consumer, and kills it at one of them."""

    def __init__(self, kill: Kill) -> None:
        self._kill = kill
        self._calls = 0

    def before(self) -> None:
        self._calls += 1
        self._die_if(Kill(self._calls))

    def after(self) -> None:
        self._die_if(Kill(self._calls, after=True))

    def _die_if(self, here: Kill) -> None:
        if here == self._kill:
            os.kill(os.getpid(), signal.SIGKILL)


class _Watched(DocumentStore):
    """A store of documents whose calls count too."""

    def __init__(self, documents: DocumentStore, steps: _Steps) -> None:
        self._documents = documents
        self._steps = steps

    async def prepare(self, reference: DocumentReference, content: bytes) -> None:
        self._steps.before()
        await self._documents.prepare(reference, content)
        self._steps.after()

    async def delete(self, name: str) -> None:
        self._steps.before()
        await self._documents.delete(name)
        self._steps.after()

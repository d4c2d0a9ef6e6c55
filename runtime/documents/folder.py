"""Documents in a folder: of a disk, or of an object store that pyarrow speaks to."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

from eventstore import StoreUnavailableError
from handlers import DocumentReference
from runtime.documents.places import open_place
from runtime.documents.store import ListedDocuments
from runtime.file_systems import Folder

P = ParamSpec("P")
T = TypeVar("T")


class FolderDocuments(ListedDocuments):
    """A file for each document, under the folder that a url names. Costs one request for each call."""

    def __init__(self, url: str) -> None:
        self._folder = open_place(url)

    async def prepare(self, reference: DocumentReference, content: bytes) -> None:
        """Return when the file is durable, with its name."""
        await _blocking(self._write, reference, content)

    async def delete(self, name: str) -> None:
        """Delete the file, if it is there."""
        await _blocking(self._delete, name)

    async def read(self, name: str) -> bytes:
        """Return the content of a document. Raises `FileNotFoundError`."""
        return await _blocking(self._read, name)

    async def names(self, folder: str) -> Sequence[str]:
        """Return the names of all documents in an object's folder."""
        files = await _blocking(self._folder.sub(folder).sizes)
        return [f"{folder}/{file}" for file in files]

    async def remove(self, folder: str) -> None:
        """Remove the folder of an object, if it is empty; an object store has none without documents."""
        await _blocking(self._folder.sub(folder).delete_if_empty)

    def _write(self, reference: DocumentReference, content: bytes) -> None:
        folder, file = self._place(reference.name)
        if folder.is_local:
            folder.create()
        with _there(folder), folder.write(file, {"Content-Type": reference.media_type}) as output:
            output.write(content)
        for name in (file, None):
            folder.flush(name)
        if folder.is_local:
            self._flush_parents(reference.name)

    def _delete(self, name: str) -> None:
        folder, file = self._place(name)
        folder.delete_file(file)
        if folder.is_local and folder.exists():
            folder.flush()

    def _read(self, name: str) -> bytes:
        folder, file = self._place(name)
        with folder.read(file) as found:
            return bytes(found.read())

    def _place(self, name: str) -> tuple[Folder, str]:
        folder, _, file = name.rpartition("/")
        return (self._folder.sub(folder) if folder else self._folder), file

    def _flush_parents(self, name: str) -> None:
        """Make the names of the folders survive a power cut that a document was put into."""
        above = name.split("/")[:-2]
        for depth in range(len(above), -1, -1):
            (self._folder.sub("/".join(above[:depth])) if depth else self._folder).flush()


@contextmanager
def _there(folder: Folder) -> Iterator[None]:
    """Let a message be handled again whose folder was removed just now, as its object was forgotten."""
    try:
        yield
    except FileNotFoundError as error:
        if not folder.is_local:
            raise
        raise StoreUnavailableError(f"The folder of a document was removed: {error}") from error


async def _blocking(work: Callable[P, T], *args: P.args, **named: P.kwargs) -> T:
    """Do work that blocks: in a thread where an event loop runs, or else at once."""
    try:
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return work(*args, **named)
        return await asyncio.to_thread(work, *args, **named)
    except FileNotFoundError:
        raise
    except OSError as error:
        raise StoreUnavailableError(f"The store of documents did not answer: {error}") from error

"""Stores of documents: the interface, and folders on disks and object stores."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import wraps
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar
from urllib.parse import quote, unquote

from eventstore import StoreUnavailableError
from handlers import DocumentReference
from runtime.errors import MissingExtraError, UsageError
from runtime.file_systems import Folder, open_folder, path_and_options
from runtime.options import resolved


class DocumentStore(Protocol):
    """Stores the documents of attempts, under names that no two attempts share.

    Raise `StoreUnavailableError` when a call may succeed if it is repeated: the message is then handled again, under
    other names. Any other error ends the attempt, and fails a batch.
    """

    async def prepare(self, reference: DocumentReference, content: bytes) -> None:
        """Return when the document is durable under the reference's name."""

    async def delete(self, name: str) -> bool | None:
        """Delete a document, even an incomplete one. Return whether it was there, None if that is unknown."""


class ListedDocuments(DocumentStore, Protocol):
    """A store that lists the documents of an object, so that they can be erased."""

    async def names(self, folder: str) -> Sequence[str]:
        """Return the names of all documents in an object's folder, whether they count or not."""

    async def remove(self, folder: str) -> None:
        """Remove the folder itself, whose name tells of the object, unless a document is in it."""


P = ParamSpec("P")
T = TypeVar("T")


def open_place(url: str) -> Folder:
    """Return the folder that a url names, even if it is missing. Raises `UsageError`, without secrets of the url."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme == "file":
        return open_folder(url)
    path, options = path_and_options(url)
    try:
        return open_folder(f"{unquote(path)}{options}")
    except (UsageError, ValueError):
        raise UsageError(
            f"The store of documents, a url with {scheme}://, cannot be opened: use a path, s3://BUCKET/FOLDER, "
            f"abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, or azurite://HOST:PORT/CONTAINER/FOLDER."
        ) from None


def _blocking(work: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Do work that blocks: in a thread where an event loop runs, or else at once."""

    @wraps(work)
    async def call(*args: P.args, **named: P.kwargs) -> T:
        import asyncio  # noqa: PLC0415 - workers on a store of their machine do without it

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

    return call


class FolderDocuments(ListedDocuments):
    """A file for each document, under the folder that a url names. Costs one request for each call."""

    def __init__(self, url: str) -> None:
        self._folder = open_place(url)

    @_blocking
    def prepare(self, reference: DocumentReference, content: bytes) -> None:
        folder, file = self._place(reference.name)
        if folder.is_local:
            folder.create()
        try:
            with folder.write(file, {"Content-Type": reference.media_type}) as output:
                output.write(content)
        except FileNotFoundError as error:
            if not folder.is_local:
                raise
            # Removed just now, as its object was forgotten: the message is handled again.
            raise StoreUnavailableError(f"The folder of a document was removed: {error}") from error
        folder.flush(file)
        folder.flush()
        if folder.is_local:  # the names of the folders that hold it
            self._folder.flush()
            for above in accumulate(reference.name.split("/")[:-2], "{}/{}".format):
                self._folder.sub(above).flush()

    @_blocking
    def delete(self, name: str) -> bool:
        folder, file = self._place(name)
        was_there = folder.delete_file(file)
        if folder.is_local and folder.exists():
            folder.flush()
        return was_there

    @_blocking
    def read(self, name: str) -> bytes:
        """Return the content of a document. Raises `FileNotFoundError`."""
        folder, file = self._place(name)
        with folder.read(file) as found:
            return bytes(found.read())

    @_blocking
    def names(self, folder: str) -> Sequence[str]:
        return [f"{folder}/{file}" for file in self._folder.sub(folder).sizes()]

    @_blocking
    def remove(self, folder: str) -> None:
        self._folder.sub(folder).delete_if_empty()

    def _place(self, name: str) -> tuple[Folder, str]:
        folder, _, file = name.rpartition("/")
        return (self._folder.sub(folder) if folder else self._folder), file


_MAX_FOLDER = 120
_HOLDS = " that names the store of documents"


def object_folder(handler: str, business_id: str) -> str:
    """Return the folder of an object's documents: by its id, or by the SHA-256 of one that is long."""
    name = quote(business_id, safe=" ()+,;=@_-.~")
    if len(name) > _MAX_FOLDER or name.strip(". ") != name:
        name = sha256(business_id.encode()).hexdigest()
    return f"{handler}/{name}"


def open_documents(url: str) -> ListedDocuments:
    """Return the store of documents behind a url, without looking whether it is there.

    | url | store |
    |---|---|
    | a path, `file:///absolute/path` | a folder of a disk |
    | `s3://bucket/folder` | Amazon S3, or a service that speaks its protocol, with `?endpoint_override=host:port` |
    | `abfss://container@account.dfs.core.windows.net/folder` | Azure Blob Storage |
    | `azurite://host:port/container/folder` | the blobs of Azure's emulator |
    | `env:NAME`, `file:PATH` | what the environment variable says: for a url with a secret in it |

    Raises `UsageError` for what is none of these, and `MissingExtraError` without pyarrow.
    """
    named = resolved(url, _HOLDS)
    try:
        return FolderDocuments(named)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"A store of documents needs {error.name}: pip install 'consistent-messaging[documents]'."
        ) from error


def existing_documents(url: str) -> ListedDocuments:
    """Return the store behind a url as `open_documents` does. Raises `UsageError` for a folder that is not there."""
    named = resolved(url, _HOLDS)
    place = Path(unquote(named.removeprefix("file://")) if named.startswith("file://") else named)
    if (":" not in named or named.startswith("file://")) and not place.is_dir():
        raise UsageError(f"There is no folder of documents at {place}: say with --documents where they are.")
    return open_documents(url)


def portable_url(url: str) -> str:
    """Return a url that means the same store in every process of this machine. It may hold a secret."""
    named = resolved(url, _HOLDS)
    return named if ":" in named else str(Path(named).absolute())

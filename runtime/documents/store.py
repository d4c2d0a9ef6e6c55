"""Stores of documents: the interface, and folders on disks or object stores."""

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
    """Stores documents under names that are unique to an attempt.

    After `StoreUnavailableError` the message is handled again, with other names. Any other error fails the batch.
    """

    async def prepare(self, reference: DocumentReference, content: bytes) -> None:
        """Store a document durably under the reference's name."""

    async def delete(self, name: str) -> bool | None:
        """Delete a document, even an incomplete one. Return whether it existed, or None if that is unknown."""


class ListedDocuments(DocumentStore, Protocol):
    """A store that lists the documents of an object, so that `forget` can erase them."""

    async def names(self, folder: str) -> Sequence[str]:
        """Return the names of all documents in an object's folder, orphans included."""

    async def remove(self, folder: str) -> None:
        """Delete the object's folder if it is empty."""


P = ParamSpec("P")
T = TypeVar("T")


def open_place(url: str) -> Folder:
    """Return the folder at a URL, which need not exist. Raises `UsageError`, which shows no secrets of the URL."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme == "file":
        return open_folder(url)
    path, options = path_and_options(url)
    try:
        return open_folder(f"{unquote(path)}{options}")
    except (UsageError, ValueError):
        raise UsageError(
            f"The store of documents, a url with {scheme}://, cannot be opened. Use a path, s3://BUCKET/FOLDER, "
            f"abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, or azurite://HOST:PORT/CONTAINER/FOLDER."
        ) from None


def _blocking(work: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Run blocking work in a thread if an event loop is running, or else directly."""

    @wraps(work)
    async def call(*args: P.args, **named: P.kwargs) -> T:
        import asyncio  # noqa: PLC0415 - slow to import, and unused by workers on a local store

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
    """Documents as files below a folder. Costs one request per call."""

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
            # `forget` removed the folder concurrently.
            raise StoreUnavailableError(f"The folder of a document was removed: {error}") from error
        folder.flush(file)
        folder.flush()
        if folder.is_local:  # the entries of new folders too
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
    """Return the folder of an object's documents: the business id, or the SHA-256 of a long one."""
    name = quote(business_id, safe=" ()+,;=@_-.~")
    if len(name) > _MAX_FOLDER or name.strip(". ") != name:
        name = sha256(business_id.encode()).hexdigest()
    return f"{handler}/{name}"


def open_documents(url: str) -> ListedDocuments:
    """Return the document store at a URL, without checking that it exists.

    | URL | store |
    |---|---|
    | a path, `file:///absolute/path` | a folder on disk |
    | `s3://bucket/folder` | Amazon S3, or a compatible service with `?endpoint_override=host:port` |
    | `abfss://container@account.dfs.core.windows.net/folder` | Azure Blob Storage |
    | `azurite://host:port/container/folder` | Azurite, the emulator |
    | `env:NAME`, `file:PATH` | the URL in an environment variable or file, to hide a secret |

    Raises `UsageError` for another URL, and `MissingExtraError` without pyarrow.
    """
    named = resolved(url, _HOLDS)
    try:
        return FolderDocuments(named)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"A store of documents needs {error.name}: pip install 'consistent-messaging[documents]'."
        ) from error


def existing_documents(url: str) -> ListedDocuments:
    """Return the document store at a URL. Raises `UsageError` for a missing folder on disk."""
    named = resolved(url, _HOLDS)
    place = Path(unquote(named.removeprefix("file://")) if named.startswith("file://") else named)
    if (":" not in named or named.startswith("file://")) and not place.is_dir():
        raise UsageError(f"There is no folder of documents at {place}. Use --documents to name it.")
    return open_documents(url)


def portable_url(url: str) -> str:
    """Return a URL that is valid in every process of this machine. It may contain a secret."""
    named = resolved(url, _HOLDS)
    return named if ":" in named else str(Path(named).absolute())

"""Documents of versions, stored exactly once, and the stores of documents.

Each attempt at a version registers its documents, stores them, then commits. It deletes them if the commit fails.
"""

from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial, wraps
from hashlib import sha256
from itertools import accumulate
from pathlib import Path
from typing import Any, NamedTuple, ParamSpec, Protocol, TypeVar
from urllib.parse import quote, unquote

import msgpack

from eventstore import Include, Int64, Operation, Row, StoreUnavailableError, Table, Value, pages
from eventstore.errors import ConcurrencyConflictError, IncludeConflictError, PayloadTooLargeError, RowError
from handlers import DocumentReference
from handlers.codec import unpack
from handlers.context import NewDocument
from runtime.clock import Clock, cut_off, to_datetime
from runtime.errors import MissingExtraError, UsageError
from runtime.file_systems import Folder, open_folder, path_and_options
from runtime.ledger.batch import BatchKey, OpenBatches
from runtime.options import resolved
from runtime.retries import READ_AGAIN, RetryPolicy, until_undisturbed
from runtime.versions import properties as stored
from runtime.versions.run import compress, decompress


class DocumentStore(Protocol):
    """Stores documents under names that are unique to an attempt.

    If a call raises `StoreUnavailableError`, the message is handled again, with other names. Any other error fails the
    batch.
    """

    async def prepare(self, reference: DocumentReference, content: bytes) -> None:
        """Store a document durably under the name of its reference."""

    async def delete(self, name: str) -> bool | None:
        """Delete a document, which may be incomplete. Return whether it existed, or None if that is unknown."""


class ListedDocuments(DocumentStore, Protocol):
    """A store that lists the documents of an object, which `forget` needs to erase them."""

    async def names(self, folder: str) -> Sequence[str]:
        """Return the names of all documents in the folder of an object, including orphans."""

    async def remove(self, folder: str) -> None:
        """Delete the folder of an object if it is empty."""


P = ParamSpec("P")
T = TypeVar("T")


def open_place(url: str) -> Folder:
    """Return the folder at a URL. The folder need not exist.

    Raises `UsageError` if the URL is invalid or its file system cannot be opened. The message contains no secrets.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme == "file":
        return open_folder(url)
    path, options = path_and_options(url)
    try:
        return open_folder(f"{unquote(path)}{options}")
    except (UsageError, ValueError):
        raise UsageError(
            f"The document store {scheme}:// cannot be opened. Use a path, s3://BUCKET/FOLDER, "
            f"abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, or azurite://HOST:PORT/CONTAINER/FOLDER."
        ) from None


def _blocking(work: Callable[P, T]) -> Callable[P, Coroutine[Any, Any, T]]:
    """Make a blocking method asynchronous. If an event loop is running, the method runs in a thread."""

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
            raise StoreUnavailableError(f"The document store did not answer: {error}") from error

    return call


class FolderDocuments(ListedDocuments):
    """Stores documents as files in the subfolders of a folder. Costs one request per call."""

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
        if folder.is_local:  # the entries of new folders must be flushed too
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
        """Return the content of a document. Raises `FileNotFoundError` if it does not exist."""
        folder, file = self._place(name)
        with folder.read(file) as opened:
            return bytes(opened.read())

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
    """Return the folder of an object's documents, named by the business id, or by the SHA-256 of a long business id."""
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
    try:
        return FolderDocuments(resolved(url, _HOLDS))
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"A document store needs {error.name}: pip install 'consistent-messaging[documents]'."
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


# A document cannot be written in the transaction that changes the state. So each attempt first inserts a registration
# into the object's partition, then stores its documents under unique names. The transaction that commits the version
# deletes the registration, if its ETag is unchanged. A document of a registered attempt may be an orphan. All other
# documents are committed.
#
# A commit that was refused or not answered may still take effect. So before the documents are deleted, the attempt is
# given up: its registration changes, which makes any later commit fail. A sweep at least a day later deletes the
# documents once more, in case a late request stored one, and then the registration. If a sweep gives up an attempt that
# was only slow, its message is handled again. So a sweep is safe while batches and consumers run.
#
# After Masternak and Pobiega, "Exactly-once intuition" (exactly-once.github.io).

MARKER = "DOCUMENTS"  # the row key of a marker in each partition that may have registrations
PREFIX = f"{MARKER}-"
LAST = f"{PREFIX}~"

_NAMES = stored.chunk_names("Names", 4)


@dataclass(frozen=True, slots=True)
class Registration:
    """An attempt at a version, with the names of its documents. Times are in microseconds since 1970 UTC."""

    key: str
    attempt: str
    names: Sequence[str]
    registered_at: int
    batch: BatchKey | None = None  # None for a single message
    given_up_at: int | None = None  # None while the attempt may still commit
    etag: str = ""

    def taken_out(self) -> Include:
        """Return an operation that deletes the registration. A commit that includes it fails if the row has changed."""
        return Include.delete(PREFIX + self.attempt, self.etag)

    def properties(self) -> dict[str, Value]:
        """Return the properties of the registration's row."""
        properties: dict[str, Value] = {"RegisteredAt": to_datetime(self.registered_at)}
        stored.split(properties, _NAMES, compress(msgpack.packb(self.names)))
        if self.batch is not None:
            properties["Batch"] = self.batch.batch_id
            if self.batch.number is not None:
                properties["BatchNumber"] = Int64(self.batch.number)
        if self.given_up_at is not None:
            properties["GivenUpAt"] = to_datetime(self.given_up_at)
        return properties


def is_registration(row_key: str) -> bool:
    """Return whether a row is a registration, or the marker of an object that has registrations."""
    return row_key == MARKER or row_key.startswith(PREFIX)


async def registrations_of(table: Table, key: str) -> list[Registration]:
    """Read all registrations of an object. Costs one request for every 1,000 registrations."""
    return [read_registration(row) async for row in stored.rows_between(table, key, PREFIX, LAST)]


async def give_up(table: Table, registration: Registration, now: int) -> Registration:
    """Mark an attempt as given up at `now`, so that it never commits. Return the new registration. Costs one request.

    Raises `ConcurrencyConflictError` if the attempt has ended.
    """
    given_up = replace(registration, given_up_at=now)
    change = Operation.replace(PREFIX + registration.attempt, given_up.properties(), registration.etag)
    (etag,) = await _write(table, registration.key, change)
    await table.barrier()
    return replace(given_up, etag=etag)


async def take_out(table: Table, registration: Registration) -> None:
    """Delete a registration, but no documents. Costs one request. Raises `ConcurrencyConflictError` if it changed."""
    await _write(table, registration.key, registration.taken_out())


async def _write(table: Table, key: str, change: Operation) -> tuple[str, ...]:
    try:
        return await table.transact(key, [change])
    except RowError as error:
        raise ConcurrencyConflictError(key, str(error)) from error


def read_registration(row: Row) -> Registration:
    """Parse the row of a registration. Raises `StoredDataError` if the row is corrupt."""
    properties = row.properties
    with stored.reading_row("The registration of documents", row):
        names = unpack(decompress(stored.join(properties, _NAMES)))
        registered_at = stored.microseconds(properties, "RegisteredAt")
        batch = None
        if "Batch" in properties:
            own = stored.number(properties, "BatchNumber") if "BatchNumber" in properties else None
            batch = BatchKey(stored.text(properties, "Batch"), own)
        return Registration(
            row.partition_key,
            row.row_key.removeprefix(PREFIX),
            tuple(stored.expect_all(names, str)),
            stored.expect(registered_at, int),
            batch,
            stored.microseconds(properties, "GivenUpAt"),
            row.etag,
        )


Commit = Callable[[Sequence[Include]], Awaitable[T]]
"""Commits a version, with other operations on its partition."""


class Drafts(NamedTuple):
    """The documents of an attempt that has not committed."""

    key: str  # the partition key of the object
    attempt: str
    documents: Sequence[NewDocument]
    batch: BatchKey | None = None


@dataclass(frozen=True, slots=True)
class Documents:
    """Stores the documents of attempts, and commits their versions."""

    store: DocumentStore
    table: Table
    clock: Clock
    new_id: Callable[[], str]  # returns unique ids of attempts
    retries: RetryPolicy

    async def commit(self, drafts: Drafts, commit: Commit[T]) -> T:
        """Register an attempt, store its documents, and return the result of `commit`.

        Withdraws the attempt before raising `PayloadTooLargeError` or an error in `READ_AGAIN`. Costs one request, one
        per document, and those of `commit`.
        """
        registered = await self.register(drafts)
        are_prepared = False
        try:
            await self.prepare(drafts)
            are_prepared = True
            return await self.commit_registered(registered, commit)
        except (*READ_AGAIN, PayloadTooLargeError):
            withdraw = partial(self.withdraw, registered, are_prepared=are_prepared)
            await until_undisturbed(self.retries.beside(self.table), withdraw)
            raise

    async def register(self, drafts: Drafts) -> Registration:
        """Durably register an attempt to commit a version, and the names of its documents. Costs one request."""
        names = [document.reference.name for document in drafts.documents]
        registration = Registration(drafts.key, drafts.attempt, names, self.clock(), drafts.batch)
        row = Operation.insert(PREFIX + drafts.attempt, registration.properties())
        marker = Operation.insert_or_replace(MARKER, {})
        etag, _ = await self.table.transact(drafts.key, [row, marker])
        await self.table.barrier()
        return replace(registration, etag=etag)

    async def prepare(self, drafts: Drafts) -> None:
        """Store the documents. No version refers to them yet. Costs one request per document."""
        for document in drafts.documents:
            await self.store.prepare(document.reference, document.content)

    async def commit_registered(self, registered: Registration, commit: Commit[T]) -> T:
        """Commit a version and delete its registration. Raises `ConcurrencyConflictError` if a sweep abandoned it."""
        try:
            return await commit([registered.taken_out()])
        except IncludeConflictError as error:
            raise ConcurrencyConflictError(registered.key, str(error)) from error

    async def withdraw(self, registered: Registration, *, are_prepared: bool) -> None:
        """Give up an attempt and delete its documents, unless it has committed.

        `are_prepared`: whether all were stored. If not, the registration stays, so that a sweep deletes late documents.
        """
        row = await self.table.get(registered.key, PREFIX + registered.attempt)
        if row is None:
            return
        given_up = await give_up(self.table, read_registration(row), self.clock())
        await delete(self.store, given_up)
        if are_prepared:  # otherwise a late request may store a document, which a sweep deletes
            await take_out(self.table, given_up)


async def delete(store: DocumentStore, given_up: Registration) -> int:
    """Delete the documents of an attempt that was given up. Return how many are known to have existed."""
    return sum([bool(await store.delete(name)) for name in given_up.names])


FORGET_AFTER = timedelta(days=1)
"""How long an attempt stays registered after it was given up. No request takes as long."""


class Swept(NamedTuple):
    """What a sweep of documents did, and what it skipped."""

    attempts: int = 0  # attempts given up
    documents: int = 0  # documents deleted
    young: int = 0  # attempts skipped because their message may still be handled
    open: int = 0  # attempts skipped because their batch is open
    given_up: int = 0  # attempts skipped because a late request may still take effect


@dataclass(frozen=True, slots=True)
class DocumentSweep:
    """Deletes the orphaned documents of one table, except documents of open batches."""

    table: Table
    store: DocumentStore
    clock: Clock
    retries: RetryPolicy
    open_batches: OpenBatches
    only_look: bool = False  # whether this is a dry run

    async def sweep(self, older_than: timedelta) -> Swept:
        """Give up attempts that did not commit, and delete their documents.

        Skips attempts of open batches, and attempts without a batch that are younger than `older_than`.
        Costs one request for every 1,000 objects that have a marker, two per object, and one per document of the
        attempts given up.
        """
        latest, past = cut_off(self.clock, older_than), cut_off(self.clock, FORGET_AFTER)
        retries, done, left = self.retries.beside(self.table), Counter[str](), Counter[str]()
        async for page in pages(partial(self.table.scan, MARKER)):
            for marker in page.rows:
                with stored.one_of_many(self.table, marker.partition_key):
                    attempt = partial(self.sweep_object, marker.partition_key, latest, past, done)
                    left += await until_undisturbed(retries, attempt)
        return Swept(**done, **left)

    async def sweep_object(self, key: str, latest: int, past: int, done: Counter[str]) -> Counter[str]:
        """Sweep one object. Return the numbers of skipped attempts by reason: `open`, `young` or `given_up`.

        Gives up attempts of ended batches, and attempts without a batch that were registered at `latest` or before.
        Deletes the documents of all attempts given up, those given up at `past` or before, and the object's marker if
        no attempts remain. Both times are in microseconds since 1970 UTC. Adds the numbers of attempts given up and of
        documents deleted to `done`, which a retry for the same object does not reset.
        """
        marker = await self.table.get(key, MARKER)
        left, is_left = Counter[str](), False
        for registration in await registrations_of(self.table, key):
            if self._is_dead(registration, latest):
                await self.clean_up(registration, done)
                is_left = True
            elif registration.given_up_at is None:
                is_open = registration.batch is not None and registration.batch.number is not None
                left["open" if is_open else "young"] += 1
            else:
                is_past = registration.given_up_at <= past
                if not is_past:
                    left["given_up"] += 1
                if not self.only_look:
                    # Whatever gave the attempt up may have died before it deleted the documents.
                    done["documents"] += await delete(self.store, registration)
                    if is_past:
                        await take_out(self.table, registration)
                elif is_past:
                    done["documents"] += len(registration.names)
        if marker is not None and not is_left and not left and not self.only_look:
            # The deletion is conditional, because an attempt may have registered since the read.
            await _write(self.table, key, Operation.delete(MARKER, marker.etag))
        return left

    async def clean_up(self, registration: Registration, done: Counter[str]) -> None:
        """Give up an attempt and delete its documents, and count both in `done`. In a dry run, only count them."""
        given_up = None if self.only_look else await give_up(self.table, registration, self.clock())
        done["attempts"] += 1
        done["documents"] += (
            len(registration.names) if given_up is None else await delete(self.store, given_up)
        )

    def _is_dead(self, registration: Registration, latest: int) -> bool:
        if registration.given_up_at is not None:
            return False
        if registration.batch is None or registration.batch.number is None:
            return registration.registered_at <= latest
        return self.open_batches.is_finished(*registration.batch)

"""The interface of stores of documents, and of any other effect that must exist before a message does."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from handlers import DocumentReference


class DocumentStore(Protocol):
    """Keeps what attempts prepare, under names that no two attempts share.

    A store need not tell documents that count from others: nobody learns a name before its version is committed. Raise
    `StoreUnavailableError` when a call may succeed if it is repeated: the message is then handled again, under other
    names. Whatever else is raised ends the attempt, and fails a batch.
    """

    async def prepare(self, reference: DocumentReference, content: bytes) -> None:
        """Return when the document is durable under the reference's name."""

    async def delete(self, name: str) -> None:
        """Delete a document, if it is there. It may never have been prepared, or in part."""


class ListedDocuments(DocumentStore, Protocol):
    """A store that can be asked what it holds of one object, so that all of it can be erased."""

    async def names(self, folder: str) -> Sequence[str]:
        """Return the names of all documents in an object's folder, whether they count or not."""

    async def remove(self, folder: str) -> None:
        """Remove the folder itself, whose name tells of the object, unless a document is in it."""

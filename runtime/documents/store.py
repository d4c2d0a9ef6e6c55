"""The interface of stores of documents, and of any other effect that must exist before a message does."""

from __future__ import annotations

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

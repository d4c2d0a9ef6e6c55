"""The documents of a business object that is forgotten: all of its folder, whether versions refer to them or not.

They are deleted once the tombstone refuses messages. An attempt that began before has its commit refused then, but may
prepare a document all the same, and die: so attempts stay registered, given up, until a sweep that is at least a day
later has deleted their documents again.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from eventstore import Table
from handlers.context import DOCUMENT
from handlers.unpacking import unpack
from runtime.documents.names import object_folder
from runtime.documents.registrations import Registration, give_up
from runtime.documents.store import ListedDocuments
from runtime.errors import StoredDataError
from runtime.storage.listing import versions


class ObjectDocuments(NamedTuple):
    """The documents of one object in their store."""

    store: ListedDocuments
    folder: str

    @classmethod
    def of(cls, store: ListedDocuments, handler: str, business_id: str) -> ObjectDocuments:
        """Return those of an object."""
        return cls(store, object_folder(handler, business_id))

    async def names(self) -> Sequence[str]:
        """Return the names of all documents in the folder. One request."""
        return await self.store.names(self.folder)

    async def delete(self, names: Sequence[str]) -> None:
        """Delete documents, and the folder if nothing is left. One request for each, and one more."""
        for name in names:
            await self.store.delete(name)
        await self.store.remove(self.folder)


async def give_up_attempts(table: Table, attempts: Sequence[Registration], now: int) -> None:
    """Keep attempts at an object from committing, for ever; a later sweep forgets them.

    Costs one request for each. Raises `ConcurrencyConflictError` when one has just ended.
    """
    for registration in attempts:
        if registration.given_up_at is None:
            await give_up(table, registration, now)


async def referenced_documents(table: Table, handler: str, business_id: str) -> list[str]:
    """Return the names of the documents that the versions of an object refer to, as far as these can be read.

    Costs one request for each 1,000 runs. Versions that were cut are not known any more.
    """
    try:
        found = await versions(table, handler, business_id) or []
    except StoredDataError:
        return []
    return [
        unpack(value)["name"]
        for version in found
        for name, value in (version.record.captured or {}).items()
        if name.startswith(DOCUMENT)
    ]

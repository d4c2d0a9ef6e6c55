"""Documents: what a handler asks to be stored before the messages that announce it are published."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import NamedTuple, TypeGuard

from pydantic import BaseModel, ConfigDict

from handlers.codec import JSON
from handlers.errors import DocumentError
from handlers.text import is_text

MAX_BYTES = 64 * 2**20
MAX_DOCUMENTS = 100
"""What the documents of one message take at most together, and how many they are."""

_MAX_NAME_BYTES = 100


class DocumentReference(BaseModel):
    """Names a document; messages and states may have fields of this type.

    `name` is where it is in the store of documents, under a name new for each attempt at its message. `sha256` is the
    digest of its content in hexadecimal digits, `size` its length in bytes.
    """

    model_config = ConfigDict(frozen=True, **JSON)

    name: str
    sha256: str
    size: int
    media_type: str


class NewDocument(NamedTuple):
    """A document that a handler asked for, to be stored before its version is."""

    reference: DocumentReference
    content: bytes


def new_document(content: object, media_type: str, name: str) -> NewDocument:
    """Return a document of this content. Raises `DocumentError` when it is not bytes."""
    if not isinstance(content, bytes):
        raise DocumentError(
            f"store_document() takes bytes, not a {type(content).__name__}: {name} cannot be stored."
        )
    digest = sha256(content).hexdigest()
    reference = DocumentReference(name=name, sha256=digest, size=len(content), media_type=media_type)
    return NewDocument(reference, content)


def check_room(documents: Sequence[NewDocument]) -> None:
    """Raise `DocumentError` when the documents of a message are too many, or too large."""
    size = sum(document.reference.size for document in documents)
    if len(documents) > MAX_DOCUMENTS or size > MAX_BYTES:
        raise DocumentError(
            f"The handler stores {len(documents)} documents with {size:,} bytes; for one message it can store "
            f"{MAX_DOCUMENTS} with {MAX_BYTES:,}."
        )


def check_request(name: object, media_type: object) -> None:
    """Raise `DocumentError` for a name that is no plain file name, and for a media type that is no plain text."""
    if not _is_plain(name) or "/" in name or "\\" in name or name in {".", ".."}:
        raise DocumentError(
            f"store_document() takes a plain file name of up to {_MAX_NAME_BYTES} bytes, such as 'invoice.pdf', "
            f"not {name!r}."
        )
    if not _is_plain(media_type):
        raise DocumentError(
            f"store_document() takes a media type such as 'application/pdf', not {media_type!r}."
        )


def _is_plain(text: object) -> TypeGuard[str]:
    return is_text(text) and text.isprintable() and 0 < len(text.encode()) <= _MAX_NAME_BYTES

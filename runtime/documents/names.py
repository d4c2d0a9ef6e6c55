"""The names of documents: the same folder for all documents of an object, and another beginning for each attempt."""

from __future__ import annotations

from hashlib import sha256
from urllib.parse import quote

_MAX_FOLDER = 120


def object_folder(handler: str, business_id: str) -> str:
    """Return the folder of an object's documents: by its id, or by the SHA-256 of one that is long."""
    name = quote(business_id, safe=" ()+,;=@_-.~")
    if len(name) > _MAX_FOLDER or name.strip(". ") != name:
        name = sha256(business_id.encode()).hexdigest()
    return f"{handler}/{name}"

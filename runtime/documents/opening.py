"""From a url to a store of documents."""

from __future__ import annotations

import os
from pathlib import Path
from urllib.parse import unquote

from runtime.documents.store import ListedDocuments
from runtime.errors import MissingExtraError, UsageError

_VARIABLE = "env:"


def open_documents(url: str) -> ListedDocuments:
    """Return the store of documents behind a url, without looking whether it is there.

    | url | store |
    |---|---|
    | a path, `file:///absolute/path` | a folder of a disk |
    | `s3://bucket/folder` | Amazon S3, or a service that speaks its protocol, with `?endpoint_override=host:port` |
    | `abfss://container@account.dfs.core.windows.net/folder` | Azure Blob Storage |
    | `azurite://host:port/container/folder` | the blobs of Azure's emulator |
    | `env:NAME` | what the environment variable says: for a url with a secret in it |

    Raises `UsageError` for what is none of these, and `MissingExtraError` without pyarrow.
    """
    named = _of_environment(url)
    try:
        from runtime.documents.folder import FolderDocuments  # noqa: PLC0415 - pyarrow may not be installed
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"A store of documents needs {error.name}: pip install 'consistent-messaging[documents]'."
        ) from error
    return FolderDocuments(named)


def existing_documents(url: str) -> ListedDocuments:
    """Return the store behind a url as `open_documents` does. Raises `UsageError` for a folder that is not there."""
    named = _of_environment(url)
    place = Path(unquote(named.removeprefix("file://")) if named.startswith("file://") else named)
    if (":" not in named or named.startswith("file://")) and not place.is_dir():
        raise UsageError(f"There is no folder of documents at {place}: say with --documents where they are.")
    return open_documents(url)


def portable_url(url: str) -> str:
    """Return a url that means the same store in every process of this machine. It may hold a secret."""
    named = _of_environment(url)
    return named if ":" in named else str(Path(named).absolute())


def _of_environment(url: str) -> str:
    if not url.startswith(_VARIABLE):
        return url
    name = url.removeprefix(_VARIABLE)
    named = os.environ.get(name, "")
    if not named:
        raise UsageError(f"The environment variable {name} that names the store of documents is not set.")
    return named

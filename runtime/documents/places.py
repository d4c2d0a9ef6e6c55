"""From a url to a folder of a disk or of an object store."""

from __future__ import annotations

import os
from urllib.parse import unquote, urlsplit

from pyarrow import ArrowInvalid, ArrowNotImplementedError
from pyarrow.fs import AzureFileSystem, FileSystem

from runtime.errors import UsageError
from runtime.file_systems import Folder, open_folder

_AZURE = ("abfs", "abfss")
_EMULATOR = "azurite"
_EMULATED_ACCOUNT = "devstoreaccount1"
_EMULATED_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""That of every Azurite: it is in its documentation."""

KEY_VARIABLE = "AZURE_STORAGE_KEY"
TOKEN_VARIABLE = "AZURE_STORAGE_SAS_TOKEN"  # noqa: S105 - the name of a variable
"""Where Azure's own command line looks for the key of an account, and for a shared access signature."""


def open_place(url: str) -> Folder:
    """Return the folder that a url names, whether it is there or not. Raises `UsageError` for an unknown form.

    An error does not repeat the url, which may hold a secret.
    """
    scheme, separator, _ = url.partition("://")
    if not separator or scheme == "file":
        return open_folder(url)
    if scheme == _EMULATOR:
        return _emulator(url)
    if scheme in _AZURE and _signature():
        return _azure(url)
    try:
        return Folder(*FileSystem.from_uri(url))
    except (ArrowInvalid, ArrowNotImplementedError, ValueError) as error:
        raise UsageError(
            f"The store of documents, a url with {scheme}://, cannot be opened: use a path, s3://BUCKET/FOLDER, "
            f"abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER, or azurite://HOST:PORT/CONTAINER/FOLDER."
        ) from error


def _emulator(url: str) -> Folder:
    parts = urlsplit(url)
    files = AzureFileSystem(
        _EMULATED_ACCOUNT,
        account_key=_EMULATED_KEY,
        blob_storage_authority=parts.netloc,
        dfs_storage_authority=parts.netloc,
        blob_storage_scheme="http",
        dfs_storage_scheme="http",
    )
    return Folder(files, unquote(parts.path).strip("/"))


def _signature() -> dict[str, str]:
    """Return what requests to Azure are signed with, if it is in the environment."""
    key, token = os.environ.get(KEY_VARIABLE), os.environ.get(TOKEN_VARIABLE)
    if key:
        return {"account_key": key}
    return {"sas_token": token} if token else {}


def _azure(url: str) -> Folder:
    """Return a folder of an account whose key, or a signature of whose owner, is in the environment."""
    parts = urlsplit(url)
    if not parts.username or not parts.hostname:
        raise UsageError(
            "The store of documents in Azure is named abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER."
        )
    files = AzureFileSystem(parts.hostname.partition(".")[0], **_signature())
    return Folder(files, f"{parts.username}/{unquote(parts.path).strip('/')}".strip("/"))

"""From a url to a folder of a disk or of an object store."""

from __future__ import annotations

from urllib.parse import unquote

from runtime.errors import UsageError
from runtime.file_systems import Folder, open_folder
from runtime.urls import path_and_options


def open_place(url: str) -> Folder:
    """Return the folder that a url names, whether it is there or not. Raises `UsageError` for an unknown form.

    An error does not repeat the url, which may hold a secret.
    """
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

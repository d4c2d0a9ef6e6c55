"""File systems of driver and workers, without the JVM.

A path is on a local or mounted disk. URLs are opened by pyarrow (`s3`, `abfs`, `gs`, `hdfs`) or fsspec, if installed,
with credentials of the environment, not of Hadoop. Options of pyarrow follow a `?`, such as
`s3://bucket/folder?endpoint_override=HOST:PORT&scheme=http`.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit
from uuid import uuid4

from runtime.errors import UsageError


def is_url(folder: str) -> bool:
    """Return whether a folder is given by a URL. A path on disk may contain colons."""
    return "://" in folder or folder.startswith("file:")


def path_and_options(url: str) -> tuple[str, str]:
    """Split the URL of a folder before its `?` into path and options. A path on disk has no options."""
    path, mark, options = url.partition("?") if "://" in url else (url, "", "")
    return path, mark + options


def within(url: str, *names: str) -> str:
    """Return the path or URL of a file or folder within a folder. Keeps the options of the URL."""
    path, options = path_and_options(url)
    return "/".join((path, *names)) + options


_MOVE_FOLDERS = ("local", "hdfs")
EMULATOR_ACCOUNT = "devstoreaccount1"
EMULATOR_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
"""The documented key of every Azurite, which is no secret."""


@dataclass(frozen=True, slots=True)
class Folder:
    """A folder, which need not exist."""

    files: Any
    path: str

    @property
    def is_local(self) -> bool:
        """Whether the folder is on a local or mounted disk."""
        return bool(self.files.type_name == "local")

    @property
    def moves_whole(self) -> bool:
        """Whether the folder can be moved atomically."""
        return self.files.type_name in _MOVE_FOLDERS

    @property
    def name(self) -> str:
        """The last part of the path."""
        return str(self.path).rstrip("/").rpartition("/")[2]

    @property
    def parent(self) -> Folder:
        """The parent folder."""
        return Folder(self.files, str(self.path).rstrip("/").rpartition("/")[0])

    def sub(self, name: str) -> Folder:
        """Return a subfolder of this folder."""
        return Folder(self.files, self.path_of(name))

    def names(self) -> list[str]:
        """Return the names of the folder's files and subfolders, or an empty list if the folder does not exist."""
        return [info.base_name for info in self._list()]

    def sizes(self) -> dict[str, int]:
        """Return the sizes of the folder's files in bytes, by name. Empty if the folder does not exist."""
        return {info.base_name: info.size for info in self._list() if info.is_file}

    def times(self, names: Sequence[str]) -> list[int | None]:
        """Return each file's modification time in milliseconds since 1970: -1 if unknown, None if there is no file."""
        infos = self.files.get_file_info([self.path_of(name) for name in names])
        return [None if _is_missing(info) else (info.mtime_ns or -1) // 10**6 for info in infos]

    def is_folder(self) -> bool:
        """Return whether the path is a folder."""
        return bool(self.files.get_file_info(self.path).type.name == "Directory")

    def exists(self) -> bool:
        """Return whether the path is a file or folder."""
        return not _is_missing(self.files.get_file_info(self.path))

    def create(self) -> None:
        """Create the folder and its parents. On a local disk, only the owner has access to a new folder."""
        if self.is_local:
            os.makedirs(self.path, 0o700, exist_ok=True)  # noqa: PTH103 - pyarrow's paths are texts
        else:
            self.files.create_dir(self.path, recursive=True)

    def delete(self) -> None:
        """Delete the folder with its contents."""
        with suppress(FileNotFoundError):
            self.files.delete_dir(self.path)

    def delete_if_empty(self) -> None:
        """Delete the folder if it is empty. No-op on object stores, which have no folders."""
        if self.is_local:
            with suppress(OSError):
                os.rmdir(self.path)  # noqa: PTH106 - pyarrow's paths are texts
        elif self.moves_whole and not self.names():
            self.delete()

    def move_to(self, target: Folder) -> None:
        """Move the folder atomically. Raises `OSError` if the target is not empty."""
        self.files.move(self.path, target.path)

    def move_file(self, name: str, target: Folder) -> None:
        """Move a file into another folder. On an object store, the file is copied and then deleted."""
        if self.moves_whole:
            self.files.move(self.path_of(name), target.path_of(name))
            return
        self.copy_file(name, target)
        self.delete_file(name)

    def copy_file(self, name: str, target: Folder) -> None:
        """Copy a file into another folder, under the same name. Replaces a file of that name in the other folder."""
        self.files.copy_file(self.path_of(name), target.path_of(name))

    def delete_file(self, name: str) -> bool:
        """Delete a file, and return whether it existed. Costs two requests on an object store."""
        # Azurite sometimes truncates its response for a missing file, so check first.
        if not self.is_local and _is_missing(self.files.get_file_info(self.path_of(name))):
            return False
        try:
            self.files.delete_file(self.path_of(name))
        except FileNotFoundError:
            return False
        return True

    def touch(self, name: str) -> None:
        """Create an empty file."""
        self.put(name, b"")

    def put(self, name: str, content: bytes) -> None:
        """Create a small file."""
        with self.write(name) as file:
            file.write(content)

    def put_whole(self, name: str, content: bytes) -> None:
        """Create or replace a small file atomically, and fsync it. Creates the folder."""
        aside = self.sub(f"_aside-{uuid4().hex}")
        aside.create()
        aside.put(name, content)
        aside.flush(name)
        aside.move_file(name, self)
        aside.delete()
        self.flush()

    def read(self, name: str) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return a file, opened for random access."""
        return self.files.open_input_file(self.path_of(name))

    def write(self, name: str, metadata: Mapping[str, str] | None = None) -> Any:  # noqa: ANN401 - pyarrow has no types
        """Return a new file, opened for writing. Object stores save `metadata` with the file.

        Raises `FileNotFoundError` if the folder does not exist on a disk.
        """
        return self.files.open_output_stream(self.path_of(name), metadata=metadata)

    def size(self, name: str) -> int:
        """Return the size of a file in bytes. Raises `FileNotFoundError` if it does not exist."""
        info = self.files.get_file_info(self.path_of(name))
        if _is_missing(info):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.path_of(name))
        return int(info.size)

    def flush(self, name: str | None = None) -> None:
        """Fsync the file `name` or, without a name, the folder's creations and renames. No-op on object stores."""
        if self.is_local:
            flush(self.path if name is None else self.path_of(name))

    def path_of(self, name: str) -> str:
        """Return the path of a file or folder in this folder."""
        return f"{self.path}/{name}"

    def _list(self) -> Any:  # noqa: ANN401 - pyarrow has no types
        from pyarrow.fs import FileSelector  # noqa: PLC0415 - as in `open_folder`

        selector = FileSelector(self.path, allow_not_found=True)
        try:
            return self.files.get_file_info(selector)
        except FileNotFoundError:  # created during the call
            return self.files.get_file_info(selector)


def _is_missing(info: Any) -> bool:  # noqa: ANN401 - pyarrow has no types
    return bool(info.type.name == "NotFound")


def open_folder(url: str) -> Folder:
    """Return the folder of a path or URL. Raises `UsageError` for an unknown file system."""
    # Imported here, because many processes open no folder, such as consumers of single messages.
    import pyarrow as pa  # noqa: PLC0415 - see above
    from pyarrow.fs import FileSystem, LocalFileSystem  # noqa: PLC0415 - see above

    scheme, separator, rest = url.partition("://")
    if not separator or scheme == "file":
        return Folder(LocalFileSystem(), (rest if separator else url).removeprefix("file:"))
    if scheme == "azurite":
        return _azure(url)
    if scheme in {"abfs", "abfss"}:
        names = {"AZURE_STORAGE_KEY": "account_key", "AZURE_STORAGE_SAS_TOKEN": "sas_token"}
        for name, argument in names.items():
            if os.environ.get(name):
                return _azure(url, **{argument: os.environ[name]})
    path, options = path_and_options(url)
    place = quote(path.partition("://")[2], safe="/@:=")
    try:
        found = FileSystem.from_uri(f"{'s3' if scheme in {'s3a', 's3n'} else scheme}://{place}{options}")
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        found = _of_fsspec(url, scheme, error)
    return Folder(*found)


def _azure(url: str, **signature: str) -> Folder:
    """Return a folder in Azurite, or in a storage account with the key or token in `signature`."""
    from pyarrow.fs import AzureFileSystem  # noqa: PLC0415 - as in `open_folder`

    parts = urlsplit(url, allow_fragments=False)
    if parts.scheme == "azurite":
        place = {"blob_storage_authority": parts.netloc, "dfs_storage_authority": parts.netloc}
        http = {"blob_storage_scheme": "http", "dfs_storage_scheme": "http"}
        files = AzureFileSystem(EMULATOR_ACCOUNT, account_key=EMULATOR_KEY, **place, **http)
        return Folder(files, parts.path.strip("/"))
    if not parts.username or not parts.hostname:
        raise UsageError(
            "The URL of the folder in Azure is invalid. Use abfss://CONTAINER@ACCOUNT.dfs.core.windows.net/FOLDER."
        )
    files = AzureFileSystem(parts.hostname.partition(".")[0], **signature)
    return Folder(files, f"{parts.username}/{parts.path.strip('/')}".strip("/"))


def _of_fsspec(url: str, scheme: str, unknown: Exception) -> tuple[Any, str]:
    from pyarrow.fs import FSSpecHandler, PyFileSystem  # noqa: PLC0415 - as in `open_folder`

    try:
        from fsspec.core import url_to_fs  # noqa: PLC0415 - rarely installed

        files, path = url_to_fs(url)
    except (ImportError, ValueError) as error:
        raise UsageError(
            f"The folder {url} cannot be opened: {unknown} Use a path, a URL that pyarrow supports, or install fsspec "
            f"and its package for {scheme}."
        ) from error
    return PyFileSystem(FSSpecHandler(files)), path


def flush(path: str | Path) -> None:
    """Fsync a file or a folder's entries."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

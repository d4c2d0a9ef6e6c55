"""Where a log's files are looked for: on a disk or an object store by this process, or else by Spark's own reader.

Spark reads more file systems than Python does, and may have credentials that this process lacks. What cannot be listed
here is therefore listed by a small job, in a session of either kind.
"""

from __future__ import annotations

import glob
import os
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Protocol

import pyarrow as pa
from pyspark.sql import SparkSession

from runtime.errors import LogError, UsageError
from runtime.file_systems import Folder, open_folder
from runtime.spark.logs.beginnings import BEGINNING, Beginning
from runtime.spark.logs.finding import Entry
from runtime.spark.sessions.failures import explain, is_of_spark
from runtime.spark.sessions.kinds import is_local, master_of

_HADOOP_SETTINGS = "HADOOP_CONF_DIR"
_PATTERN = re.compile(r"[*?\[\]{}]")
_BRACES = re.compile(r"\{([^{}]*)\}")
_PLACE = re.compile(r"[A-Za-z][\w+.-]*:(//[^/]*)?")
_NO_FILE_SYSTEMS = ("http:", "https:", "ftp:")
_PACKAGES = {
    "abfs": "org.apache.hadoop:hadoop-azure",
    "abfss": "org.apache.hadoop:hadoop-azure",
    "gs": "com.google.cloud.bigdataoss:gcs-connector",
    "s3a": "org.apache.hadoop:hadoop-aws",
}


class RootListing(Protocol):
    """What there is at one file or folder of a log."""

    root: Entry
    is_on_disk: bool

    def entries(self, folder: Entry) -> Iterable[Entry]:
        """Give what is in a folder."""
        ...

    def beginning(self, file: Entry) -> Beginning | None:
        """Return how a file begins, None where that cannot be told without reading all of it."""
        ...


class DiskListing:
    """The files of a log on the disks of this machine."""

    def __init__(self) -> None:
        self._listings: list[RootListing] = []

    def roots(self, path: str) -> Sequence[Entry]:
        """Return the files and folders that a path or pattern names. Raises `LogError` when there are none."""
        found = self._find(path)
        self._listings += found
        return [listing.root for listing in found]

    def _find(self, path: str) -> Sequence[RootListing]:
        found = _of_disk(path)
        if not found:
            raise LogError(f"There is no log at {path}.")
        return found

    def entries(self, folder: Entry) -> Iterable[Entry]:
        """Give what is in a folder."""
        return self._listing_of(folder).entries(folder)

    def beginning(self, file: Entry) -> Beginning | None:
        """Return how a file begins, None where that cannot be told without reading all of it."""
        return self._listing_of(file).beginning(file)

    def is_on_disk(self, file: Entry) -> bool:
        """Say whether this process can read a file on the disks of this machine."""
        return self._listing_of(file).is_on_disk

    def _listing_of(self, entry: Entry) -> RootListing:
        return next(each for each in self._listings if entry.url.startswith(each.root.url))


class SessionListing(DiskListing):
    """The files of a log that a session is to read."""

    def __init__(self, spark: SparkSession) -> None:
        super().__init__()
        self._spark = spark

    def _find(self, path: str) -> Sequence[RootListing]:
        if path.startswith(_NO_FILE_SYSTEMS):
            raise LogError(f"Spark reads no log from {path}: download it, or name it on a file system.")
        if _is_path(path) and not self._has_other_disks():
            return super()._find(path)
        found = _of_disk(path) if _is_path(path) else _of_url(path)
        return found or [SparkListing(self._spark, path)]

    def is_on_disk(self, file: Entry) -> bool:
        """Say whether this process can read a file on the disks of this machine, and the session reads these too."""
        return not self._has_other_disks() and super().is_on_disk(file)

    def _has_other_disks(self) -> bool:
        """Say whether a path may be one of another machine, or of a cluster's file system."""
        return _HADOOP_SETTINGS in os.environ or not is_local(master_of(self._spark))


class FolderListing:
    """What this process sees at a file or folder."""

    def __init__(self, folder: Folder) -> None:
        self._folder = folder
        self._check(folder.path)
        self.root = Entry(folder.path, is_folder=folder.is_folder())
        self.is_on_disk = folder.is_local

    def entries(self, folder: Entry) -> Iterator[Entry]:
        """Give what is in a folder."""
        if self._folder.is_local:
            for found in Path(folder.url).iterdir():
                if not Entry(str(found), is_folder=False).is_hidden:
                    self._check(str(found))
        for path, is_folder in Folder(self._folder.files, folder.url).paths():
            yield Entry(path, is_folder)

    def _check(self, path: str) -> None:
        """Raise `LogError` for what on a disk is neither file nor folder, or leads in a circle: Spark would hang."""
        if not self._folder.is_local or not os.path.lexists(path):
            return
        place = Path(path)
        if not place.exists():
            raise LogError(f"{path} is a link to what is not there: remove it from the log.")
        if not (place.is_file() or place.is_dir()):
            raise LogError(f"{path} is a pipe, a socket or a device: a log has files and folders only.")
        if place.is_symlink() and place.parent.resolve().is_relative_to(place.resolve()):
            raise LogError(f"{path} is a link to a folder that it is in: remove it from the log.")

    def beginning(self, file: Entry) -> Beginning | None:
        """Return how a file begins, unpacked as its name says; None when it cannot be unpacked here."""
        try:
            with self._folder.files.open_input_stream(file.url) as opened:
                data = opened.read(BEGINNING)
        except (OSError, pa.ArrowException):
            return None
        return Beginning(data, is_whole=len(data) < BEGINNING)


class SparkListing:
    """What Spark's own reader finds at a path; it looks into all folders that are not hidden, and reads no file.

    Costs a job. Raises `LogError` for a file system that is not there, or that Spark does not know.
    """

    is_on_disk = False

    def __init__(self, spark: SparkSession, path: str) -> None:
        reader = spark.read.format("binaryFile").option("recursiveFileLookup", "true")
        try:
            rows = reader.load(path).select("path").collect()
        except Exception as error:
            if not is_of_spark(error):
                raise
            raise LogError(_unopened(path, error)) from error
        files = [_within(row["path"]) for row in rows]
        given = _within(path).rstrip("/")
        top = os.path.commonpath([os.path.dirname(file) for file in files] or ["/"])  # noqa: PTH120 - of any system
        base = top if _PATTERN.search(given) else given
        self.root = Entry(base, is_folder=files != [base])
        self._children: dict[str, set[Entry]] = defaultdict(set)
        for file in files:
            self._add(Entry(file, is_folder=False))

    def entries(self, folder: Entry) -> Iterable[Entry]:
        """Give what is in a folder."""
        return sorted(self._children[folder.url])

    def beginning(self, file: Entry) -> None:
        """Return None: a file is taken for what it says."""

    def _add(self, entry: Entry) -> None:
        while entry.url != self.root.url:
            parent = Entry(entry.url.rpartition("/")[0], is_folder=True)
            self._children[parent.url].add(entry)
            entry = parent


def absolute_path(path: str) -> str:
    """Return the absolute path of what is on the disks of this machine: Spark may work in another folder."""
    return str(Path(path).absolute()) if _PLACE.match(path) is None and _of_disk(path) else path


def _is_path(path: str) -> bool:
    return _PLACE.match(path) is None or path.startswith("file:")


def _of_disk(path: str) -> list[RootListing]:
    """Return what a path or pattern names on the disks of this machine."""
    if not _PATTERN.search(path):
        folder = open_folder(path)
        return [FolderListing(folder)] if folder.exists() else []
    plain = open_folder(path).path
    found = {each for pattern in _without_braces(plain) for each in glob.glob(pattern)}  # noqa: PTH207 - it may be absolute
    return [FolderListing(open_folder(each)) for each in sorted(found)]


def _without_braces(pattern: str) -> Iterator[str]:
    """Give the patterns for which one with alternatives in braces stands."""
    parts = _BRACES.split(pattern)
    choices = [part.split(",") if number % 2 else [part] for number, part in enumerate(parts)]
    return map("".join, product(*choices))


def _of_url(url: str) -> list[RootListing]:
    """Return what a url names, nothing for a pattern, and where this process cannot look."""
    if _PATTERN.search(url):
        return []
    try:
        folder = open_folder(url)
        return [FolderListing(folder)] if folder.exists() else []
    except (UsageError, OSError, pa.ArrowException):
        return []


def _within(url: str) -> str:
    """Return the path of a url within its file system."""
    return _PLACE.sub("", url, count=1)


def _unopened(where: str, error: Exception) -> str:
    """Return what to do about a log that Spark does not find, or a file system that it does not know."""
    text = str(error)
    if "PATH_NOT_FOUND" in text:
        return f"There is no log at {where}."
    if "No FileSystem for scheme" in text or "ClassNotFoundException" in text:
        scheme = where.partition(":")[0]
        package = _PACKAGES.get(scheme)
        brings = f", such as {package}" if package else ""
        return (
            f"Spark has no file system for {scheme}: start it with the package that brings it{brings} "
            f"(spark.jars.packages)."
        )
    return f"The log at {where} cannot be opened: {explain(error)}"

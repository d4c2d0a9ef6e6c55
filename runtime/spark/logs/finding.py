"""What there is at the path of a log: files in folders of any depth, on any file system that Spark reads.

Spark passes over files and folders whose names begin with `_` or `.`, and over folders beside those of its partitions.
Here the first are counted, so that the user can be told, and the second are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from runtime.errors import LogError
from runtime.spark.logs.beginnings import Beginning, check_beginning

_SUFFIXES = {".json": "json", ".jsonl": "json", ".ndjson": "json", ".parquet": "parquet", ".pq": "parquet"}
_OTHER_FORMATS = frozenset(
    {".arrow", ".avro", ".csv", ".feather", ".log", ".orc", ".tsv", ".txt", ".xlsx", ".xml", ".zip"}
)
_PACKED = re.compile(r"\.(gz|gzip|bz2|zst|zstd|lz4|snappy|deflate)\Z")
_NAMED_BY_SPARK = re.compile(
    r"_SUCCESS|_metadata|_common_metadata|_spark_metadata|_started_\d+|_committed_\d+|\..*\.crc"
)
_DELTA = "_delta_log"
_SHOWN = 3


class Entry(NamedTuple):
    """A file or folder: its url, and whether it is in a folder of the log, or named as the log itself."""

    url: str
    is_folder: bool

    @property
    def name(self) -> str:
        """The last part of the url."""
        return self.url.rstrip("/").rpartition("/")[2]

    @property
    def is_hidden(self) -> bool:
        """Whether Spark passes it over."""
        name = self.name
        return (
            name.startswith(".") or (name.startswith("_") and "=" not in name) or name.endswith("._COPYING_")
        )


@dataclass(frozen=True, slots=True)
class LogFiles:
    """The format of a log, its files, whether it has folders that are no partitions, and what is passed over of it.

    `within` are, for each file, the names of the folders from the log's own to it. `are_on_disk` says that this process
    can read them all on the disks of this machine.
    """

    format: str
    files: Sequence[Entry]
    is_nested: bool
    skipped: str | None
    within: Sequence[tuple[str, ...]]
    are_on_disk: bool


def find_files(listing: Listing, paths: Sequence[str], format_: str | None = None) -> LogFiles:
    """Look at what there is at the paths of a log; costs a request for each folder.

    Raises `LogError` when there is nothing, or what no log is made of.
    """
    roots = [root for path in paths for root in listing.roots(path)]
    found = _Found(", ".join(paths), roots)
    for root in roots:
        if root.is_hidden:
            raise LogError(f"Spark reads no file whose name begins with _ or .: rename {root.name}.")
        found.add(root, ())
    while found.folders:
        folder, within = found.folders.pop()
        for entry in listing.entries(folder):
            found.add(entry, (*within, entry.name))
    chosen = format_ or found.format()
    if not found.files:
        passed_over = f" Spark passes over {found.remark}." if found.remark else ""
        raise LogError(f"The log at {found.where} holds no {chosen} files.{passed_over}")
    beginning = listing.beginning(found.files[0])
    if beginning is not None:
        if chosen == "json" and len(found.files) == 1 and beginning.is_empty:
            raise LogError(f"The log at {found.where} holds no messages: its file is empty.")
        check_beginning(found.files[0].url, chosen, beginning)
    return LogFiles(
        chosen,
        found.files,
        found.is_nested(chosen, one_root=len(roots) == 1),
        found.remark,
        found.within,
        all(map(listing.is_on_disk, roots)),
    )


class Listing(Protocol):
    """Files and folders as the file systems have them that Spark reads."""

    def roots(self, path: str) -> Sequence[Entry]:
        """Return the files and folders that a path or pattern names. Raises `LogError` when there are none."""
        ...

    def entries(self, folder: Entry) -> Iterable[Entry]:
        """Give what is in a folder."""
        ...

    def beginning(self, file: Entry) -> Beginning | None:
        """Return how a file begins, None where that cannot be told without reading all of it."""
        ...

    def is_on_disk(self, file: Entry) -> bool:
        """Say whether this process can read a file on the disks of this machine."""
        ...


class _Found:
    """What was found so far of the log at some paths."""

    def __init__(self, where: str, roots: Sequence[Entry]) -> None:
        self.where = where
        self.roots = roots
        self.files: list[Entry] = []
        self.within: list[tuple[str, ...]] = []
        self.folders: list[tuple[Entry, tuple[str, ...]]] = []
        self.skipped: list[str] = []

    def add(self, entry: Entry, within: tuple[str, ...]) -> None:
        """Take a file, or a folder to be looked into; `within` are the names from the log's own folder to it."""
        if entry.name == _DELTA:
            raise LogError(
                f"The log at {self.where} is a Delta table: read it with its own reader, and give run_batch the "
                f"DataFrame."
            )
        if within and entry.is_hidden:
            if not _NAMED_BY_SPARK.fullmatch(entry.name):
                self.skipped.append("/".join(within))
        elif entry.is_folder:
            self.folders.append((entry, within))
        else:
            self.files.append(entry)
            self.within.append(within[:-1])

    def format(self) -> str:
        """Return the format that the names of the log's folders or files say, Parquet when they say none."""
        said: dict[str, str] = {}
        for root in self.roots:
            if root.is_folder and (suffix := _suffix(root.name)) in _SUFFIXES:
                return _SUFFIXES[suffix]
        for file in self.files:
            suffix = _suffix(file.name)
            if suffix in _OTHER_FORMATS:
                raise LogError(
                    f"The log at {self.where} has a {suffix} file ({file.name}): a log is Parquet or JSON lines. If "
                    f"that is what it holds, say --format parquet or --format json."
                )
            if suffix in _SUFFIXES:
                said.setdefault(_SUFFIXES[suffix], file.name)
        if len(said) > 1:
            raise LogError(
                f"The log at {self.where} has JSON lines ({said['json']}) and Parquet ({said['parquet']}): give each "
                f"format a batch of its own, with a pattern such as {self.where}/*.parquet, or say --format."
            )
        return next(iter(said), "parquet")

    @property
    def remark(self) -> str | None:
        """What is passed over, None when nothing is."""
        if not self.skipped:
            return None
        count, names = len(self.skipped), sorted(self.skipped)
        shown = ", ".join(names[:_SHOWN]) + (", ..." if count > _SHOWN else "")
        what = "file or folder whose name begins" if count == 1 else "files and folders whose names begin"
        return f"{count:,} {what} with _ or . ({shown})"

    def is_nested(self, format_: str, *, one_root: bool) -> bool:
        """Whether there are files in folders that Spark does not look into by itself.

        Parquet in folders such as dt=2026-01-01 alone is read as partitions, whose names are columns.
        """
        places = set(self.within)
        below = [folders for folders in places if folders]
        if not below:
            return False
        are_partitions = all("=" in name for folders in below for name in folders) and () not in places
        return not (format_ == "parquet" and are_partitions and one_root)


def is_packed(name: str) -> bool:
    """Say whether the name of a file says that it is compressed."""
    return _PACKED.search(name.lower()) is not None


def _suffix(name: str) -> str:
    """Return the end of a name that says the format, without that of a compression."""
    stem = _PACKED.sub("", name.lower())
    dot = stem.rfind(".")
    return stem[dot:] if dot > 0 else ""

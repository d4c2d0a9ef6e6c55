"""Which epochs of a query may be run: those that follow on what the ledger knows of it, and no others.

Spark hands an epoch over again when it died before it could note that it was done: with the same offsets, as it keeps
these. So an epoch that the ledger has with the same content is resumed, or, if it is published, passed over. All else
means that the checkpoint is not the one that the ledger knows, and is refused: it was deleted and made anew, restored
from a backup, or belongs to another query or another table. Spark would skip messages then, or call others by the
number of an epoch that is done.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple
from urllib.parse import unquote, urlsplit
from uuid import uuid4

from eventstore import connect
from eventstore.connect import portable_url
from runtime.errors import BatchRefusedError, UsageError
from runtime.file_systems import Folder, open_folder, path_and_options
from runtime.ledger.ledger import EPOCH, BatchRecord
from runtime.spark.batch import Rounds

_VERSION = "v1"
_NOTHING_READ = "-"
_COMPACT = ".compact"
_OWNER = "consistent-query.json"

WHAT_TO_DO = (
    "Nothing was handled. Go on with the checkpoint that the query had, or give query and checkpoint new names: "
    "messages that were handled before are duplicates then, and change nothing."
)
"""Ends what is said of a checkpoint with which a query cannot go on."""


class Planned(NamedTuple):
    """A micro-batch that Spark has planned.

    Beside query and epoch, the id of its checkpoint and a digest of its offsets identify it. `files` has the url of
    each file, if it is of files, and when that was written last, in milliseconds, as Spark found it.
    """

    checkpoint: str
    offsets: str
    files: Mapping[str, int]


class Owner(NamedTuple):
    """Which query a checkpoint belongs to, and which table it writes to."""

    query: str
    store: str
    table: str


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Spark's checkpoint of a query, in a folder on any file system that pyarrow or fsspec opens.

    It is read for what tells one micro-batch from another. Before Spark hands over the micro-batch of an epoch, it
    writes `offsets/EPOCH`: a line with the version of the form, one with settings, and one for each source that says
    how far it is read. The micro-batch is what lies between the offsets of the epoch before and these. A source of
    files counts its lists of files there, and keeps each list in `sources/SOURCE/NUMBER`; every tenth is
    `NUMBER.compact`, which repeats all lists before it. `metadata` has an id, drawn when the checkpoint is made.
    """

    url: str

    def planned(self, epoch: int) -> Planned:
        """Return the micro-batch of an epoch that Spark has planned.

        Reads the offsets of two epochs and the names of the files between them, not the messages. Raises `UsageError`
        for a checkpoint in a form that is not known, and `BatchRefusedError` for one that lacks what it should have.
        """
        after = self._offsets(epoch)
        before = self._offsets(epoch - 1) if epoch else [_NOTHING_READ] * len(after)
        before += [_NOTHING_READ] * (len(after) - len(before))
        files = [
            sorted(self._files(source, *ends)) for source, ends in enumerate(zip(before, after, strict=False))
        ]
        text = json.dumps([before, after, files])
        id_ = str(json.loads(self._read("metadata"))["id"])
        digest = sha256(text.encode()).hexdigest()[:32]
        return Planned(id_, digest, dict(file for each in files for file in each))

    def last_epoch(self) -> int | None:
        """Return the last epoch that Spark has planned, None before the first."""
        names = self._folder().sub("offsets").names()
        return max((int(name) for name in names if name.isdecimal()), default=None)

    def changed(self, files: Mapping[str, int]) -> list[tuple[str, bool]]:
        """Return those of some files that are gone, or do not have their time any more, and whether they are gone.

        Costs a request for each on an object store, several at once. Looks only on the disks of this machine and on the
        file system of the checkpoint: with others Spark may have credentials that this process has not.
        """
        path, options = path_and_options(self.url)
        options_of = {"": "", "file": "", urlsplit(path).scheme: options}
        times_in: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for file, time in files.items():
            scheme, host, name, *_ = urlsplit(file)
            if scheme in options_of:
                times_in[f"{scheme or 'file'}://{host}"][unquote(name).lstrip("/")] = time
        changed = []
        for root, times in times_in.items():
            folder = open_folder(root + options_of[urlsplit(root).scheme])
            unit = (
                1 if folder.is_local else 1000
            )  # of seconds other file systems tell Spark and pyarrow alike
            for name, now in zip(times, folder.times(list(times)), strict=True):
                if now is None or (now >= 0 and now // unit != times[name] // unit):
                    changed.append((f"{root}/{name}", now is None))
        return changed

    def check_is_folder(self) -> None:
        """Raise `UsageError` when a file is where the checkpoint should be."""
        folder = self._folder()
        if folder.exists() and not folder.is_folder():
            raise UsageError(
                f"The checkpoint {self.url} is a file: it is to be a folder, of this query alone."
            )

    def owner(self) -> Owner | None:
        """Return which query the checkpoint belongs to, None when none has said so."""
        folder = self._folder()
        if _OWNER not in folder.sizes():
            return None
        try:
            return Owner(**json.loads(_read(folder, _OWNER)))
        except (ValueError, TypeError) as error:
            raise self._lacks(f"Its {_OWNER} cannot be read.") from error

    def claim(self, owner: Owner) -> None:
        """Note which query the checkpoint belongs to. Spark pays no attention to the file."""
        folder = self._folder()
        aside = folder.sub(f"_claimed-{uuid4().hex}")
        aside.create()
        with aside.write(_OWNER) as file:
            file.write(json.dumps(owner._asdict()).encode())
        aside.move_file(_OWNER, folder)
        aside.delete()

    def _folder(self) -> Folder:
        return open_folder(self.url)

    def _read(self, *names: str) -> str:
        folder = self._folder()
        for name in names[:-1]:
            folder = folder.sub(name)
        try:
            return _read(folder, names[-1])
        except FileNotFoundError as error:
            raise self._lacks(f"It lacks {'/'.join(names)}.") from error

    def _lacks(self, problem: str) -> BatchRefusedError:
        return BatchRefusedError(
            f"The checkpoint {self.url} was deleted or restored in part, or is damaged. {problem} {WHAT_TO_DO}"
        )

    def _offsets(self, epoch: int) -> list[str]:
        version, _, *sources = self._read("offsets", str(epoch)).splitlines()
        if version != _VERSION:
            raise UsageError(
                f"The checkpoint {self.url} has offsets in the form {version}, of which only {_VERSION} is known: run "
                f"the query with the version of Spark that began it."
            )
        return sources

    def _files(self, source: int, before: str, after: str) -> Iterator[tuple[str, int]]:
        """Yield path and time of each file between two offsets of a source; none for a source that has no files."""
        last, first = _number(after), _number(before)
        if last is None:
            return
        lists = self._folder().sub("sources").sub(str(source))
        for number in range(0 if first is None else first + 1, last + 1):
            has_number = f'"batchId":{number}'  # of a list that repeats others, few lines are parsed
            for line in self._list(lists, source, number):
                file = json.loads(line) if has_number in line else {}
                if file.get("batchId") == number:
                    yield file["path"], file["timestamp"]

    def _list(self, lists: Folder, source: int, number: int) -> Sequence[str]:
        """Return the lines that have a list: its own, or, where Spark has deleted that, the first that repeat it."""
        for name in (str(number), f"{number}{_COMPACT}"):
            if lists.sub(name).exists():
                return _read(lists, name).splitlines()
        compacted = (name.removesuffix(_COMPACT) for name in lists.names() if name.endswith(_COMPACT))
        later = [int(name) for name in compacted if name.isdecimal() and int(name) > number]
        if not later:
            raise self._lacks(f"It lacks sources/{source}/{number}, a list of files.")
        return _read(lists, f"{min(later)}{_COMPACT}").splitlines()


def _number(offset: str) -> int | None:
    """Return the number of a list of files; None for the offset of any other source."""
    if offset == _NOTHING_READ:
        return None
    try:
        found: Any = json.loads(offset)
    except ValueError:
        return None  # the offset of a source that writes other text than JSON identifies it as it stands
    return found["logOffset"] if isinstance(found, Mapping) and set(found) == {"logOffset"} else None


def _read(folder: Folder, name: str) -> str:
    with folder.read(name) as file:
        return str(file.read().decode())


@dataclass
class Admission:
    """Looks at each epoch of a query before it is run. One object is used from one start of the query to its end."""

    query: str
    checkpoint: Checkpoint
    _follows: bool = field(default=False, init=False)

    def batch_id(self, epoch: int) -> str:
        """Return the id of the batch that is the micro-batch of an epoch."""
        return f"{self.query}-{epoch}"

    def what(self, epoch: int, planned: Planned) -> str:
        """Return what the ledger calls the input of an epoch."""
        content = f"checkpoint {planned.checkpoint} with offsets {planned.offsets}"
        return f"{EPOCH}{epoch} of the query {self.query}, {content}"

    def check_start(self, us: Owner, find: Callable[[str], BatchRecord | None]) -> None:
        """Look at the checkpoint before Spark does, which would stop the query that it belongs to.

        `find` looks for a batch in our ledger. Raises `BatchRefusedError` when the checkpoint is that of another query
        or of a table that has not the last epochs, or lacks what its last epoch needs, and `UsageError` when it is no
        folder.
        """
        self.checkpoint.check_is_folder()
        owner = self._owner()
        last = self.checkpoint.last_epoch()
        if last is not None:
            self.checkpoint.planned(last)
            known = any(find(self.batch_id(each)) for each in range(max(0, last - 1), last + 1))
            if owner not in (None, us) and not known:
                raise self._not_ours(f"has epochs that the table {us.table} of this store does not know")

    def check_files(self, epoch: int, planned: Planned) -> None:
        """Raise `BatchRefusedError` when files of an epoch are gone, or other files have their names.

        Spark would pass over them, or read others than an earlier attempt has stored versions of, without a word.
        """
        changed = self.checkpoint.changed(planned.files)
        if changed:
            path, is_gone = changed[0]
            others = f", and {len(changed) - 1:,} others are gone or were too" if len(changed) > 1 else ""
            raise BatchRefusedError(
                f"Epoch {epoch} of the query {self.query} reads files that are not there as Spark has found them: "
                f"{path} {'is gone' if is_gone else 'was written again'}{others}. Nothing of the epoch is published. "
                f"Put back what was there with the time that it had (touch -d TIME FILE), and start the query again; a "
                f"file of that name and time without messages gives up those that were in it. Or abandon the epoch "
                f"(consistent batches --abandon {self.batch_id(epoch)}), and give query and checkpoint new names: then "
                f"what is there now is handled."
            )

    def find(self, rounds: Rounds, epoch: int, planned: Planned) -> BatchRecord | None:
        """Return what the ledger has of an epoch, None when it may begin. Costs a request.

        The first epoch after a start costs two more. Raises `BatchRefusedError`.
        """
        found, now = rounds.find(self.batch_id(epoch)), self.what(epoch, planned)
        if found is None and not self._follows:
            self._check_follows(rounds, epoch, planned)
            self._follows = True
        if found is not None and not found.input.startswith(f"{now}; "):
            raise BatchRefusedError(
                f"Epoch {epoch} of the query {self.query} had other content before: its checkpoint "
                f"{self.checkpoint.url} was deleted, restored from a backup, or is that of another query. "
                f"{WHAT_TO_DO} The ledger has: {found.input}. Now it is: {now}."
            )
        return found

    def _check_follows(self, rounds: Rounds, epoch: int, planned: Planned) -> None:
        """Raise `BatchRefusedError` when a new epoch does not follow on what this query has done in this table.

        Needed once: from then on Spark counts the epochs, and each one was done here.
        """
        us = Owner(self.query, connect(rounds.place.store).url, rounds.place.table)
        owner = self._owner()
        if epoch:
            before = rounds.find(self.batch_id(epoch - 1))
            if before is None:
                # In a table that was used, and not made anew, it was pruned.
                if owner != us or rounds.connection.run(rounds.ledger.algorithm()) is None:
                    raise self._not_ours(f"has epochs that the table {us.table} does not know", epoch)
            elif f"checkpoint {planned.checkpoint} " not in before.input:
                raise self._not_ours("is not the one with which the epoch before was run", epoch)
        if owner != us:
            self.checkpoint.claim(us)

    def _owner(self) -> Owner | None:
        """Return whose the checkpoint is. Raises `BatchRefusedError` when that is another query."""
        owner = self.checkpoint.owner()
        if owner is None:
            return None
        if owner.query != self.query:
            raise self._not_ours(f"is that of the query {owner.query}")
        return owner._replace(store=portable_url(owner.store))  # which may be noted as a relative path

    def _not_ours(self, why: str, epoch: int | None = None) -> BatchRefusedError:
        where = "" if epoch is None else f" with epoch {epoch}"
        return BatchRefusedError(
            f"The query {self.query} cannot go on{where}: its checkpoint {self.checkpoint.url} {why}. {WHAT_TO_DO}"
        )

"""Where the tables are that a command works on, as its options say it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from eventstore import connect
from runtime.algorithms.choice import check_stores
from runtime.cli.failures import NotPossibleError

if TYPE_CHECKING:
    from runtime.batch_options import TablePlace


class Place(NamedTuple):
    """The url of a store and the name of a table."""

    store: str
    table: str


class Named(NamedTuple):
    """What the options say of a de-duplication store or a token store: its url and its table, None where nothing."""

    store: str | None
    table: str | None

    def beside(self, states: Place) -> Place:
        """Return the place of the store; what the options do not say is as for the states."""
        return Place(self.store or states.store, self.table or states.table)


NOT_NAMED = Named(None, None)


class Stores(NamedTuple):
    """The places of both stores for a batch, None for the table of the states."""

    deduplication_store: TablePlace | None
    token_store: TablePlace | None

    @classmethod
    def of(
        cls, states: Place, algorithm: str, master: str, *, deduplication_store: Named, token_store: Named
    ) -> Stores:
        """Return the places that the options say.

        Raises `UsageError` for a store that the algorithm does not use, and when the workers of a master would not see
        a store as this process does.
        """
        check_named(algorithm, deduplication_store, token_store)
        return cls(place(deduplication_store, states, master), place(token_store, states, master))


def check_out(out: str, master: str) -> None:
    """Raise `NotPossibleError` when nothing can be written to a folder, as far as that can be told without Spark."""
    check_folder(out, master, "Outcomes", "--out")


def check_folder(path: str, master: str, what: str, option: str) -> None:
    """Raise `NotPossibleError` when nothing can be written to the folder of an option."""
    if ":" in path or not master.startswith("local"):
        return
    folder = Path(path).absolute()
    there = next(each for each in (folder, *folder.parents) if each.exists())
    if not there.is_dir():
        raise NotPossibleError(
            f"{what} cannot be written to {path}: {there} is a file. Choose another {option}."
        )
    if not os.access(there, os.W_OK):
        raise NotPossibleError(f"{what} cannot be written to {path}: {there} may not be written to.")


def check_file(file: Path | None) -> None:
    """Raise `NotPossibleError` when a file cannot be made, as there is no folder for it."""
    if file is not None and not file.parent.is_dir():
        raise NotPossibleError(f"{file} cannot be written: there is no folder {file.parent}.")


def check_named(
    algorithm: str, deduplication_store: Named = NOT_NAMED, token_store: Named = NOT_NAMED
) -> None:
    """Raise `UsageError` when the options name a store that the algorithm does not use."""
    named = [each if any(each) else None for each in (deduplication_store, token_store)]
    check_stores(algorithm, deduplication_store=named[0], token_store=named[1])


def place(named: Named, states: Place, master: str) -> TablePlace | None:
    """Return the place of a store for the workers of a master, None for the table of the states.

    Raises `UsageError` when they would not see it, or the states, as this process does.
    """
    from runtime.batch_options import TablePlace
    from runtime.spark.workers.connection import check_scope

    found = named.beside(states)
    for url in (states.store, found.store):
        check_scope(connect(url).scope, master)
    return None if found == states else TablePlace(*found)

"""Checks before Spark starts: apps, stores, tables, logs and output folders that commands name."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from eventstore import Store, Table, TableNotFoundError, connect
from eventstore.keys import table_name as check_name
from handlers import App, HandlersError
from runtime.algorithms.choice import check_stores
from runtime.cli.failures import NotPossibleError
from runtime.errors import AppNotFoundError, LogError, UsageError
from runtime.ledger.ledger import Ledger, check_id
from runtime.namesakes import PACKAGES, explain, namesakes, search_path, users_frame
from runtime.versions.properties import placed

if TYPE_CHECKING:
    from runtime.batch_options import BatchOptions, TablePlace


# Apps by name: from `module:attribute`, as it stands on the command line, to the App.


def load_app(spec: str) -> App:
    """Import the module of `module:attribute` and return its App.

    The working directory is searched last, so that an app needs no installation. Raises `UsageError` when the
    text is not of that form, or when the app is beside a module with the name of one of this project's packages, and
    `AppNotFoundError` when there is no such module or attribute, when it is no App, and when the module raises while it
    is imported.
    """
    name, attribute = split_spec(spec, "An app is named MODULE:ATTRIBUTE, like samples.shooting_range:app")
    module = import_module(name)
    if not hasattr(module, attribute):
        raise AppNotFoundError(
            f"The module {name} has no attribute {attribute}.{_apps_in(module)}{hint_at(name)}"
        )
    app = getattr(module, attribute)
    if not isinstance(app, App):
        raise AppNotFoundError(f"{spec} is no App but {_kind(app)}: make one with App(SomeHandler, ...).")
    return app


def split_spec(spec: str, form: str) -> tuple[str, str]:
    """Return the module and the attribute of `module:attribute`. Raises `UsageError`, which says the form."""
    name, colon, attribute = spec.partition(":")
    if not colon or not attribute.isidentifier() or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{form}, not {spec!r}.")
    return name, attribute


def import_module(name: str) -> ModuleType:
    """Import a module of Python's path or of the working directory. Raises `AppNotFoundError` and `UsageError`."""
    here = Path.cwd()
    if _is_in(here, name):
        check_names(here)
    sys.path[:] = search_path(sys.path)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name and f"{name}.".startswith(f"{error.name}."):
            raise AppNotFoundError(f"{_nowhere(name, error.name, here)}{hint_at(error.name)}") from error
        raise AppNotFoundError(_raised(name, error)) from error
    except (Exception, SystemExit) as error:
        raise AppNotFoundError(_raised(name, error)) from error


def check_names(folder: Path) -> None:
    """Raise `UsageError` when a module of a folder has the name of one of this project's packages."""
    for namesake in namesakes(folder):
        raise UsageError(explain(namesake))


def _is_in(folder: Path, name: str) -> bool:
    place = folder / name.partition(".")[0]
    return place.is_dir() or place.with_suffix(".py").is_file()


def hint_at(name: str | None) -> str:
    """Say what to rename when a module of the working directory is hidden by one of this name, else nothing."""
    top = (name or "").partition(".")[0]
    imported = sys.modules.get(top)
    place = Path.cwd() / top
    file = place.with_suffix(".py")
    if imported is None or not _is_in(Path.cwd(), top):
        return ""
    found = file if file.is_file() else place
    if str(getattr(imported, "__file__", None)).startswith(str(place)) or str(place) in _folders(imported):
        return ""
    if top in PACKAGES:
        return f" {explain(found)}"
    origin = getattr(imported, "__file__", None) or "a part of Python"
    return f" {found} is not found, as {top} is {origin}: rename it, for example to my_{found.name}."


def _folders(package: ModuleType) -> list[str]:
    """Return the folders of a package, those without `__init__.py` included."""
    return [str(Path(folder).absolute()) for folder in getattr(package, "__path__", ())]


def _nowhere(name: str, missing: str, here: Path) -> str:
    stem, dot, suffix = name.rpartition(".")
    if dot and suffix == "py":
        return f"A module is named as it is imported, not by its file: write {stem}:ATTRIBUTE."
    package = f" (there is no {missing})" if missing != name else ""
    return f"There is no module {name}{package}: it was looked for in {here} and on Python's path."


def _raised(name: str, error: BaseException) -> str:
    last_line = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, HandlersError):
        last_line = str(error)
    hint = _import_hint(error) if isinstance(error, ImportError) else ""
    return f"The module {name} cannot be imported: {last_line} ({_place(error)}){'.' if hint else ''}{hint}"


def _import_hint(error: ImportError) -> str:
    """Say what to do about an import within the module of an app that fails."""
    hint = hint_at(error.name)
    if hint:
        return hint
    if "circular import" in str(error):
        return " Two modules import each other: move what both need into a third one."
    return " Install it, or correct the name." if isinstance(error, ModuleNotFoundError) else ""


def _place(error: BaseException) -> str:
    """Return the file and line of the user's code that raised."""
    if isinstance(error, SyntaxError) and error.filename:
        return f"{error.filename}:{error.lineno}"
    frame = users_frame(error)
    return "while it was looked for" if frame is None else f"{frame.filename}:{frame.lineno}"


def _apps_in(module: ModuleType) -> str:
    names = [name for name, value in vars(module).items() if isinstance(value, App)]
    return f" Its apps: {', '.join(names)}." if names else ""


def _kind(value: object) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


# Where the tables are that a command works on, as its options say it.


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
    from runtime.spark.worker.connection import check_scope

    found = named.beside(states)
    for url in (states.store, found.store):
        check_scope(connect(url).scope, master)
    return None if found == states else TablePlace(*found)


# The store as commands use it without Spark: open it, do one thing, close it.

T = TypeVar("T")

_FILE = "sqlite:///"


def on_table(store_url: str, table_name: str, work: Callable[[Table], Awaitable[T]]) -> T:
    """Open a table that is there already, and return what the work on it gives.

    Raises `NotPossibleError` when there is no such SQLite file, and `TableNotFoundError` when there is no such table.
    """
    store = connect(store_url)
    check_store_file(store)
    return asyncio.run(_work(store, table_name, work))


def check_store_file(store: Store) -> None:
    """Raise `NotPossibleError` when the store is an SQLite file that is not there."""
    file = _missing_file(store)
    if file is not None:
        raise NotPossibleError(f"There is no store at {file}: a batch (`consistent run`) makes one.")


def require_table(store_url: str, table_name: str) -> None:
    """Raise `TableNotFoundError` when a table is not there, and make neither it nor its store."""
    store = connect(store_url)
    check_store_file(store)
    asyncio.run(_check_table(store, table_name))


async def _check_table(store: Store, table_name: str) -> None:
    async with store:
        await store.table(table_name, make=False)


async def _work(store: Store, table_name: str, work: Callable[[Table], Awaitable[T]]) -> T:
    async with store:
        table = await store.table(table_name, make=False)
        with placed(table):
            return await work(table)


def begin_on(store_url: str, table_name: str, work: Callable[[Table], Awaitable[object]]) -> bool:
    """Do some work on a table if it is there, and return whether it is; makes neither it nor its store.

    Raises `TableNameError` for a name that no table can have.
    """
    store = connect(store_url)
    check_name(table_name)
    if _missing_file(store) is not None:
        return False
    try:
        asyncio.run(_work(store, table_name, work))
    except TableNotFoundError:
        return False
    return True


def _missing_file(store: Store) -> Path | None:
    """Return the file of an SQLite store that is not there, else None."""
    file = Path(store.url.removeprefix(_FILE)).absolute()
    return file if store.url.startswith(_FILE) and not file.exists() else None


# What commands look at before they start Spark: a batch that cannot begin is refused at once.


def check_batch(
    app: App, states: Place, options: BatchOptions, batch_id: str | None, out: str, *, must_exist: bool
) -> bool:
    """Return whether the table of a batch is there; makes neither it nor its store.

    Raises `UsageError` for what the ledger refuses, and with `must_exist` `TableNotFoundError`.
    """
    from runtime.spark.commit import absolute_folder

    folder = absolute_folder(out)
    if batch_id is not None:
        check_id(batch_id)

    async def check(table: Table) -> None:
        ledger = Ledger(table, options.clock)
        await ledger.check_table(options.described_algorithm(), options.claim(app))
        if batch_id is not None:
            await ledger.check_folder(batch_id, folder)

    if begin_on(*states, check):
        return True
    if must_exist:
        raise TableNotFoundError(states.table, connect(states.store).url)
    return False


# Message logs as commands are given them: looked at before Spark is started.

_PATTERN_SIGNS = "*?[{"


def check_log(path: str, master: str, format_: str | None) -> int | None:
    """Return the size of a log in bytes, None where it is not on the disks of this machine.

    Raises `LogError` for what is no log of this format, as far as that can be told without Spark.
    """
    if not path:
        raise UsageError("--messages is empty: name a file or folder.")
    from runtime.spark.logs.read import find_on_disk, is_on_disk

    if not is_on_disk(path, master):
        return None
    return sum(Path(file).stat().st_size for file in find_on_disk([path], format_).files)


def check_source(folder: str, master: str, written: Mapping[str, str]) -> None:
    """Raise `LogError` when the folder of a stream is none, as far as that can be told without Spark.

    `written` are the folders that the stream writes to, by their options: none of them may be in the source.
    """
    if any(sign in folder for sign in _PATTERN_SIGNS):
        raise LogError(
            f"--source names one folder, and {folder} has one of {' '.join(_PATTERN_SIGNS)}, a pattern to Spark."
        )
    from runtime.spark.logs.read import is_on_disk

    if not is_on_disk(folder, master):
        return
    if not Path(folder).is_dir():
        raise LogError(f"There is no folder {folder}: --source names the one that files come into.")
    for option, other in written.items():
        if ":" not in other and Path(other).resolve().is_relative_to(Path(folder).resolve()):
            raise LogError(
                f"{option} {other} is in the folder of --source, {folder}, all of whose files are messages: choose "
                f"another {option}."
            )

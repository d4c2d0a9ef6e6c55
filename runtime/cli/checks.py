"""What commands look at before they work: apps, stores, tables, logs and folders, and how they open a table."""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import traceback
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import TypeVar

import typer

from eventstore import Store, Table, TableNotFoundError, connect
from eventstore.keys import table_name as check_name
from handlers import App, Handler, HandlersError
from runtime.batch_options import BatchOptions, TablePlace
from runtime.cli.failures import NotPossibleError
from runtime.errors import AppNotFoundError, LogError, UsageError
from runtime.ledger.ledger import Ledger, check_id
from runtime.namesakes import PACKAGES, explain, namesakes, search_path, users_frame
from runtime.versions.properties import error_location

# Apps and functions by name: `module:attribute`.


def load_app(spec: str) -> App:
    """Import the module of `module:attribute` and return its App.

    Raises `UsageError` when the text is not of that form, or when the app is beside a module with the name of one of
    this project's packages, and `AppNotFoundError` for anything else that is not an App that can be imported.
    """
    name = spec.removesuffix(".py").replace("/", ".").lstrip(".")
    example = (
        f"{name}:app"
        if ":" not in spec and name.replace(".", "").isidentifier()
        else "samples.shooting_range:app"
    )
    module, attribute = load_module(spec, f"An app is named MODULE:ATTRIBUTE, like {example}")

    def is_own_handler(value: object) -> bool:
        return isinstance(value, type) and issubclass(value, Handler) and value.__module__ == module.__name__

    if not hasattr(module, attribute):
        apps = ", ".join(name for name, value in vars(module).items() if isinstance(value, App))
        classes = [name for name, value in vars(module).items() if is_own_handler(value)]
        write = f" Write in it: {attribute} = App({', '.join(classes)})." if classes else ""
        known = f" Its apps: {apps}." if apps else write
        raise AppNotFoundError(
            f"The module {module.__name__} has no attribute {attribute}.{known}{hint_at(module.__name__)}"
        )
    app = getattr(module, attribute)
    if not isinstance(app, App):
        is_class = isinstance(app, type) and issubclass(app, Handler)
        write = f"write app = App({attribute}) in it, and name {module.__name__}:app" if is_class else ""
        raise AppNotFoundError(
            f"{spec} is no App but {kind(app)}: {write or 'make one with App(SomeHandler, ...)'}."
        )
    return app


def load_module(spec: str, form: str) -> tuple[ModuleType, str]:
    """Import the module of `module:attribute`, and return it with the name of the attribute.

    The working directory is searched last, so that an app needs no installation. Raises `UsageError`, which says the
    form, and `AppNotFoundError` when there is no such module, or it raises while it is imported.
    """
    name, colon, attribute = spec.partition(":")
    if not colon or not attribute.isidentifier() or not all(part.isidentifier() for part in name.split(".")):
        raise UsageError(f"{form}, not {spec!r}.")
    if _is_here(name):
        check_names(Path.cwd())
    sys.path[:] = search_path(sys.path)
    importlib.invalidate_caches()
    try:
        return importlib.import_module(name), attribute
    except ModuleNotFoundError as error:
        missing = error.name
        if not missing or not f"{name}.".startswith(f"{missing}."):
            raise AppNotFoundError(_raised(name, error)) from error
        stem, dot, suffix = name.rpartition(".")
        package = f" (there is no {missing})" if missing != name else ""
        sentence = (
            f"There is no module {name}{package}: it was looked for in {Path.cwd()} and on Python's path."
        )
        if dot and suffix == "py":
            sentence = f"A module is named as it is imported, not by its file: write {stem}:ATTRIBUTE."
        raise AppNotFoundError(f"{sentence}{hint_at(missing)}") from error
    except (Exception, SystemExit) as error:
        raise AppNotFoundError(_raised(name, error)) from error


def kind(value: object) -> str:
    """Return what an object is, for a sentence."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def check_names(folder: Path) -> None:
    """Raise `UsageError` when a module of a folder has the name of one of this project's packages."""
    for namesake in namesakes(folder):
        raise UsageError(explain(namesake))


def _is_here(name: str) -> bool:
    place = Path.cwd() / name.partition(".")[0]
    return place.is_dir() or place.with_suffix(".py").is_file()


def hint_at(name: str | None) -> str:
    """Say what to rename when a module of the working directory is hidden by one of this name, else nothing."""
    top = (name or "").partition(".")[0]
    imported = sys.modules.get(top)
    if imported is None or not _is_here(top):
        return ""
    place = Path.cwd() / top
    folders = [str(Path(folder).absolute()) for folder in getattr(imported, "__path__", ())]
    origin = getattr(imported, "__file__", None)
    if str(origin).startswith(str(place)) or str(place) in folders:
        return ""
    found = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place
    if top in PACKAGES:
        return f" {explain(found)}"
    origin = origin or "a part of Python"
    return f" {found} is not found, as {top} is {origin}: rename it, for example to my_{found.name}."


def _raised(name: str, error: BaseException) -> str:
    """Return the sentence for a module that raises while it is imported: what, where, and what to do."""
    last_line = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, HandlersError):
        last_line = str(error)
    frame = users_frame(error)
    where = "while it was looked for" if frame is None else f"{frame.filename}:{frame.lineno}"
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    hint = ""
    if isinstance(error, ImportError):
        hint = hint_at(error.name)
        if not hint and "circular import" in str(error):
            hint = " Two modules import each other: move what both need into a third one."
        elif not hint and isinstance(error, ModuleNotFoundError):
            hint = " Install it, or correct the name."
    return f"The module {name} cannot be imported: {last_line} ({where}){'.' if hint else ''}{hint}"


# Folders, files and logs.


def check_folder(path: str, master: str, what: str = "Outcomes", option: str = "--out") -> None:
    """Raise `NotPossibleError` when nothing can be written to the folder of an option, as far as can be told here."""
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


def check_log(path: str, master: str, format_: str | None, source: str | None = None) -> int | None:
    """Return the size of a log in bytes, None where it is not on the disks of this machine.

    Raises `LogError` for what is no log of this format, as far as that can be told without Spark, and `UsageError` for
    a source that cannot be.
    """
    from runtime.spark.logs.normalise import check_source
    from runtime.spark.logs.read import find_on_disk, is_on_disk

    check_source(source or "")
    if not path:
        raise UsageError("--messages is empty: name a file or folder.")
    if not is_on_disk(path, master):
        return None
    return sum(Path(file).stat().st_size for file in find_on_disk([path], format_).files)


def check_source_folder(folder: str, master: str, written: Mapping[str, str]) -> None:
    """Raise `LogError` when the folder of a stream is none, as far as that can be told without Spark.

    `written` are the folders that the stream writes to, by their options: none of them may be in the source.
    """
    from runtime.spark.logs.read import is_on_disk

    signs = "*?[{"
    if not is_on_disk(folder, master):
        if any(sign in folder for sign in signs):
            raise LogError(
                f"--source names one folder, and {folder} has one of {' '.join(signs)}, a pattern to Spark."
            )
        return
    if not Path(folder).is_dir():
        raise LogError(f"There is no folder {folder}: --source names the one that files come into.")
    for option, other in written.items():
        if ":" not in other and Path(other).resolve().is_relative_to(Path(folder).resolve()):
            raise LogError(
                f"{option} {other} is in the folder of --source, {folder}, all of whose files are messages: choose "
                f"another {option}."
            )


# Tables: opened for one piece of work without Spark.

T = TypeVar("T")
_FILE = "sqlite:///"


def on_table(place: TablePlace, work: Callable[[Table], Awaitable[T]]) -> T:
    """Open a table that is there already, and return what the work on it gives.

    Raises `NotPossibleError` when there is no such SQLite file, and `TableNotFoundError` when there is no such table.
    """
    store = connect(place.store)
    file = _missing_file(store)
    if file is not None:
        raise NotPossibleError(f"There is no store at {file}: a batch (`consistent run`) makes one.")
    return asyncio.run(_work(store, place.table, work))


def confirm(deed: str, *, yes: bool) -> None:
    """Ask before something is done that cannot be undone, unless `yes`.

    Raises `UsageError` where nobody can be asked, and `typer.Abort` when the answer is no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{deed} cannot be undone: say --yes, or look first with --dry-run.")
    typer.confirm(f"{deed} cannot be undone. Do it?", abort=True, err=True)


def require_table(place: TablePlace) -> None:
    """Raise what `on_table` raises when a table is not there, and make neither it nor its store."""

    async def nothing(_: Table) -> None: ...

    on_table(place, nothing)


async def _work(store: Store, table_name: str, work: Callable[[Table], Awaitable[T]]) -> T:
    async with store:
        table = await store.table(table_name, make=False)
        with error_location(table):
            return await work(table)


def _missing_file(store: Store) -> Path | None:
    """Return the file of an SQLite store that is not there, else None."""
    file = Path(store.url.removeprefix(_FILE)).absolute()
    return file if store.url.startswith(_FILE) and not file.exists() else None


def check_batch(
    app: App,
    states: TablePlace,
    options: BatchOptions,
    batch_id: str | None,
    out: str,
    *,
    must_exist: bool = True,
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

    store = connect(states.store)
    check_name(states.table)
    try:
        if _missing_file(store) is None:
            asyncio.run(_work(store, states.table, check))
            return True
    except TableNotFoundError:
        pass
    if must_exist:
        raise TableNotFoundError(states.table, store.url)
    return False

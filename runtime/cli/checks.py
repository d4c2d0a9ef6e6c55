"""Checks that commands make before they start: apps, tables, logs and folders. Also opens tables."""

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
from runtime.file_systems import is_url
from runtime.ledger.ledger import Ledger, check_id
from runtime.ledger.settings import open_current
from runtime.messages.records import AS_JSON, Decoding
from runtime.namesakes import PACKAGES, explain, namesakes, search_path, users_frame
from runtime.versions.properties import error_location

T = TypeVar("T")
_FILE = "sqlite:///"


def load_app(spec: str) -> App:
    """Import the App named by `module:attribute`.

    Raises `UsageError` for an invalid name, or a module that shares its name with a package of this project. Raises
    `AppNotFoundError` if the module cannot be imported, or the attribute is missing or not an App.
    """
    form = "An app is named MODULE:ATTRIBUTE, such as samples.shooting_range:app"
    module, attribute = load_module(spec, form)
    name, found = module.__name__, vars(module)
    if not hasattr(module, attribute):
        apps = ", ".join(each for each, value in found.items() if isinstance(value, App))
        own = [each for each in found.values() if _is_handler(each) and each.__module__ == name]
        handlers = ", ".join(each.__name__ for each in own)
        add = f" Add to it: {attribute} = App({handlers})." if own else ""
        known = f" Its apps: {apps}." if apps else add
        raise AppNotFoundError(f"The module {name} has no attribute {attribute}.{known}{hint_at(name)}")
    app = getattr(module, attribute)
    if not isinstance(app, App):
        handlers = attribute if _is_handler(app) else "SomeHandler, ..."
        write = f"add app = App({handlers}), and use {name}:app"
        raise AppNotFoundError(f"{spec} is not an App but {kind(app)}: {write}.")
    return app


def _is_handler(value: object) -> bool:
    return isinstance(value, type) and issubclass(value, Handler)


def load_module(spec: str, form: str) -> tuple[ModuleType, str]:
    """Import the module of `module:attribute`, and return it with the attribute's name.

    Searches the working directory last, so that an app needs no installation. For an invalid name, raises `UsageError`
    whose message begins with `form`. Raises the errors of `check_names`, and `AppNotFoundError` if the import fails.
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
        package = f" ({missing} is missing)" if missing != name else ""
        sentence = f"There is no module {name}{package} in {Path.cwd()} or on Python's path."
        if dot and suffix == "py":
            sentence = f"Use the module's import name, not its file name: {stem}:ATTRIBUTE."
        raise AppNotFoundError(f"{sentence}{hint_at(missing)}") from error
    except (Exception, SystemExit) as error:
        raise AppNotFoundError(_raised(name, error)) from error


def kind(value: object) -> str:
    """Describe the type of an object, for an error message."""
    return f"the class {value.__name__}" if isinstance(value, type) else f"of type {type(value).__name__}"


def check_names(folder: Path) -> None:
    """Raise `UsageError` if a module in the folder shares its name with a package of this project."""
    for namesake in namesakes(folder):
        raise UsageError(explain(namesake))


def _is_here(name: str) -> bool:
    place = Path.cwd() / name.partition(".")[0]
    return place.is_dir() or place.with_suffix(".py").is_file()


def hint_at(name: str | None) -> str:
    """Return advice if a module of this name in the working directory is hidden by another module, otherwise ""."""
    top = (name or "").partition(".")[0]
    imported = sys.modules.get(top)
    if imported is None or not _is_here(top):
        return ""
    place = Path.cwd() / top
    folders = [str(Path(folder).absolute()) for folder in getattr(imported, "__path__", ())]
    origin = getattr(imported, "__file__", None)
    if str(origin).startswith(str(place)) or str(place) in folders:
        return ""
    file = place.with_suffix(".py") if place.with_suffix(".py").is_file() else place
    if top in PACKAGES:
        return f" {explain(file)}"
    origin = origin or f"{top} of Python"
    return f" {file} is hidden by {origin}: rename it, for example to my_{file.name}."


def _raised(name: str, error: BaseException) -> str:
    last_line = traceback.format_exception_only(error)[-1].strip()
    if isinstance(error, HandlersError):
        last_line = str(error)
    frame = users_frame(error)
    where = "while importing" if frame is None else f"{frame.filename}:{frame.lineno}"
    if isinstance(error, SyntaxError) and error.filename:
        where = f"{error.filename}:{error.lineno}"
    hint = hint_at(error.name) if isinstance(error, ImportError) else ""
    if not hint and "circular import" in str(error):
        hint = " Two modules import each other: move the shared code into a third one."
    elif not hint and isinstance(error, ModuleNotFoundError):
        hint = " Install it, or correct the name."
    return f"The module {name} cannot be imported: {last_line} ({where}).{hint}"


def check_folder(path: str, master: str, what: str = "Outcomes", option: str = "--out") -> None:
    """Raise `NotPossibleError` if a local folder cannot be written to. `what` and `option` name it in the message."""
    if is_url(path) or not master.startswith("local"):
        return
    folder = Path(path).absolute()
    there = next(each for each in (folder, *folder.parents) if each.exists())
    problem = "" if os.access(there, os.W_OK) else f"no write permission for {there}."
    if not there.is_dir():
        problem = f"{there} is a file. Use another {option}."
    if problem:
        raise NotPossibleError(f"{what} cannot be written to {path}: {problem}")


def check_file(file: Path | None) -> None:
    """Raise `NotPossibleError` if the parent folder of a file does not exist."""
    if file is not None and not file.parent.is_dir():
        raise NotPossibleError(f"{file} cannot be written: there is no folder {file.parent}.")


def check_log(
    path: str, master: str, format_: str | None, source: str | None = None, decoding: Decoding = AS_JSON
) -> int | None:
    """Return the size of a log in bytes, or `None` if the log is not local.

    Raises `LogError` if the log cannot be read, and `UsageError` if `path` is empty or if `source`, a prefix for
    message ids, contains a colon.
    """
    from runtime.spark.logs import normalise
    from runtime.spark.logs.read import find_on_disk, is_on_disk

    normalise.check_source(source or "")
    if not path:
        raise UsageError("--messages is empty: name a file or folder.")
    if _has_topics(path, decoding) or not is_on_disk(path, master):
        return None
    return sum(Path(file).stat().st_size for file in find_on_disk([path], format_).files)


def check_source(
    folder: str, format_: str | None, master: str, written: Mapping[str, str], decoding: Decoding
) -> None:
    """Raise `LogError` or `UsageError` if `folder`, a folder or Kafka topics, cannot be the source of a stream.

    `written` maps options to the folders that the stream writes to, which must be outside the source.
    """
    from runtime.spark.logs.read import is_kafka, is_on_disk

    if is_kafka(folder) is (format_ is not None):
        raise UsageError("--format is needed for a folder, and only there: json, parquet or outcomes.")
    if _has_topics(folder, decoding):
        return
    if not is_on_disk(folder, master):
        if not set("*?[{").isdisjoint(folder):
            raise LogError(f"--source must be one folder, but {folder} is a pattern.")
        return
    if not Path(folder).is_dir():
        raise LogError(f"There is no folder {folder}: --source must be the folder that receives the files.")
    for option, other in written.items():
        if not is_url(other) and Path(other).resolve().is_relative_to(Path(folder).resolve()):
            raise LogError(
                f"{option} {other} is inside --source {folder}, whose files are all read as messages: use another "
                f"{option}."
            )


def _has_topics(log: str, decoding: Decoding) -> bool:
    """Return whether a log consists of topics of Kafka. Raises `LogError` if they cannot be read."""
    from runtime.spark.logs.read import is_kafka

    if not is_kafka(log):
        return False
    from runtime.spark.logs.kafka import KafkaLog

    KafkaLog(log, decoding).limits()
    return True


def on_table(place: TablePlace, work: Callable[[Table], Awaitable[T]]) -> T:
    """Call an async function with an existing table, and return the result of the function.

    Raises `NotPossibleError` if the SQLite file does not exist, and `TableNotFoundError` if the table does not.
    """
    store = connect(place.store)
    file = _missing_file(store)
    if file is not None:
        raise NotPossibleError(f"There is no store at {file}: `consistent run` creates one.")
    return asyncio.run(_work(store, place.table, work))


def confirm(deed: str, *, yes: bool, hint: str = ", or try --dry-run first") -> None:
    """Ask for confirmation of an irreversible action, unless `yes` is set.

    Raises `UsageError` if there is no terminal, and `typer.Abort` if the user declines.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise UsageError(f"{deed} cannot be undone: confirm with --yes{hint}.")
    typer.confirm(f"{deed} cannot be undone. Continue?", abort=True, err=True)


def require_table(place: TablePlace) -> TablePlace:
    """Return the location of a table or, after `consistent switch`, of its successor.

    Raises the errors of `on_table`.
    """

    async def name(_: Table) -> str:
        async with connect(place.store) as store:
            return (await open_current(store, place.table, make=False))[0]

    return TablePlace(place.store, on_table(place, name))


async def _work(store: Store, table_name: str, work: Callable[[Table], Awaitable[T]]) -> T:
    async with store:
        _, table = await open_current(store, table_name, make=False)
        with error_location(table):
            return await work(table)


def _missing_file(store: Store) -> Path | None:
    file = Path(store.url.removeprefix(_FILE)).absolute()
    return file if store.url.startswith(_FILE) and not file.exists() else None


def check_batch(
    app: App, states: TablePlace, options: BatchOptions, batch_id: str | None, out: str, *, must_exist: bool
) -> bool:
    """Return whether the table of a batch exists. With `must_exist`, a missing table raises `TableNotFoundError`.

    Raises `BatchRefusedError` if the batch id is invalid, if the table has another algorithm or does not fit the app,
    or if the batch was abandoned or has outcomes in another folder.
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

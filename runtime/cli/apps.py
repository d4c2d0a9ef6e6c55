"""Apps by name: from `module:attribute`, as it stands on the command line, to the App."""

from __future__ import annotations

import importlib
import sys
import traceback
from pathlib import Path
from types import ModuleType

from handlers import App, HandlersError
from runtime.blame import users_frame
from runtime.errors import AppNotFoundError, UsageError
from runtime.namesakes import PACKAGES, explain, namesakes, search_path


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

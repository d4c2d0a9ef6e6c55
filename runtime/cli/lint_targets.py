"""What `consistent lint` is to check: apps, modules, files and folders by what stands on the command line."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from handlers.lint import Target, locate
from runtime.cli.apps import check_names, load_app
from runtime.errors import UsageError

_SUFFIX = ".py"
_NOT_THE_USERS = frozenset({"node_modules", "site-packages", "__pycache__"})


def find_targets(specs: Iterable[str]) -> list[Target]:
    """Return the files that are named. Raises what `load_app` and `locate` do, and `UsageError`."""
    targets = [target for spec in specs for target in _targets(spec)]
    here = Path.cwd()
    if any(target.path.absolute().is_relative_to(here) for target in targets):
        check_names(here)
    return targets


def _targets(spec: str) -> Iterator[Target]:
    path = Path(spec)
    if path.is_dir() and not (path.name and path.with_suffix(_SUFFIX).exists()):
        yield from map(Target, _files(path))
    elif spec.endswith(_SUFFIX) or os.sep in spec:
        yield Target(path)
    elif ":" in spec:
        yield from _of_app(spec)
    elif all(part.isidentifier() for part in spec.split(".")):
        yield Target(locate(spec))
    else:
        raise UsageError(
            f"What to check is named MODULE:ATTRIBUTE, MODULE, FILE.py or by a folder, not {spec!r}."
        )


def _files(folder: Path) -> Iterator[Path]:
    found = sorted(
        path
        for path in folder.rglob(f"*{_SUFFIX}")
        if path.is_file() and not _is_left_out(path.relative_to(folder))
    )
    if not found:
        raise UsageError(f"There is no Python source in {folder}.")
    yield from found


def _is_left_out(path: Path) -> bool:
    return any(part in _NOT_THE_USERS or part.startswith(".") for part in path.parts)


def _of_app(spec: str) -> Iterator[Target]:
    for definition in load_app(spec).handlers.values():
        handler = definition.handler_type
        try:
            path = inspect.getsourcefile(handler)
        except (TypeError, OSError):
            path = None
        if path is None:
            raise UsageError(
                f"The source of {handler.__qualname__} in {spec} cannot be found, so it cannot be checked."
            )
        yield Target(Path(path), frozenset({handler.__name__}))

"""Modules of a user that have the names of this project's packages: found, explained, and searched last.

Imports only the standard library, as the command line calls `check` before it imports any package that could be hidden.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGES = ("eventstore", "handlers", "runtime", "samples")
"""The top-level packages of this project. A user's module cannot have the same name."""

HOME = Path(__file__).resolve().parents[1]
"""The folder that holds them."""


def check() -> None:
    """Exit with code 2 and one sentence if Python would import another module in place of one of these packages."""
    if sys.path[:1] in ([""], [str(Path.cwd())]):  # `python -m` puts the working directory first
        sys.path[:] = search_path(sys.path)
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            continue
        folders = list(spec.submodule_search_locations or ())
        found = Path(folders[0] if folders else str(spec.origin))
        if found.resolve() != HOME / name:
            sys.stderr.write(f"Error: {explain(found)}\n")
            sys.exit(2)


def search_path(path: Iterable[str]) -> list[str]:
    """Return Python's search path with the working directory last, where it hides nothing.

    The folder of this project's packages comes before it, because an editable installation does not add it to the path.
    """
    here = str(Path.cwd())
    return list(dict.fromkeys([entry for entry in path if entry not in ("", here)] + [str(HOME), here]))


def namesakes(folder: Path) -> Iterator[Path]:
    """Yield the modules and packages of a folder that have the name of one of this project's packages."""
    for name in PACKAGES:
        for file in (folder / name / "__init__.py", folder / f"{name}.py"):
            if file.is_file() and file.resolve().parents[1] != HOME:
                yield file if file.stem == name else file.parent


def explain(namesake: Path) -> str:
    """Return a sentence that says what to do about a module with the name of a package."""
    return (
        f"{namesake} has the name of a package of consistent-messaging ({', '.join(PACKAGES)}), and Python finds only "
        f"one of the two: rename it, for example to my_{namesake.name}."
    )

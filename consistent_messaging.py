"""The start of the command `consistent`, also as `python -m consistent_messaging`.

It makes sure that the packages of this project are not hidden by modules of the same names, and runs the command line,
`runtime.cli`. Nothing but the standard library is imported before.
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

PACKAGES = ("eventstore", "handlers", "runtime", "samples")
"""The names of this project's packages, which no module of a user's can have."""

HOME = Path(__file__).resolve().parent
"""Where they are."""

_WRONG_USAGE = 2


def main() -> None:
    """Run the command line, or say which module hides a package of this project."""
    sys.path[:] = search_path(sys.path) if _begins_here() else sys.path
    for hiding in _hiding():
        sys.stderr.write(f"Error: {explain(hiding)}\n")
        sys.exit(_WRONG_USAGE)
    from runtime.cli import main as run  # noqa: PLC0415 - only once it is certain whose it is

    run()


def search_path(path: Iterable[str]) -> list[str]:
    """Return Python's search path with the working directory last, where it hides neither Python's modules nor these.

    The folder of this project's packages comes before it: of an editable installation it is not on the path, and
    modules that are would be found first.
    """
    here = str(Path.cwd())
    return list(dict.fromkeys([entry for entry in path if entry not in ("", here)] + [str(HOME), here]))


def namesakes(folder: Path) -> Iterator[Path]:
    """Give the modules and packages of a folder that have the name of one of this project's packages."""
    for name in PACKAGES:
        for file in (folder / name / "__init__.py", folder / f"{name}.py"):
            if file.is_file() and not _is_ours(file):
                yield file if file.stem == name else file.parent


def explain(namesake: Path) -> str:
    """Return a sentence that says what to do about a module or folder with the name of a package."""
    return (
        f"{namesake} has the name of a package of consistent-messaging ({', '.join(PACKAGES)}), and Python finds only "
        f"one of the two: rename it, for example to my_{namesake.name}."
    )


def _begins_here() -> bool:
    """Say whether the path begins with the working directory, as `python -m` has it."""
    return sys.path[:1] in ([""], [str(Path.cwd())])


def _hiding() -> Iterator[Path]:
    """Give the modules that Python would import in place of this project's packages."""
    for name in PACKAGES:
        spec = importlib.util.find_spec(name)
        if spec is None:
            continue
        folders = list(spec.submodule_search_locations or ())
        found = Path(folders[0] if folders else str(spec.origin))
        if found.resolve() != HOME / name:
            yield found


def _is_ours(file: Path) -> bool:
    return file.resolve().parent.parent == HOME


if __name__ == "__main__":
    main()

"""What is a user's own: modules that have the names of this project's packages, and the lines that raise errors.

Namesakes are found, explained, and searched last.

Imports only the standard library, as the command line calls `check` before it imports any package that could be hidden.
"""

from __future__ import annotations

import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from opcode import opname
from pathlib import Path

PACKAGES = ("eventstore", "handlers", "runtime", "samples")
"""The top-level packages of this project. A user's module cannot have the same name."""

HOME = Path(__file__).resolve().parents[1]
"""The folder that holds them."""


def check() -> None:
    """Exit with code 2 and one sentence if Python would import another module in place of one of these packages."""
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        sys.stderr.write("Error: The working directory was deleted: change to one that exists.\n")
        sys.exit(2)
    if sys.path[:1] in ([""], [here]):  # `python -m` puts the working directory first
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


# Who raised an error: where in the user's own code, or somebody who wants the process to stop.
#
# The user's code is neither in this project's packages, nor in what is installed.

_OURS = tuple(f"{HOME / name}/" for name in ("eventstore", "handlers", "runtime"))
_PYTHONS = f"{sysconfig.get_path('stdlib')}/"
_INSTALLED = ("/site-packages/", "/dist-packages/")


def users_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost line of the user's code in the trace of an error, None when there is none."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame for frame in reversed(frames) if _is_users(frame.filename)), None)


def is_from_outside(error: BaseException) -> bool:
    """Say whether somebody has interrupted the process, which code that raises the same error has not."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    # For a signal the interpreter raises between any two instructions.
    instruction = opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]]
    return instruction not in {"RAISE_VARARGS", "RERAISE"}


def _is_users(file: str) -> bool:
    # A virtual environment may be in Python's folder, and a project in a virtual environment's.
    if file.startswith("<frozen") or any(name in file for name in _INSTALLED):
        return False
    return not file.startswith((*_OURS, _PYTHONS))

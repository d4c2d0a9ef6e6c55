"""Find user modules that share a name with this project's packages, and user code in tracebacks.

Imports only the standard library, because the command line calls `check` before any package that could be hidden.
"""

import importlib.util
import sys
import sysconfig
import traceback
from collections.abc import Iterable, Iterator
from opcode import opname
from pathlib import Path

# The top-level packages of this project, whose names users' modules must not have.
PACKAGES = ("eventstore", "handlers", "runtime", "samples")

HOME = Path(__file__).resolve().parents[1]  # the folder that contains them


def check() -> None:
    """Exit with code 2 if Python would import a user's module instead of a package of this project."""
    try:
        here = str(Path.cwd())
    except FileNotFoundError:
        sys.stderr.write("Error: The working directory was deleted: change to an existing one.\n")
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
    """Return a search path of Python, with this project's folder and the working directory last."""
    here = str(Path.cwd())
    # An editable installation does not add the project's folder to the path.
    return list(dict.fromkeys([entry for entry in path if entry not in ("", here)] + [str(HOME), here]))


def namesakes(folder: Path) -> Iterator[Path]:
    """Yield the modules and packages in a folder that share a name with a package of this project."""
    for name in PACKAGES:
        for file in (folder / name / "__init__.py", folder / f"{name}.py"):
            if file.is_file() and file.resolve().parents[1] != HOME:
                yield file if file.stem == name else file.parent


def explain(namesake: Path) -> str:
    """Return the error message for a module that shares its name with a package."""
    return (
        f"{namesake} has the same name as a package of consistent-messaging ({', '.join(PACKAGES)}), so Python can "
        f"import only one of them: rename it, for example to my_{namesake.name}."
    )


# The user's code is neither in this project's packages nor installed.

_OURS = tuple(f"{HOME / name}/" for name in ("eventstore", "handlers", "runtime"))
_PYTHONS = f"{sysconfig.get_path('stdlib')}/"
_INSTALLED = ("/site-packages/", "/dist-packages/")


def users_frame(error: BaseException) -> traceback.FrameSummary | None:
    """Return the innermost traceback entry in the user's own code, or None if all entries are in libraries."""
    frames = traceback.extract_tb(error.__traceback__)
    return next((frame for frame in reversed(frames) if _is_users(frame.filename)), None)


def is_from_outside(error: BaseException) -> bool:
    """Return whether the error is a `KeyboardInterrupt` from a signal, not one raised by code."""
    if not isinstance(error, KeyboardInterrupt):
        return False
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return True
    # The interpreter raises for a signal between any two instructions, code only at a raise.
    instruction = opname[trace.tb_frame.f_code.co_code[trace.tb_lasti]]
    return instruction not in {"RAISE_VARARGS", "RERAISE"}


def _is_users(file: str) -> bool:
    # A virtual environment may be inside Python's folder, and a project inside a virtual environment's.
    if file.startswith("<frozen") or any(name in file for name in _INSTALLED):
        return False
    return not file.startswith((*_OURS, _PYTHONS))

"""`consistent init`: a project that works, to begin with."""

from __future__ import annotations

import os
import re
import shlex
from pathlib import Path
from typing import Annotated

import typer

from runtime.cli.console import Screen
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson
from runtime.errors import UsageError


def init(
    name: Annotated[
        str, typer.Argument(metavar="NAME", show_default=False, help="The folder of the project, a new one.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Write a project that works: a handler with tests, a message log, consistent.toml, pyproject.toml, a CI workflow.

        consistent init raffle

    In its folder the tests pass, and `consistent run raffle.jsonl` runs the log. A file that is there is not replaced.
    """
    if not name.strip():
        raise UsageError("Name the folder of the project: consistent init NAME.")
    folder = Path(name)
    project = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    if not project:
        raise UsageError(f"A project has ASCII letters or digits in its name, unlike {name!r}.")
    if folder.exists() and not folder.is_dir():
        raise NotPossibleError(f"{folder} is a file: name a new folder.")
    files = template(project)
    for file in files:
        if os.path.lexists(folder / file):
            raise NotPossibleError(f"{folder / file} is there already: name a new folder.")
    try:
        for file in files:
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
        for file, text in files.items():
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotPossibleError(f"{error.filename} cannot be written: {error.strerror}.") from error
    steps = [
        f"cd {shlex.quote(name)}",
        "pytest",
        "consistent run raffle.jsonl",
        "consistent show Raffle spring",
    ]
    Screen(as_json).put(
        {"folder": str(folder), "files": list(files)},
        f"Wrote {', '.join(files)}. Go on with:",
        *(f"  {step}" for step in steps),
    )


def template(project: str) -> dict[str, str]:
    """Return the files of a project of this name."""
    text = Path(__file__).with_name("project.txt").read_text(encoding="utf-8").replace("PROJECT", project)
    return dict(part.split("\n", 1) for part in text.split("=== ")[1:])

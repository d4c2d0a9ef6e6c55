"""`consistent init`: create a project."""

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
        str, typer.Argument(metavar="NAME", show_default=False, help="The new folder of the project.")
    ],
    *,
    as_json: AsJson = False,
) -> None:
    """Create a project: a handler with tests, a message log, consistent.toml, pyproject.toml and a CI workflow.

        consistent init raffle

    In its folder the tests pass, and `consistent run raffle.jsonl` runs the log. Never overwrites files.
    """
    if not name.strip():
        raise UsageError("The project needs a name: consistent init NAME.")
    folder = Path(name)
    project = re.sub(r"[^a-z0-9]+", "-", folder.resolve().name.lower()).strip("-")
    if not project:
        raise UsageError(f"The name {name!r} of the project must contain ASCII letters or digits.")
    if folder.exists() and not folder.is_dir():
        raise NotPossibleError(f"{folder} is a file: use a new folder.")
    files = template(project)
    for file in files:
        if os.path.lexists(folder / file):
            raise NotPossibleError(f"{folder / file} exists: use a new folder.")
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
        f"Wrote {', '.join(files)}. Next:",
        *(f"  {step}" for step in steps),
    )


def template(project: str) -> dict[str, str]:
    """Return the content of each file of a new project, by path."""
    text = Path(__file__).with_name("project.txt").read_text(encoding="utf-8").replace("PROJECT", project)
    return dict(part.split("\n", 1) for part in text.split("=== ")[1:])

"""`consistent init` and `consistent config`: create a project, and show the values of its options."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime.cli.console import Screen, make_table
from runtime.cli.failures import NotPossibleError
from runtime.cli.options import AsJson, argument, of_environment
from runtime.cli.project import TARGETS, Command, Schema, read_project, schema
from runtime.errors import UsageError
from runtime.options import is_secret

if TYPE_CHECKING:
    from runtime.cli.options import Declared
    from runtime.cli.project import Project


def init(
    name: Annotated[str, argument("NAME", "The new folder of the project.")],
    *,
    as_json: AsJson = False,
) -> None:
    """Create a project: a handler with tests, a message log, consistent.toml, pyproject.toml and a CI workflow.

        consistent init raffle

    In the new folder, the tests pass, and `consistent run raffle.jsonl` runs the log. Never overwrites files.
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
        for file, text in files.items():
            (folder / file).parent.mkdir(parents=True, exist_ok=True)
            (folder / file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise NotPossibleError(f"{error.filename} cannot be written: {error.strerror}.") from error
    wrote = f"Wrote {', '.join(files)}. Next:"
    steps = (
        f"  cd {shlex.quote(name)}",
        "  pytest",
        "  consistent run raffle.jsonl",
        "  consistent show Raffle spring",
    )
    Screen(as_json).put({"folder": str(folder), "files": list(files)}, wrote, *steps)


def template(project: str) -> dict[str, str]:
    """Return the content of each file of a new project, by path."""
    text = Path(__file__).with_name("project.txt").read_text(encoding="utf-8").replace("PROJECT", project)
    return dict(part.split("\n", 1) for part in text.split("=== ")[1:])


def config(
    ctx: typer.Context,
    words: Annotated[list[str] | None, argument("[COMMAND [OPTIONS]]", "Show only its options.")] = None,
    *,
    env: str | None = of_environment(),
    as_json: AsJson = False,
) -> None:
    """Show the value of each option of the project, and the source of the value.

        consistent config
        consistent config run --env prod

    The sources, in order of precedence: command line, environment variable, the selected environment of the project
    file, the project file (consistent.toml, or [tool.consistent] of pyproject.toml, searched from the working directory
    upwards), and the default. Secrets are hidden.
    """
    root: Any = ctx.find_root().command
    command, rest = root, list(words or ())
    while rest and not rest[0].startswith("-") and hasattr(command, "commands"):
        ctx = typer.Context(command, info_name=rest[0], parent=ctx)
        _, command, rest = command.resolve_command(ctx, rest)
    known = dict(schema(root))
    project = read_project(ctx, env)
    given: dict[str, Any] = {}
    target = None
    inner = typer.Context(command, info_name=command.name, parent=ctx)
    if isinstance(command, Command):
        given, left, _ = command.make_parser(inner).parse_args(args=rest)
        log = command.log(inner, given, left)
        if left and not log:
            inner.fail(f"Got unexpected extra argument ({left[0]})")
        given |= log
        of_target, target = command.target(project, given)
        if target is not None:  # its URL is in the file
            given.pop(of_target, None)
        known = {
            (each.group or "", each.key): (each, parameter)
            for each, parameter in command.options()
            if command.counts(each, given)
        }
    rows = list(_rows(project, known, inner, given, target))
    shown = []
    for row in rows:
        value = row["value"]
        text = ", ".join(value) if isinstance(value, list) else "" if value is None else str(value)
        if text:
            shown.append((row["key"], text.lower() if isinstance(value, bool) else text, row["from"]))
    Screen(as_json).put({"values": rows}, make_table("Values", ("option", "value", "from"), shown))


def _rows(
    project: Project,
    known: Schema,
    ctx: Any,  # noqa: ANN401 - untyped in typer
    given: Mapping[str, Any],
    target: str | None,
) -> Iterator[dict[str, Any]]:
    """Yield the key, value and source of each option. Those of targets: for `target` or, if None, for each target."""
    for (group, key), (declared, parameter) in sorted(known.items(), key=lambda each: each[0][0]):
        names: list[str | None] = [target] if group != TARGETS or target else [*project.targets] or [None]
        for name in names:
            entry = project.find(declared, name)
            ctx.default_map = {} if entry is None else {parameter.name: entry.value}
            value, source = parameter.consume_value(ctx, given)
            if source.name in ("COMMANDLINE", "ENVIRONMENT"):
                parameter.process_value(ctx, value)  # raises the errors of the command itself
            origins = {"COMMANDLINE": "command line", "ENVIRONMENT": declared.variable}
            origins["DEFAULT_MAP"] = entry and entry.origin
            of_target = name if group == TARGETS and name else None
            yield {
                "key": ".".join(filter(None, (group, of_target, key))),
                "value": _shown(declared, value),
                "from": origins.get(source.name, "default"),
            }


def _shown(declared: Declared, value: object) -> object:
    """Return the value of an option with secrets hidden. References such as `env:NAME` are shown."""
    if isinstance(value, list):
        return [_shown(declared, each) for each in value]
    if not isinstance(value, str):
        return value
    name, equals, content = value.partition("=")
    is_pair = declared.is_many and equals
    is_hidden = is_pair and not declared.field.repr and not content.startswith(("env:", "file:"))
    if is_secret(value) or is_hidden:
        return f"{name}=..." if is_pair else "..."
    return value

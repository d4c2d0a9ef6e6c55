"""`consistent config`: show the values of options and their sources."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime.cli.batch_command import is_secret
from runtime.cli.console import Screen, make_table
from runtime.cli.options import AsJson, of_environment
from runtime.cli.project import TARGETS, Command, Schema, read_project, schema

if TYPE_CHECKING:
    from runtime.cli.options import Declared
    from runtime.cli.project import Project


def config(
    ctx: typer.Context,
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[COMMAND [OPTIONS]]", show_default=False, help="Show the options of this command."
        ),
    ] = None,
    *,
    env: str | None = of_environment(),
    as_json: AsJson = False,
) -> None:
    """Show the value of each option of the project, and its source.

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
    columns = {"key": "option", "value": "value", "from": "from"}
    shown = []
    for row in rows:
        value = row["value"]
        text = ", ".join(value) if isinstance(value, list) else "" if value is None else str(value)
        if text:
            shown.append(row | {"value": text.lower() if isinstance(value, bool) else text})
    Screen(as_json).put({"values": rows}, make_table("Values", columns, shown))


def _rows(
    project: Project,
    known: Schema,
    ctx: Any,  # noqa: ANN401 - untyped in typer
    given: Mapping[str, Any],
    target: str | None,
) -> Iterator[dict[str, Any]]:
    """Yield a row for each option. Options of targets have a row for each target."""
    for (group, key), (declared, parameter) in sorted(known.items(), key=lambda each: each[0][0]):
        names: list[str | None] = [target] if group != TARGETS or target else [*project.targets] or [None]
        for name in names:
            entry = project.find(declared, name)
            ctx.default_map = {} if entry is None else {parameter.name: entry.value}
            value, source = parameter.consume_value(ctx, given)
            if source.name in ("COMMANDLINE", "ENVIRONMENT"):
                parameter.process_value(ctx, value)  # validates like the command itself
            origins = {"COMMANDLINE": "command line", "ENVIRONMENT": declared.variable}
            origins["DEFAULT_MAP"] = entry and entry.origin
            of_target = name if group == TARGETS and name else None
            yield {
                "key": ".".join(filter(None, (group, of_target, key))),
                "value": _shown(declared, value),
                "from": origins.get(source.name, "default"),
            }


def _shown(declared: Declared, value: object) -> object:
    """Return a value with secrets hidden. References such as `env:NAME` are not secret."""
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

"""The command line as typer knows it: each command and its help text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from runtime.cli.commands.config import config
from runtime.cli.commands.dead_letters import discard, letters, redrive
from runtime.cli.commands.demo import demo
from runtime.cli.commands.export import export, import_
from runtime.cli.commands.forget import forget
from runtime.cli.commands.init import init
from runtime.cli.commands.lint import lint
from runtime.cli.commands.outcomes import batches, outcomes
from runtime.cli.commands.publish import publish
from runtime.cli.commands.run import run, stream, tokens
from runtime.cli.commands.show import show, streams
from runtime.cli.commands.stats import sql, stats
from runtime.cli.commands.sweep import evict, sweep
from runtime.cli.commands.truncate import list_policies, remove_policy, set_policy, truncate
from runtime.cli.commands.verify import check, verify
from runtime.cli.console import results
from runtime.cli.options import with_options
from runtime.cli.project import Command

_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # typer's tables break urls, defaults and examples at 80 columns
    "context_settings": {"help_option_names": ["--help", "-h"]},
}
_HELP = (
    "Make the effect of each message happen exactly once, however often and late it is delivered.\n\n"
    "Start with `consistent demo`, or `consistent init NAME`.\n\n"
    "Exit code 0: done; 1: failed; 2: asked for wrongly; 3: too many dead letters."
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        try:
            version = metadata.version("consistent-messaging")
        except metadata.PackageNotFoundError:
            version = "(not installed)"
        results().print(f"consistent-messaging {version}")
        raise typer.Exit


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None: ...


class Commands(TyperGroup):
    """Commands in panels; an old name is answered with the new one."""

    def format_commands(self, _: Any, formatter: Any) -> None:  # noqa: ANN401 - typer shows no types for them
        """Write a section for each panel."""
        width = formatter.width - 6 - max(map(len, self.commands))
        for panel, names in _PANELS.items():
            rows = [(name, self.commands[name].get_short_help_str(width)) for name in names]
            with formatter.section(panel):
                formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Find the command that is named first."""
        if args[0] in RENAMED:
            ctx.fail(f"`consistent {args[0]}` is `consistent {RENAMED[args[0]]}` now.")
        return super().resolve_command(ctx, args)


class ListFirst(TyperGroup):
    """A group whose command `list` is meant where none is named."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Put `list` before what names no command."""
        if not args or args[0] not in [*self.commands, *ctx.help_option_names]:
            args = ["list", *args]
        return super().parse_args(ctx, args)


application = typer.Typer(help=_HELP, cls=Commands, **_SETTINGS)
application.callback()(_options)


def _add(app: typer.Typer, name: str, command: Callable[..., None]) -> None:
    """Add a command with its help, in which examples are marked as not to be wrapped."""
    text = inspect.cleandoc(command.__doc__ or "")
    first = text.partition("\n\n")[0].replace("\n", " ")
    marked = re.sub(r"(?<=\n\n)(?=    )", "\b\n", text)
    settings = {"ignore_unknown_options": command is config}  # they are those of the command that it shows
    app.command(name, cls=Command, help=marked, short_help=first, context_settings=settings)(
        with_options(command)
    )


_COMMANDS = (
    init,
    demo,
    lint,
    config,
    run,
    stream,
    tokens,
    publish,
    outcomes,
    batches,
    streams,
    show,
    stats,
    sql,
    verify,
    check,
    truncate,
    sweep,
    evict,
    forget,
    export,
    import_,
)
for _command in _COMMANDS:
    _add(application, _command.__name__.rstrip("_"), _command)

_GROUPS: tuple[tuple[str, type[TyperGroup], str, dict[str, Callable[..., None]]], ...] = (
    (
        "letters",
        ListFirst,
        "List dead letters, deliveries that were refused; redrive or discard them.",
        {"list": letters, "redrive": redrive, "discard": discard},
    ),
    (
        "policy",
        TyperGroup,
        "Keep in the table what may be cut of its streams.",
        {"set": set_policy, "list": list_policies, "remove": remove_policy},
    ),
)
for _group, _kind, _text, _verbs in _GROUPS:
    _of_group = typer.Typer(help=_text, cls=_kind, **{**_SETTINGS, "no_args_is_help": _kind is not ListFirst})
    for _name, _verb in _verbs.items():
        _add(_of_group, _name, _verb)
    application.add_typer(_of_group, name=_group)

_PANELS = {
    "Write handlers": ("init", "demo", "lint", "config"),
    "Run": ("run", "stream", "tokens", "publish"),
    "Look": ("outcomes", "batches", "letters", "streams", "show", "stats", "sql"),
    "Check": ("verify", "check"),
    "Clean up": ("truncate", "policy", "sweep", "evict", "forget"),
    "Move": ("export", "import"),
}
RENAMED = {
    "deliver": "publish",
    "discard": "letters discard",
    "redrive": "letters redrive",
    "sample": "demo --log-only",
    "window": "sql @window",
}
"""What to type for commands of earlier versions."""

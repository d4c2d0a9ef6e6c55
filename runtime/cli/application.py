"""The typer application: all commands, with their help texts."""

import inspect
import os
import re
from collections.abc import Callable
from difflib import get_close_matches
from importlib import metadata
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from runtime.cli.commands.dead_letters import discard, letters, redrive
from runtime.cli.commands.demo import demo
from runtime.cli.commands.explore import explore
from runtime.cli.commands.export import export, import_
from runtime.cli.commands.forget import forget
from runtime.cli.commands.lint import lint
from runtime.cli.commands.outcomes import batches, outcomes
from runtime.cli.commands.project import config, init
from runtime.cli.commands.publish import publish
from runtime.cli.commands.reprocess import fork, reprocess, switch
from runtime.cli.commands.run import run, stream, tokens
from runtime.cli.commands.serve import serve
from runtime.cli.commands.show import show
from runtime.cli.commands.sql import sql
from runtime.cli.commands.truncate import truncate
from runtime.cli.commands.verify import check, verify
from runtime.cli.console import Screen, results
from runtime.cli.options import CHOSEN, OF_EVENTS, with_options
from runtime.cli.project import Command, schema

_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # typer's tables break URLs, defaults and examples at 80 columns
    "context_settings": {"help_option_names": ["--help", "-h"]},
}
_HELP = (
    "Make each message take effect exactly once, however often and late it is delivered.\n\n"
    "Start with `consistent demo`, or `consistent init NAME`.\n\n"
    "Exit codes: 0 success, 1 failure, 2 usage error, 3 too many dead letters."
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
    """Lists commands in panels, names the successors of renamed ones, and warns about unknown environment variables."""

    def format_commands(self, _: Any, formatter: Any) -> None:  # noqa: ANN401 - untyped in typer
        """Write the help: one section for each panel of commands."""
        width = formatter.width - 6 - max(map(len, self.commands))
        for panel, commands in _PANELS.items():
            rows = [(name, self.commands[name].get_short_help_str(width)) for name in map(_name, commands)]
            with formatter.section(panel):
                formatter.write_dl(rows)

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:  # noqa: ANN401
        """Find the command. For the old name of a command, fails and names the new one.

        Warns about each environment variable `CONSISTENT_*` that no option reads.
        """
        known = {option.variable or "" for _, (option, _) in schema(self)} | {CHOSEN, OF_EVENTS}
        for name in sorted(os.environ.keys() - known):
            if name.startswith("CONSISTENT_"):
                near = get_close_matches(name, known, 1)
                hint = f" Did you mean {near[0]}?" if near else ""
                Screen().note(f"Warning: {name} is ignored, because no option has this variable.{hint}")
        if args[:2] == ["tokens", "issue"]:
            ctx.fail("`consistent tokens issue` was renamed: use `consistent tokens`.")
        if args[0] in RENAMED:
            ctx.fail(f"`consistent {args[0]}` was renamed: use `consistent {RENAMED[args[0]]}`.")
        return super().resolve_command(ctx, args)


class ListFirst(TyperGroup):
    """A group whose default command is `list`."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:  # noqa: ANN401
        """Insert `list` before the arguments if they name no command."""
        if args and not args[0].startswith("-") and args[0] not in self.commands:
            ctx.fail(f"No such command {args[0]!r}: use one of {', '.join(self.commands)}.")
        if not args or args[0] not in [*self.commands, *ctx.help_option_names]:
            args = ["list", *args]
        return super().parse_args(ctx, args)


application = typer.Typer(help=_HELP, cls=Commands, **_SETTINGS)
application.callback()(_options)


def _add(app: typer.Typer, name: str, command: Callable[..., None]) -> None:
    text = inspect.cleandoc(command.__doc__ or "")
    first = text.partition("\n\n")[0].replace("\n", " ")
    # A line with \b tells click not to wrap the example below.
    marked = re.sub(r"(?<=\n\n)(?=    )", "\b\n", text)
    settings = {"ignore_unknown_options": command is config}  # of another command, which it shows
    register = app.command(name, cls=Command, help=marked, short_help=first, context_settings=settings)
    register(with_options(command))


_PANELS: dict[str, tuple[Callable[..., None], ...]] = {
    "Write handlers": (init, demo, lint, config),
    "Run": (run, stream, serve, tokens, publish),
    "Look": (explore, outcomes, batches, letters, show, sql),
    "Check": (verify, check),
    "Correct": (reprocess, switch, fork),
    "Clean up": (truncate, forget),
    "Move": (export, import_),
}


def _name(command: Callable[..., None]) -> str:
    return command.__name__.rstrip("_")


for _command in (each for commands in _PANELS.values() for each in commands if each is not letters):
    _add(application, _name(_command), _command)

_HELP_OF_LETTERS = "List, redrive or discard dead letters."
_letters = typer.Typer(help=_HELP_OF_LETTERS, cls=ListFirst, **{**_SETTINGS, "no_args_is_help": False})
for _below, _verb in (("list", letters), ("redrive", redrive), ("discard", discard)):
    _add(_letters, _below, _verb)
application.add_typer(_letters, name="letters", short_help=_HELP_OF_LETTERS)

# The successors of commands of earlier versions.
RENAMED = {
    "deliver": "publish",
    "discard": "letters discard",
    "evict": "truncate --algorithm outbox",
    "policy": "truncate --policy",
    "redrive": "letters redrive",
    "sample": "demo --log-only",
    "stats": "show --stats`, and for queries `consistent sql @stats",
    "streams": "show",
    "sweep": "truncate --only documents`, and of outboxes `consistent run --unfinished AGE",
    "window": "sql @window",
}

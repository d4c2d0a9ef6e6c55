"""The command line as typer knows it: each command and its help text."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib import metadata
from typing import Annotated, Any

import typer

from runtime.cli.commands.batches import batches
from runtime.cli.commands.check import check
from runtime.cli.commands.demo import demo
from runtime.cli.commands.discard import discard
from runtime.cli.commands.evict import evict
from runtime.cli.commands.export import export
from runtime.cli.commands.forget import forget
from runtime.cli.commands.import_ import import_
from runtime.cli.commands.letters import letters
from runtime.cli.commands.lint import lint
from runtime.cli.commands.outcomes import outcomes
from runtime.cli.commands.policy import list_policies, remove_policy, set_policy
from runtime.cli.commands.publish import publish
from runtime.cli.commands.redrive import redrive
from runtime.cli.commands.run import run
from runtime.cli.commands.sample import shooting_range
from runtime.cli.commands.show import show
from runtime.cli.commands.sql import sql
from runtime.cli.commands.stats import stats
from runtime.cli.commands.stream import stream
from runtime.cli.commands.streams import streams
from runtime.cli.commands.sweep import sweep
from runtime.cli.commands.tokens import issue
from runtime.cli.commands.truncate import truncate
from runtime.cli.commands.verify import verify
from runtime.cli.commands.window import window
from runtime.cli.console import results
from runtime.cli.grouping import with_groups
from runtime.cli.parsing import OnceOnly

_SETTINGS: dict[str, Any] = {
    "no_args_is_help": True,
    "pretty_exceptions_enable": False,
    "rich_markup_mode": None,  # typer's tables break urls, defaults and examples at 80 columns
    "context_settings": {"help_option_names": ["--help", "-h"]},
}
_HELP = (
    "Make the effect of each message happen exactly once, however often and late it is delivered.\n\n"
    "Start with `consistent demo`. Exit code 0: done; 1: failed; 2: asked for wrongly; 3: too many dead letters."
)


def _print_version(is_asked: bool) -> None:
    if is_asked:
        results().print(f"consistent-messaging {_version()}")
        raise typer.Exit


def _version() -> str:
    try:
        return metadata.version("consistent-messaging")
    except metadata.PackageNotFoundError:
        return "(not installed)"


def _options(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_print_version, is_eager=True, help="Show the version and exit."),
    ] = False,
) -> None: ...


def _texts(command: Callable[..., None]) -> dict[str, Any]:
    """Return the help of a command, with its examples marked as not to be wrapped, and the first sentence of it."""
    text = inspect.cleandoc(command.__doc__ or "")
    first = text.partition("\n\n")[0].replace("\n", " ")
    return {"help": re.sub(r"(?<=\n\n)(?=    )", "\b\n", text), "short_help": first}


application = typer.Typer(help=_HELP, **_SETTINGS)
application.callback()(_options)

_COMMANDS = (
    demo,
    lint,
    run,
    stream,
    outcomes,
    publish,
    letters,
    redrive,
    discard,
    batches,
    truncate,
    window,
    verify,
    streams,
    show,
    stats,
    sql,
    check,
    sweep,
    evict,
    export,
    import_,
    forget,
)

for _command in _COMMANDS:
    application.command(_command.__name__.rstrip("_"), cls=OnceOnly, **_texts(_command))(
        with_groups(_command)
    )

_samples = typer.Typer(help="Write a message log to try things with.", **_SETTINGS)
_samples.command("shooting-range", **_texts(shooting_range))(shooting_range)
application.add_typer(_samples, name="sample")

_tokens = typer.Typer(help="Give messages that come from outside the tokens they need.", **_SETTINGS)
_tokens.command("issue", cls=OnceOnly, **_texts(issue))(with_groups(issue))
application.add_typer(_tokens, name="tokens")

_policies = typer.Typer(help="Keep in the table what may be cut of its streams.", **_SETTINGS)
for _name, _verb in (("set", set_policy), ("list", list_policies), ("remove", remove_policy)):
    _policies.command(_name, cls=OnceOnly, **_texts(_verb))(with_groups(_verb))
application.add_typer(_policies, name="policy")

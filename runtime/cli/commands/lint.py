"""`consistent lint`: finds nondeterministic code in the source of handlers."""

from __future__ import annotations

import inspect
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated

import typer

from handlers.lint import RULES, Report, SourceError, Target, check, locate
from runtime.cli.checks import check_names, load_app
from runtime.cli.console import Screen, counted, make_table
from runtime.cli.options import AsJson
from runtime.errors import UsageError

# What `consistent lint` is to check: apps, modules, files and folders by what stands on the command line.

_SUFFIX = ".py"
_NOT_THE_USERS = frozenset({"node_modules", "site-packages", "__pycache__"})


def find_targets(specs: Iterable[str]) -> list[Target]:
    """Return the files that are named. Raises what `load_app` and `locate` do, and `UsageError`."""
    targets = [target for spec in specs for target in _targets(spec)]
    here = Path.cwd()
    if any(target.path.absolute().is_relative_to(here) for target in targets):
        check_names(here)
    return targets


def _targets(spec: str) -> Iterator[Target]:
    path = Path(spec)
    if path.is_dir() and not (path.name and path.with_suffix(_SUFFIX).exists()):
        yield from map(Target, _files(path))
    elif spec.endswith(_SUFFIX) or os.sep in spec:
        yield Target(path)
    elif ":" in spec:
        yield from _of_app(spec)
    elif all(part.isidentifier() for part in spec.split(".")):
        yield Target(locate(spec))
    else:
        raise UsageError(
            f"What to check is named MODULE:ATTRIBUTE, MODULE, FILE.py or by a folder, not {spec!r}."
        )


def _files(folder: Path) -> Iterator[Path]:
    found = sorted(
        path
        for path in folder.rglob(f"*{_SUFFIX}")
        if path.is_file() and not _is_left_out(path.relative_to(folder))
    )
    if not found:
        raise UsageError(f"There is no Python source in {folder}.")
    yield from found


def _is_left_out(path: Path) -> bool:
    return any(part in _NOT_THE_USERS or part.startswith(".") for part in path.parts)


def _of_app(spec: str) -> Iterator[Target]:
    for definition in load_app(spec).handlers.values():
        handler = definition.handler_type
        try:
            path = inspect.getsourcefile(handler)
        except (TypeError, OSError):
            path = None
        if path is None:
            raise UsageError(
                f"The source of {handler.__qualname__} in {spec} cannot be found, so it cannot be checked."
            )
        yield Target(Path(path), frozenset({handler.__name__}))


FOUND = 1

Targets = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TARGET",
        show_default=False,
        help="MODULE:ATTRIBUTE for the handlers of an App, which is imported; MODULE, FILE.py or a folder for all "
        "handlers, states and messages in there, which are not.",
    ),
]
WithRules = Annotated[bool, typer.Option("--rules", help="List the rules, and check nothing.")]

_COLUMNS = ("code", "name", "why", "use instead")


def lint(targets: Targets = None, *, rules: WithRules = False, as_json: AsJson = False) -> None:
    """Find nondeterministic code in the source of handlers.

        consistent lint samples.shooting_range:app
        consistent lint orders/handlers.py --json

    Clocks, random numbers, environment, files, network, threads, identities, the order of sets, data kept between
    messages, and mutations of state or message: each with its place, the calls that lead there, and what to use
    instead. Calls are followed into your own modules, not into installed ones.

    A comment `# noqa: CODE reason` silences a rule on its line. Exit code 0: nothing found; 1: something found;
    2: wrong arguments, source that cannot be read, or an app, module or folder without handlers.
    """
    screen = Screen(as_json)
    if rules:
        _list_rules(screen)
        return
    if not targets:
        raise UsageError(
            "Name what to check: MODULE:ATTRIBUTE like samples.shooting_range:app, MODULE, or FILE.py."
        )
    try:
        report = check(find_targets(targets))
    except SourceError as error:
        raise UsageError(str(error)) from error
    if not report.handlers and not all(target.endswith(".py") for target in targets):
        raise UsageError(f"There is no handler in {', '.join(targets)}: name the module that defines it.")
    screen.give(report.document())
    screen.show(*map(str, (*report.findings, *report.notes)), _summary(report))
    if report.findings:
        raise typer.Exit(FOUND)


def _list_rules(screen: Screen) -> None:
    rules = RULES.values()
    screen.give(
        {
            "rules": [
                {"code": rule.code, "name": rule.name, "why": rule.why, "instead": rule.instead}
                for rule in rules
            ]
        }
    )
    screen.show(
        make_table("Rules", _COLUMNS, ((rule.code, rule.name, rule.why, rule.instead) for rule in rules))
    )


def _summary(report: Report) -> str:
    found = counted(len(report.findings), "finding") if report.findings else "Nothing found"
    where = f"{counted(report.handlers, 'handler')}, {counted(report.files, 'file')}"
    notes = f", {counted(len(report.notes), 'note')}" if report.notes else ""
    return f"{found}{notes} in {where}."

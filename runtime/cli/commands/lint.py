"""`consistent lint`: finds nondeterministic code in the source of handlers."""

from __future__ import annotations

from typing import Annotated

import typer

from handlers.lint import RULES, Report, SourceError, check
from runtime.cli.console import Screen
from runtime.cli.lint_targets import find_targets
from runtime.cli.options import AsJson
from runtime.cli.reports.tables import counted, make_table
from runtime.errors import UsageError

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

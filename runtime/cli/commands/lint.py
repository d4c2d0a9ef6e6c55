"""`consistent lint`: find nondeterministic code in handlers."""

import inspect
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from handlers.lint import RULES, SourceError, Target, check, locate
from runtime.cli.checks import check_names, load_app
from runtime.cli.console import Screen, counted, make_table
from runtime.cli.failures import FAILED
from runtime.cli.options import AsJson, argument
from runtime.errors import UsageError
from runtime.options import flag, option


def lint(
    targets: Annotated[
        list[str] | None,
        argument(
            "TARGET",
            "MODULE:ATTRIBUTE for the handlers of an App, which is imported; MODULE, FILE.py or a folder for all "
            "handlers, states and messages in it, without importing them.",
        ),
    ] = None,
    *,
    app: str = option("The App to check without a TARGET.", default="", metavar="MODULE:ATTRIBUTE", group=""),
    rules: bool = flag("Only list the rules."),
    notes: bool = flag("Print all notes, including draws that senders could predict."),
    as_json: AsJson = False,
) -> None:
    """Find nondeterministic code in the source of handlers.

        consistent lint samples.shooting_range:app
        consistent lint orders/handlers.py --json

    Finds clocks, random numbers, environment, files, network, threads, identities, the order of sets, data kept between
    messages, and mutations of state or message: each with its location, the calls that lead there, and an alternative.
    Follows calls into your own modules, not into installed ones.

    A comment `# noqa: CODE reason` silences a rule on its line. Exit codes: 0 no findings, 1 findings, 2 usage error,
    unreadable source, or no handlers.
    """
    screen = Screen(as_json)
    if rules:
        columns = {"code": "code", "name": "name", "why": "why", "instead": "use instead"}
        rows = [{name: getattr(rule, name) for name in columns} for rule in RULES.values()]
        screen.put({"rules": rows}, make_table("Rules", columns, rows))
        return
    targets = targets or ([app] if app else [])
    if not targets:
        raise UsageError("The target is missing: use MODULE:ATTRIBUTE, MODULE, FILE.py or a folder.")
    here = Path.cwd()
    try:
        files = [found for each in targets for found in _targets(each)]
        if any(file.path.absolute().is_relative_to(here) for file in files):
            check_names(here)
        report = check(files)
    except SourceError as error:
        raise UsageError(str(error)) from error
    if not report.handlers and not all(target.endswith(".py") for target in targets):
        raise UsageError(f"There is no handler in {', '.join(targets)}: use the module that defines it.")
    found = counted(len(report.findings), "finding") if report.findings else "Nothing found"
    where = f"{counted(report.handlers, 'handler')}, {counted(report.files, 'file')}"
    shown = [each for each in report.notes if notes or each.rule.code != "CM206"]  # predictable draws
    noted = f", {counted(len(shown), 'note')}" if shown else ""
    screen.put(report.document(), *map(str, (*report.findings, *shown)), f"{found}{noted} in {where}.")
    if report.findings:
        raise typer.Exit(FAILED)


def _targets(spec: str) -> Iterator[Target]:
    path = Path(spec)
    if path.is_dir() and not (path.name and path.with_suffix(".py").exists()):
        # Installed, cached and hidden code is not the user's.
        hidden = re.compile(r"(^|/)(node_modules|site-packages|__pycache__|\.[^/]*)/|(^|/)\.[^/]*$")
        found = (file for file in path.rglob("*.py") if not hidden.search(str(file.relative_to(path))))
        files = sorted(filter(Path.is_file, found))
        if not files:
            raise UsageError(f"There is no Python source in {path}.")
        yield from map(Target, files)
    elif spec.endswith(".py") or os.sep in spec:
        yield Target(path)
    elif ":" in spec:
        for definition in load_app(spec).handlers.values():
            handler = definition.handler_type
            try:
                file = inspect.getsourcefile(handler)
            except (TypeError, OSError):
                file = None
            if file is None:
                raise UsageError(f"The source of {handler.__qualname__} in {spec} cannot be found.")
            yield Target(Path(file), frozenset({handler.__name__}))
    elif all(part.isidentifier() for part in spec.split(".")):
        yield Target(locate(spec))
    else:
        raise UsageError(f"A target must be MODULE:ATTRIBUTE, MODULE, FILE.py or a folder, not {spec!r}.")

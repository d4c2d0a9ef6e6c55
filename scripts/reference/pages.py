"""The pages of the reference. They are made from the code whenever the site is built, and are not committed."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from scripts.reference import commands_page, errors_page, handlers_page, outcomes_page, settings_page

_INDEX = """\
# Reference

What there is, made from the code when this site was built.

| page | what it lists |
|---|---|
| [Handlers](handlers.md) | types of fields, what `by` takes, the context, what can be captured, rules of the linter |
| [Commands](commands/index.md) | a page with the help of each command |
| [JSON output](json.md) | names and types of the documents that `--json` prints |
| [Outcomes](outcomes.md) | columns, [statuses](outcomes.md#statuses) and [reasons](outcomes.md#reasons) |
| [Errors](errors.md) | each class of error: its meaning, what to do, and its sentences |
| [Settings](settings.md) | environment variables, files, Spark's settings |
| [Python API](python.md) | public names, with their docstrings |

Elsewhere are:

- the [columns of a log](../message-logs.md#columns), and [statuses and reasons](../statuses.md);
- [exit codes](../cli.md#exit-codes);
- the [urls of stores](../event-store.md#urls);
- the [extras](../installation.md) of the package.
"""
_PYTHON = """\
# Python API

What is public, module by module, with its docstrings. What is not listed here may change in any version. The pages
[Determinism](../determinism.md), [Testing handlers](../testing.md), [Operations](../operations.md) and
[The event store](../event-store.md) show how it is used.
"""
_MODULES = (
    "handlers",
    "handlers.testing",
    "handlers.guard",
    "runtime",
    "runtime.explore",
    "runtime.publishing",
    "runtime.serve",
    "runtime.spark",
    "runtime.tables",
    "eventstore",
    "eventstore.sync",
)

PAGES: Mapping[str, Callable[[], str]] = {
    "index.md": lambda: _INDEX,
    "handlers.md": handlers_page.write,
    **commands_page.pages(),
    "errors.md": errors_page.write,
    "outcomes.md": outcomes_page.write,
    "settings.md": settings_page.write,
    # mkdocstrings puts names, signatures and docstrings there.
    "python.md": lambda: _PYTHON + "".join(f"\n## {module}\n\n::: {module}\n" for module in _MODULES),
}

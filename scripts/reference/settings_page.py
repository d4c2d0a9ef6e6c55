"""The page on what can be set outside the code: environment variables, files and Spark's settings."""

from __future__ import annotations

from collections.abc import Iterator

import typer.main

from runtime.batch_options import STORE_VARIABLE, TABLE_VARIABLE
from runtime.cli.application import application
from runtime.cli.failures import DEFAULT as LOG_FILE
from runtime.cli.project import TARGETS, schema
from runtime.publishing import publisher as deliveries
from runtime.spark.session import SETTINGS
from scripts.reference.markdown import code, page, table

_INTRODUCTION = """\
Options of commands may stand in the [project file](../project.md#the-project-file), under the keys below.
"""
_SPARK = """\
## Spark

A batch sets these for its own time, on any session, and gives the session its own again. Others are the session's:
`build_session(settings={...})`.
"""
_VARIABLES = (
    (STORE_VARIABLE, "the store, when `--store` is left out; see the [urls](../event-store.md#urls)"),
    (TABLE_VARIABLE, "the table, when `--table` is left out"),
    ("any name", "as `env:NAME` in place of a store's url; read once, in the driver's process"),
    (
        "JAVA_HOME",
        "the Java that Spark runs on, if it is 17 or 21; otherwise the one on the PATH or in the usual folders",
    ),
    ("CONSISTENT_LOG_FORMAT", "`json` for [events](../monitoring.md#logs) as lines of JSON"),
    ("COLUMNS", "how wide tables are, when the output is no terminal"),
    (
        deliveries.AT_LEAST_ONCE,
        "for [functions](../publishing.md#a-function-of-your-own): customers of at least once, with commas; `*`: all",
    ),
    (" or ".join(deliveries.LOCK_LIMIT), "for deliveries: after how many milliseconds a lock is given up"),
    (
        deliveries.TTL,
        "for deliveries: a JSON object of customers and the seconds for which their keys are kept",
    ),
)


def write() -> str:
    """Return the page."""
    return page(
        "Settings",
        _INTRODUCTION,
        "## Environment variables",
        table(["variable", "what it sets"], [[_names(name), text] for name, text in _VARIABLES]),
        f"## Files\n\n{code(LOG_FILE)} in the working directory takes what Spark prints and traces of unexpected\n"
        "errors; `--log-file` names another.",
        "## Keys of the project file",
        table(["key", "variable", "what it sets"], list(_keys())),
        _SPARK,
        table(["setting", "value"], [[code(name), code(value)] for name, value in SETTINGS.items()]),
    )


def _keys() -> Iterator[list[str]]:
    """Yield the keys of the project file, by their tables."""
    known = dict(schema(typer.main.get_command(application)))
    for (group, key), (declared, parameter) in sorted(known.items()):
        table_of = f"{group}.NAME" if group == TARGETS else group
        variable = code(declared.variable) if declared.variable else "none"
        yield [code(".".join(filter(None, (table_of, key)))), variable, parameter.help]


def _names(text: str) -> str:
    return text if text == "any name" else " or ".join(map(code, text.split(" or ")))

"""Tables, all in one look, and the texts of times and states in them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from rich import box
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from runtime.cli.visible import visible_line
from runtime.clock import to_datetime

NOTHING = "-"

_LOOK: dict[str, Any] = {
    "show_edge": False,
    "pad_edge": False,
    "padding": (0, 1, 0, 0),
}

Cell = str | int | datetime | Text | None


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 run, 2 runs."""
    return f"{number:,} {noun if number == 1 else _plural(noun)}"


def make_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[Cell]]) -> RenderableType:
    """Return a table below its title; columns of numbers stand to the right."""
    rows = list(rows)
    table = Table(box=box.SIMPLE_HEAD, **_LOOK)
    for number, name in enumerate(columns):
        are_numbers = any(isinstance(row[number], int) for row in rows)
        table.add_column(Text(name), justify="right" if are_numbers else "left", overflow="fold")
    for row in rows:
        table.add_row(*map(_cell, row))
    return _titled(title, table)


def make_facts(title: str, facts: Iterable[tuple[str, Cell]]) -> RenderableType:
    """Return names and values below a title."""
    table = Table(box=None, show_header=False, **_LOOK)
    table.add_column(style="dim")
    table.add_column(overflow="fold")
    for name, value in facts:
        table.add_row(Text(visible_line(name)), _cell(value))
    return _titled(title, table)


def moment_cell(microseconds: int | None) -> datetime | None:
    """Return a time in microseconds for a table."""
    return None if microseconds is None else to_datetime(microseconds)


def moment_text(microseconds: int | None) -> str | None:
    """Return a time in microseconds as ISO 8601 in UTC."""
    return None if microseconds is None else iso(to_datetime(microseconds))


def iso(moment: datetime) -> str:
    """Return a UTC time as ISO 8601."""
    return moment.isoformat().replace("+00:00", "Z")


def compact_json(value: Any) -> str:  # noqa: ANN401 - any JSON value
    """Return JSON on one line, for a cell."""
    return json.dumps(value, ensure_ascii=False)


def _titled(title: str, table: Table) -> RenderableType:
    return Group(Text(visible_line(title), style="bold"), table)


def _cell(value: Cell) -> Text:
    if value is None:
        return Text(NOTHING, style="dim")
    if isinstance(value, Text):
        return value
    if isinstance(value, bool):
        return Text("yes" if value else "no")
    if isinstance(value, datetime):
        return Text(value.isoformat(" ", "milliseconds").removesuffix("+00:00"))
    return Text(f"{value:,}" if isinstance(value, int) else visible_line(value))


def _plural(noun: str) -> str:
    first, space, rest = noun.partition(" ")
    if first.endswith("ry"):
        return f"{first[:-1]}ies{space}{rest}"
    return f"{first}{'es' if first.endswith('ch') else 's'}{space}{rest}"

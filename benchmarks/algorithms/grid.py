"""Tables of text, as Markdown and on the terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rich.console import Console
from rich.table import Column, Table

_WIDTH = 150


class Grid(NamedTuple):
    """The titles of the columns, and rows of as many cells."""

    titles: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        """Return the table as it stands in a document, with an empty line before and after."""
        lines = [self.titles, ["---"] * len(self.titles), *self.rows]
        return "\n" + "".join(f"| {' | '.join(cells)} |\n" for cells in lines) + "\n"

    def print(self) -> None:
        """Print the table for a reader at the terminal."""
        first, *others = map(_plain, self.titles)
        table = Table(Column(first, no_wrap=True), *others)
        for cells in self.rows:
            table.add_row(*map(_plain, cells))
        Console(width=_WIDTH, highlight=False, markup=False).print(table)


def amount(number: float) -> str:
    """Return a number of requests, rows or runs: a whole one, unless messages of a kind differ in it."""
    return f"{number:.0f}" if number == round(number) else f"{number:.2f}"


def about(stored_bytes: float) -> str:
    """Return a number of bytes in two digits: ids and times are compressed a little better or worse."""
    return f"{round(float(f'{stored_bytes:.2g}')):,}"


def _plain(cell: str) -> str:
    return cell.replace("`", "")

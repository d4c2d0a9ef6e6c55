"""`consistent export`: a whole table as files."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from runtime.cli.console import Screen
from runtime.cli.counting import RowCount
from runtime.cli.failures import exports_need
from runtime.cli.options import AsJson, StoreUrl, TableName
from runtime.cli.reports.tables import counted
from runtime.cli.stores import on_table

if TYPE_CHECKING:
    from runtime.archives.manifest import Manifest

Target = Annotated[
    Path,
    typer.Option(
        "--to",
        metavar="DIR",
        file_okay=False,
        show_default=False,
        help="The folder for the files, which is made, or is empty.",
    ),
]


def export(*, store: StoreUrl, table: TableName, to: Target, as_json: AsJson = False) -> None:
    r"""Copy a whole table into Parquet files: all rows, of streams, ledger, letters, tokens and all else.

        consistent export --store sqlite:///store.db --table games \
            --to games-export

    `consistent import` writes them into another table, of any store. The files are read back, and the export counts
    only if nobody wrote to the table meanwhile. Two requests for each 1,000 rows. Stopped at any moment it is no
    export; run it again to begin anew.
    """
    try:
        from runtime.archives.exporting import export_table
    except ModuleNotFoundError as error:
        raise exports_need(error) from error
    with RowCount() as progress:
        manifest = on_table(store, table, lambda opened: export_table(opened, table, to, progress.tell))
    screen = Screen(as_json)
    screen.give(describe(manifest, to))
    screen.show(
        f"Exported {counted(manifest.rows, 'row')} of {table} to {to}, in {counted(len(manifest.files), 'file')} of "
        f"{manifest.bytes:,} bytes, with the digest {manifest.digest}."
    )


def describe(manifest: Manifest, folder: Path) -> dict[str, Any]:
    """Return a manifest for JSON."""
    return {"folder": str(folder), "bytes": manifest.bytes, **asdict(manifest)}

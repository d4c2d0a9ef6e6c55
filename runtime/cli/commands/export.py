"""`consistent export` and `consistent import`: a whole table as files, and back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from eventstore import connect
from eventstore.keys import table_name as check_name
from runtime.cli.checks import on_table
from runtime.cli.console import Screen, StepProgress, counted, notes
from runtime.cli.failures import exports_need
from runtime.cli.options import AsJson, StoreUrl, TableName

if TYPE_CHECKING:
    from runtime.archives.tables import Manifest


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
        from runtime.archives.tables import export_table
    except ModuleNotFoundError as error:
        raise exports_need(error) from error
    with StepProgress(notes(), keep_steps=False) as progress:
        manifest = on_table(store, table, lambda opened: export_table(opened, table, to, progress.show_rows))
    screen = Screen(as_json)
    screen.give(_described(manifest, to))
    screen.show(
        f"Exported {counted(manifest.rows, 'row')} of {table} to {to}, in {counted(len(manifest.files), 'file')} of "
        f"{manifest.bytes:,} bytes, with the digest {manifest.digest}."
    )


def _described(manifest: Manifest, folder: Path) -> dict[str, Any]:
    return {"folder": str(folder), "bytes": manifest.bytes, **manifest.document()}


# `consistent import`: a whole table from files.

Origin = Annotated[
    Path,
    typer.Option(
        "--from",
        metavar="DIR",
        file_okay=False,
        show_default=False,
        help="The folder that `consistent export` wrote.",
    ),
]


def import_(*, from_: Origin, store: StoreUrl, table: TableName, as_json: AsJson = False) -> None:
    """Write an exported table into a table that is empty, which is made if it is not there.

        consistent import --from games-export --store azurite --table games

    All files are verified before anything is written, and all rows are read back afterwards. Stopped at any moment it
    goes on where it was when it is run again. One transaction for each 100 rows of a partition, one request more for
    each 1,000 rows.
    """
    try:
        from runtime.archives.tables import read_manifest
    except ModuleNotFoundError as error:
        raise exports_need(error) from error
    check_name(table)
    connect(store)
    manifest = read_manifest(from_)
    with StepProgress(notes(), keep_steps=False) as progress:
        asyncio.run(_import(store, table, from_, manifest, progress))
    screen = Screen(as_json)
    screen.give(_described(manifest, from_))
    screen.show(
        f"Imported {counted(manifest.rows, 'row')} of {manifest.table} into {table}, with the digest {manifest.digest}."
    )


async def _import(store: str, name: str, folder: Path, manifest: Manifest, progress: StepProgress) -> None:
    from runtime.archives.tables import check_files, import_table

    check_files(folder, manifest, progress.show_rows)
    async with connect(store) as opened:
        await import_table(await opened.table(name), name, folder, manifest, progress.show_rows)

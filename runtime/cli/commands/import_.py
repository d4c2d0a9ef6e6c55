"""`consistent import`: a whole table from files."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from eventstore import connect
from eventstore.backends.naming import table_name as check_name
from runtime.cli.commands.export import describe
from runtime.cli.console import Screen
from runtime.cli.counting import RowCount
from runtime.cli.failures import exports_need
from runtime.cli.options import AsJson, StoreUrl, TableName
from runtime.cli.reports.tables import counted

if TYPE_CHECKING:
    from runtime.archives.manifest import Manifest

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
        from runtime.archives.manifest import read_manifest
    except ModuleNotFoundError as error:
        raise exports_need(error) from error
    check_name(table)
    connect(store)
    manifest = read_manifest(from_)
    with RowCount() as progress:
        asyncio.run(_import(store, table, from_, manifest, progress))
    screen = Screen(as_json)
    screen.give(describe(manifest, from_))
    screen.show(
        f"Imported {counted(manifest.rows, 'row')} of {manifest.table} into {table}, with the digest {manifest.digest}."
    )


async def _import(store: str, name: str, folder: Path, manifest: Manifest, progress: RowCount) -> None:
    from runtime.archives.exporting import check_files
    from runtime.archives.importing import import_table

    check_files(folder, manifest, progress.tell)
    async with connect(store) as opened:
        await import_table(await opened.table(name), name, folder, manifest, progress.tell)

"""`consistent export` and `consistent import`: copy a whole table to files and back."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eventstore import connect
from eventstore.keys import table_name as check_name
from runtime.batch_options import TablePlace
from runtime.cli.checks import on_table
from runtime.cli.console import Screen, StepProgress, counted, notes
from runtime.cli.failures import needing
from runtime.cli.options import AsJson
from runtime.options import REQUIRED, option

if TYPE_CHECKING:
    from runtime.archives.tables import Manifest


def export(
    *,
    states: TablePlace,
    to: Path = option("The folder for the files, new or empty.", default=REQUIRED, file_okay=False),
    as_json: AsJson = False,
) -> None:
    r"""Copy a whole table to Parquet files: streams, ledger, dead letters, tokens and all other rows.

        consistent export --store sqlite:///store.db --table games \
            --to games-export

    `consistent import` writes the files to another table, in any store. The files are read back, and the export is
    valid only if the table did not change meanwhile. Costs two requests for each 1,000 rows. An interrupted export is
    invalid: run it again from the start.
    """
    with needing("Exports need"):
        from runtime.archives.tables import export_table
    name = states.table
    with StepProgress(notes(), keep_steps=False) as progress:
        manifest = on_table(states, lambda opened: export_table(opened, name, to, progress.show_rows))
    files = f"{counted(len(manifest.files), 'file')} of {manifest.bytes:,} bytes"
    said = f"Exported {counted(manifest.rows, 'row')} of {name} to {to}, in {files}, with the digest {manifest.digest}."
    Screen(as_json).put(_described(manifest, to), said)


def import_(
    *,
    from_: Path = option("A folder written by `consistent export`.", default=REQUIRED, file_okay=False),
    states: TablePlace,
    as_json: AsJson = False,
) -> None:
    """Import an exported table into an empty table, which is created if necessary.

        consistent import --from games-export --store azurite --table games

    All files are verified before anything is written, and all rows are read back afterwards. An interrupted import
    resumes when it is run again. Costs one transaction for each 100 rows of a partition, and one request for each 1,000
    rows.
    """
    with needing("Exports need"):
        from runtime.archives.tables import check_files, import_table, read_manifest
    check_name(states.table)
    connect(states.store)  # rejects an invalid URL early
    manifest = read_manifest(from_)

    async def import_all() -> None:
        check_files(from_, manifest, progress.show_rows)
        async with connect(states.store) as opened:
            table = await opened.table(states.table)
            await import_table(table, states.table, from_, manifest, progress.show_rows)

    with StepProgress(notes(), keep_steps=False) as progress:
        asyncio.run(import_all())
    rows, digest = counted(manifest.rows, "row"), manifest.digest
    said = f"Imported {rows} of {manifest.table} into {states.table}, with the digest {digest}."
    Screen(as_json).put(_described(manifest, from_), said)


def _described(manifest: Manifest, folder: Path) -> dict[str, Any]:
    written = manifest.document()
    del written["format"]
    return {"folder": str(folder), "bytes": manifest.bytes, **written}

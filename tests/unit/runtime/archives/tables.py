"""Tables with rows of all kinds, to be exported."""

from datetime import UTC, datetime
from pathlib import Path
from uuid import UUID

from eventstore import Int64, Operation, Row, Table, Value
from runtime.archives.tables import (
    Manifest,
    all_pages,
    check_files,
    export_table,
    import_table,
    packed_row,
    read_manifest,
)

EVERY_TYPE: dict[str, Value] = {
    "Text": "Grüße\0'\"\u2028",
    "Empty": "",
    "Yes": True,
    "No": False,
    "Small": -7,
    "One": 1,
    "Large": Int64(2**62),
    "SmallLarge": Int64(1),
    "Float": 1.0,
    "Odd": float("inf"),
    "Time": datetime(1601, 1, 1, 0, 0, 0, 1, tzinfo=UTC),
    "Late": datetime(9999, 12, 31, 23, 59, 59, 999_999, tzinfo=UTC),
    "Id": UUID(int=7),
    "Nothing": b"",
    "Bytes": bytes(range(256)),
}


async def fill(table: Table) -> None:
    """Write rows of every type, keys that are escaped, a partition of several transactions, and large rows."""
    await table.transact("every/type", [Operation.insert("a?b", EVERY_TYPE), Operation.insert("none", {})])
    for start in range(0, 230, 100):
        some = range(start, min(start + 100, 230))
        await table.transact("many", [Operation.insert(f"r{number:03}", {"N": number}) for number in some])
    for number in range(12):
        large = {f"Data{part}": bytes([number + part]) * 60_000 for part in range(5)}
        await table.transact("large", [Operation.insert(f"{number}", large)])


def ignore(_step: str, _rows: int) -> None:
    """Be told nothing."""


async def read_all(table: Table) -> list[Row]:
    return [row async for page in all_pages(table) for row in page.rows]


async def packed(table: Table) -> set[bytes]:
    """Return all rows with the types of their properties, without ETags."""
    return {packed_row(row) for row in await read_all(table)}


async def exported(table: Table, folder: Path) -> Manifest:
    return await export_table(table, "games", folder, ignore)


async def imported(table: Table, folder: Path) -> None:
    manifest = read_manifest(folder)
    check_files(folder, manifest, ignore)
    await import_table(table, "other", folder, manifest, ignore)

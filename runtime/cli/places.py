"""Where tables are, as the options of commands say it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from eventstore import connect

if TYPE_CHECKING:
    from runtime.spark.connection import TablePlace


def evidence_place(
    store: str, table: str, evidence_store: str | None, evidence_table: str | None, master: str
) -> TablePlace | None:
    """Return where the evidence is, None where it is with the states.

    Raises `UsageError` when the workers of a master would not see one of the stores as this process does.
    """
    from runtime.spark.connection import TablePlace, check_scope

    for url in (store, evidence_store or store):
        check_scope(connect(url).scope, master)
    place = TablePlace(evidence_store or store, evidence_table or table)
    return None if place == TablePlace(store, table) else place

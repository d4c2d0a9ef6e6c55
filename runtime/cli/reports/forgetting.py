"""What `consistent forget` says: of each object what there was, and what names it and stays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from runtime.cleanup.traces import Trace
from runtime.cli.reports.tables import Cell, make_table, moment_cell, moment_text

_COLUMNS = ("business id", "versions", "messages", "rows", "forgotten before")


def document(
    handler: str, traces: Mapping[str, Trace], files: Mapping[Path, int], *, restart: bool, dry_run: bool
) -> dict[str, Any]:
    """Return what `--json` gives."""
    objects = [
        {"business_id": business_id, **asdict(trace), "forgotten_at": moment_text(trace.forgotten_at)}
        for business_id, trace in traces.items()
    ]
    return {
        "dry_run": dry_run,
        "restart": restart,
        "handler": handler,
        "objects": objects,
        "files": [{"file": str(path), "rows": rows} for path, rows in files.items()],
    }


def parts(handler: str, traces: Mapping[str, Trace], files: Mapping[Path, int]) -> list[Any]:
    """Return tables of the objects, and of the files that name them."""
    shown: list[Any] = []
    if traces:
        shown.append(make_table(f"Objects of {handler}", _COLUMNS, map(_row, traces.items())))
    if files:
        named = [(str(path), rows) for path, rows in files.items()]
        shown.append(make_table("Files that name them, which stay as they are", ("file", "rows"), named))
    return shown


def documents_part(names: Sequence[str], *, deleted: bool) -> list[Any]:
    """Return a table of documents, if there are any."""
    title = "Documents" if deleted else "Documents that stay, as no --documents says where they are"
    return [make_table(title, ("name",), [(name,) for name in names])] if names else []


def _row(named: tuple[str, Trace]) -> tuple[Cell, ...]:
    business_id, trace = named
    rows = ", ".join(f"{count:,} {kind}" for kind, count in trace.rows.items())
    return business_id, trace.versions, trace.messages, rows or None, moment_cell(trace.forgotten_at)

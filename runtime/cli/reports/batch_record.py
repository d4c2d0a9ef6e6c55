"""A batch of the ledger, for people and for machines."""

from __future__ import annotations

from typing import Any

from runtime.batches.record import BatchRecord
from runtime.cli.reports.tables import counted, iso

_OUTPUTS = "outputs"


def describe(record: BatchRecord) -> dict[str, Any]:
    """Return a batch for JSON."""
    return {
        "batch_id": record.batch_id,
        "number": record.number,
        "status": record.status.value,
        "algorithm": record.algorithm,
        "rounds": record.rounds,
        "started_at": iso(record.started_at),
        "updated_at": iso(record.updated_at),
        "counts": dict(sorted(record.counts.items())),
        "out": record.out,
        "input": record.input,
    }


def counts_text(record: BatchRecord) -> str:
    """Return the counts of a batch in one line."""
    return ", ".join(
        counted(count, "output") if name == _OUTPUTS else f"{count:,} {name.replace('_', ' ')}"
        for name, count in sorted(record.counts.items())
        if count
    )

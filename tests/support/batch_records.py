"""Batches as the ledger has them, made without one."""

from datetime import UTC, datetime
from pathlib import Path

from runtime.ledger.ledger import BatchRecord, BatchStatus

NOW = datetime(2026, 3, 1, tzinfo=UTC)


def started(out: Path | str, token: str = "token") -> BatchRecord:
    return BatchRecord("night", "", str(out), token, BatchStatus.STARTED, 0, NOW, NOW, {})

"""Rows that stand for themselves: each is read, by the key of its partition and its own.

What such a row says is told nowhere else in the table, but for what its key repeats.
"""

from __future__ import annotations

import re

from eventstore import Row
from runtime.algorithms.last_hop import keys as deliveries
from runtime.algorithms.letters import of_table as letters
from runtime.algorithms.outbox import tokens
from runtime.algorithms.outbox.deduplication_store import check_processed
from runtime.algorithms.row_keys import FIRST as PROCESSED
from runtime.archives import MARK as IMPORT
from runtime.batches.open_batches import OpenBatches
from runtime.cleanup import lease, policies
from runtime.documents.registrations import MARKER, PREFIX, read_registration
from runtime.errors import StoredDataError, UsageError
from runtime.storage.damage import reading_row
from runtime.storage.properties import number, text

ISSUED = "_issued"
"""The partition of the logs that have their tokens."""

_CHAIN = re.compile("[A-Za-z0-9-]{1,64}")
_TOKEN = re.compile("[A-Za-z0-9-]{1,64}-[A-Za-z_][A-Za-z0-9_]*")
_DIGEST = re.compile("[0-9a-f]{32}")


def check_row(row: Row) -> None:
    """Raise `StoredDataError` for a row that cannot be read, or that cannot stand where it does.

    Partitions and rows of others are none of ours.
    """
    key = row.partition_key
    if key in _CHECKS:
        _CHECKS[key](row)
        return
    for beginning, check in _BEGINNINGS.items():
        if key.startswith(beginning):
            check(row)
            return
    if "-" in key and row.row_key.startswith(PROCESSED):
        check_processed(row)
    elif "-" in key and row.row_key.startswith(PREFIX):
        read_registration(row)


def is_beside(row_key: str) -> bool:
    """Say whether a row may stand in the partition of a business object, for itself."""
    return row_key == MARKER or row_key.startswith((PROCESSED, PREFIX))


def _check_policy(row: Row) -> None:
    policy = policies.read_policy(row)
    try:
        if policy.rules is not None:
            policy.rules.as_of(policy.set_at, OpenBatches())
    except UsageError as error:
        raise _misplaced(row, f"holds rules that make no sense: {error}") from error


def _check_lease(row: Row) -> None:
    if row.row_key != lease.ROW_KEY:
        raise _misplaced(row, "is no lease")
    lease.read_lease(row)


def _check_issued(row: Row) -> None:
    with reading_row("The log that has its tokens", row):
        text(row.properties, "Out")
    if not _DIGEST.fullmatch(row.row_key):
        raise _misplaced(row, "is named after no log")


def _check_import(row: Row) -> None:
    with reading_row("The mark of an import", row):
        text(row.properties, "Digest"), number(row.properties, "Rows"), number(row.properties, "Files")


def _check_token(row: Row) -> None:
    chain = row.partition_key.removeprefix(tokens.PARTITION)
    if not _CHAIN.fullmatch(chain) or not _TOKEN.fullmatch(row.row_key):
        raise _misplaced(row, "is no token of a handler")
    used = row.properties.get(tokens.USED, True)
    if used is not True or not row.properties.keys() <= {tokens.USED}:
        raise _misplaced(row, "says of a token what none says")


def _check_delivery(row: Row) -> None:
    if row.row_key.startswith(PROCESSED):
        deliveries.read_key(row)
    elif row.row_key.startswith(deliveries.RECORD):
        deliveries.read_record(row)
    else:
        raise _misplaced(row, "is neither the key of a delivery nor the record of one")


def _misplaced(row: Row, problem: str) -> StoredDataError:
    return StoredDataError(problem, row.row_key, row.partition_key)


_CHECKS = {
    letters.PARTITION: letters.check_letter,
    policies.PARTITION: _check_policy,
    lease.PARTITION: _check_lease,
    ISSUED: _check_issued,
    IMPORT: _check_import,
}
_BEGINNINGS = {
    tokens.PARTITION: _check_token,
    deliveries.PARTITION: _check_delivery,
}

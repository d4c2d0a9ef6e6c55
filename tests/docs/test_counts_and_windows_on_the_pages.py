"""Figures on counts and windows are those of the code."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

import pytest

from eventstore import Int64
from eventstore.limits import row_bytes
from eventstore.port import Row
from runtime.maintenance.statistics import SHARES
from tests.docs.pages import text


def test_the_shares_are_those_of_the_code():
    assert SHARES == (1.0, 0.99, 0.9, 0.5, 0.1)
    said = " ".join(text("docs/operations.md").split())
    assert "in all streams, in 99 %, 90 %, half and a tenth of those that were cut" in said


@pytest.mark.parametrize(
    ("kind", "value", "size"),
    [
        ("text", "abc", 4 + 2 * 3),
        ("binary", b"abc", 4 + 3),
        ("int64, double, datetime", Int64(1), 8),
        ("int64, double, datetime", 1.5, 8),
        ("int64, double, datetime", datetime(2026, 1, 1, tzinfo=UTC), 8),
        ("int32", 1, 4),
        ("guid", UUID(int=1), 16),
        ("boolean", True, 1),
    ],
)
def test_bytes_are_counted_as_the_page_on_storage_says(kind, value, size):
    (said,) = [
        line.split("|")[2] for line in text("docs/storage.md").splitlines() if line.startswith(f"| {kind} |")
    ]
    assert said.split(",")[0].strip() in {"4", str(size)}

    # 4, two keys of one character, 8 for the property and two for its name
    assert row_bytes(Row("p", "r", "", {"N": value})) == 4 + 2 * 2 + 8 + 2 + size

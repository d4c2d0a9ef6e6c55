"""Workers that publish are killed before their calls: nothing is lost, and what is repeated is what was promised."""

from __future__ import annotations

import pytest

from tests.publishing.cases import AT_LEAST_ONCE, FunctionCase, SqliteCase
from tests.publishing.kills import CHUNK, Counts
from tests.publishing.spark_kills import kill_workers_everywhere

pytestmark = pytest.mark.thorough


def test_to_sqlite_each_output_is_written_once(spark, tmp_path):
    found = kill_workers_everywhere(spark, SqliteCase(tmp_path / "target.db"), tmp_path, every=9)

    assert found.kills >= 2
    assert found.counts == Counts()


def test_at_least_once_loses_nothing_and_repeats_a_chunk_at_most(spark, tmp_path):
    case = FunctionCase(tmp_path / "sent", AT_LEAST_ONCE)

    found = kill_workers_everywhere(spark, case, tmp_path, every=12)

    assert found.kills >= 2
    assert (found.counts.lost, found.counts.disorder) == (0, 0)
    assert found.counts.duplicates <= found.kills * CHUNK

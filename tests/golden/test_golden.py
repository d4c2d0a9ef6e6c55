"""What must not change: names, errors, exit codes, requests, and what comes of logs that are kept."""

from pathlib import Path

import pytest

from tests.golden.files import ALL, difference


@pytest.mark.parametrize("name", sorted(set(ALL) - {"batches"}))
def test_it_is_as_it_was(name: str, tmp_path: Path):
    assert (found := difference(name, ALL[name](tmp_path))) == "", found


@pytest.mark.thorough
def test_batches_are_as_they_were(spark, tmp_path: Path):
    from tests.golden.batches import batches

    assert (found := difference("batches", batches(spark, tmp_path))) == "", found

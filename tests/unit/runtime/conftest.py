"""Properties are tried without a deadline: how long an example takes depends on what else the machine does."""

import pytest
from hypothesis import settings

from eventstore import Table
from runtime.versions import limits
from tests.unit.runtime.tables import memory_table

settings.register_profile("without a deadline", deadline=None)
settings.load_profile("without a deadline")


@pytest.fixture
def no_tail(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let each commit become a run of its own, however few versions it has."""
    monkeypatch.setattr(limits, "MAX_SEGMENT_BYTES", 0)


@pytest.fixture
def table() -> Table:
    return memory_table()

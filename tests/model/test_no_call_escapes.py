"""Every call of a table in the explored sources is a crash point: one that is added cannot escape."""

import pytest

from runtime.algorithms.state_based import algorithm as state_based
from tests.model.histories import Site
from tests.model.quick import QUICK, report_of
from tests.model.sources import ROOT, calls_in, shipped

SOURCES = {
    "runtime/algorithms/algorithm.py": (),
    "runtime/algorithms/outbox/entity.py": (),
    "runtime/publishing/keys.py": ("forget_expired", "unended", "weaknesses", "open_redis"),
    "runtime/algorithms/outbox/stores.py": ("issue", "add", "find"),
    "runtime/versions/index.py": (),
    "runtime/documents/protocol.py": (),
    "runtime/ledger/ledger.py": ("abandon", "decide", "prune", "_settle"),
    "eventstore/reading.py": ("read_header", "read_first_rows"),
    "eventstore/writing.py": ("delete",),
}
"""The modules that call a table or Redis, and their functions that the explored code does not use.

Tokens are issued, and the ledger is asked whether a batch may begin, before anything goes wrong; they are found again
when an object is forgotten. Which attempt at a round counts is decided beside files, which the model does not have:
`tests/unit/spark/test_putting_a_round_in_place.py` stops a driver at each of those steps, and lets another one overtake
it.
"""

CALL_NO_TABLE = [
    "runtime/processor.py",
    "runtime/documents/protocol.py",
    "runtime/versions/stream.py",
    "runtime/algorithms/state_based/truncation.py",
    "runtime/algorithms/outbox/algorithm.py",
    "runtime/algorithms/outbox/variants.py",
    "eventstore/reading.py",
    "eventstore/appending.py",
]


@pytest.fixture(scope="module")
def crash_points() -> set[Site]:
    return {site for number in QUICK for sites in report_of(number).crash_points for site in shipped(sites)}


@pytest.mark.parametrize("module", SOURCES)
def test_each_call_of_a_table_is_explored_with_a_crash(module, crash_points):
    calls = calls_in(module, leave_out=SOURCES[module])

    assert calls <= crash_points
    assert calls or SOURCES[module]


def test_publishing_is_a_call_too():
    publishing = "runtime/algorithms/algorithm.py"
    lines = (ROOT / publishing).read_text().splitlines()
    calls = {lines[line - 1].strip() for _, line in calls_in(publishing)}

    assert calls == {"await table.barrier()", "await publish(output)"}


@pytest.mark.parametrize("module", [*CALL_NO_TABLE, state_based.__name__.replace(".", "/") + ".py"])
def test_the_other_modules_call_no_table_themselves(module):
    assert not calls_in(module)

"""Every call of a table in the explored sources is a crash point: one that is added cannot escape."""

import pytest

from runtime.algorithms.state_based import algorithm as state_based
from tests.model.histories import Site
from tests.model.quick import QUICK, report_of
from tests.model.sources import ROOT, calls_in, shipped

SOURCES = {
    "runtime/algorithms/algorithm.py": (),
    "runtime/algorithms/outbox/entity.py": (),
    "runtime/algorithms/outbox/variants.py": ("TokenBased.known_elsewhere",),
    "runtime/algorithms/outbox/stores.py": ("TokenStore.add", "TokenStore.find"),
    "runtime/publishing/keys.py": ("TableKeys.unended", "TableKeys.forget_expired", "RedisKeys.unended"),
    "runtime/versions/index.py": (),
    "runtime/documents/protocol.py": (),
    "runtime/ledger/ledger.py": (
        "Numbering.newest",
        "Numbering.records",
        "Numbering.past",
        "Ledger.decide",
        "Ledger.prune",
    ),
    "eventstore/reading.py": ("read_header",),
    "eventstore/writing.py": ("_version_of", "delete"),
}
"""The modules that call a table or Redis, and their functions that the explored code does not use.

- `known_elsewhere` waits for a barrier only when a copy carries another token than the original, which no scenario
  delivers: `tests/unit/runtime/algorithms/test_tokens.py` does, and kills the worker at each step.
- Tokens are issued (`TokenStore.add`) before their message is sent, and are found again when an object is forgotten.
- `unended` and `forget_expired` serve the operator: they list keys, and delete those that are too old to matter.
- `Numbering.newest` and `records` list batches for people. `past` and `prune` delete what is left of batches that have
  ended long ago.
- Which attempt at a round counts is decided (`Ledger.decide`) beside files, which the model does not have:
  `tests/unit/spark/test_commit.py` stops a driver at each of those steps, and lets another one
  overtake it.
- `read_header`, `delete` and `_version_of`, which recognises a repeated write, are parts of the event store that no
  algorithm uses: it reads the header with the newest versions in one query, recognises messages itself, and truncates
  streams, but never deletes one.
"""

CALL_NO_TABLE = [
    "runtime/processor.py",
    "runtime/versions/stream.py",
    "runtime/algorithms/state_based/truncation.py",
    "runtime/algorithms/outbox/algorithm.py",
    "runtime/publishing/last_hop.py",
]


@pytest.fixture(scope="module")
def crash_points() -> set[Site]:
    return {site for number in QUICK for sites in report_of(number).crash_points for site in shipped(sites)}


@pytest.mark.parametrize("module", SOURCES)
def test_each_call_of_a_table_is_explored_with_a_crash(module, crash_points):
    calls = calls_in(module, leave_out=SOURCES[module])

    assert calls <= crash_points
    assert calls or SOURCES[module]


@pytest.mark.parametrize(
    ("module", "function"), [(module, each) for module, functions in SOURCES.items() for each in functions]
)
def test_what_is_left_out_calls_a_table_and_is_not_explored(module, function, crash_points):
    left_out = calls_in(module) - calls_in(module, leave_out=[function])

    assert left_out
    assert not left_out & crash_points


def test_publishing_is_a_call_too():
    publishing = "runtime/algorithms/algorithm.py"
    lines = (ROOT / publishing).read_text().splitlines()
    calls = {lines[line - 1].strip() for _, line in calls_in(publishing)}

    assert calls == {"await table.barrier()", "await publish(output)"}


@pytest.mark.parametrize("module", [*CALL_NO_TABLE, state_based.__name__.replace(".", "/") + ".py"])
def test_the_other_modules_call_no_table_themselves(module):
    assert not calls_in(module)

"""Each message takes effect exactly once, whatever the interleaving; and what is explored reaches what it is about."""

import ast
from collections.abc import Collection, Iterator
from dataclasses import replace

import pytest

from eventstore import RowChangedError, RowExistsError, RowNotFoundError
from runtime.algorithms.state_based import algorithm as state_based
from runtime.messages.envelope import FIRST
from tests.model.book import write
from tests.model.calls import Call
from tests.model.catalogue import CHECKS, MISTAKES, QUICK, TESTED, TRUNCATION, found_with, report_of
from tests.model.engine import Engine, Ways
from tests.model.explorer import Walk, explore
from tests.model.facts import Invariant, View
from tests.model.histories import Site, shipped
from tests.model.mistakes import Mistake
from tests.model.scenarios.delivery import SENT_ONCE, SENT_OR_SAID, at_least_once, at_most_once, in_redis
from tests.model.scenarios.entities import KEY, OTHER, OUTBOX, STORE, entity_in
from tests.model.scenarios.state_based import deliver, messages
from tests.model.scenarios.truncation import DIED, LATE, long_ago, truncated_beside
from tests.model.schedule import replay, seed, table
from tests.model.world import Bounds, Kind
from tests.support.campaigns import ROOT


@pytest.mark.parametrize("number", TESTED)
def test_nothing_is_broken_in_any_interleaving(number):
    report, scenario = report_of(number), CHECKS[number].scenario

    assert report.violation is None, table(replay(scenario, seed(scenario, report.violation.schedule)))
    assert report.ends > 0
    assert (report.steps[Kind.CRASH] > 0) == (report.bounds.crashes > 0)
    assert (report.steps[Kind.CUT] > 0) == (report.bounds.cuts > 0)


@pytest.mark.parametrize(
    ("scenario", "workers", "crashes", "losses"),
    [
        ("1 message, 2 copies", 2, 2, 1),
        ("2 messages, 2 copies", 2, 1, 0),
        ("1 message, 3 copies", 3, 1, 0),
        ("outbox: x; 2 copies each", 2, 2, 1),
        ("outbox: x, y; 2 copies each", 2, 1, 0),
        ("outbox: x; 3 copies each", 3, 1, 0),
        ("deduplication store: x; 2 copies each", 2, 2, 1),
        ("deduplication store: x, y; 2 copies each", 2, 1, 0),
        ("deduplication store: x; 3 copies each", 3, 1, 0),
        ("tokens: x; 2 copies each", 2, 2, 1),
        ("tokens: x, y; 2 copies each", 2, 1, 0),
        ("tokens: x; 3 copies each", 3, 1, 0),
        ("pictures: x; 2 copies each", 2, 1, 0),
        ("delivery at most once: 2 copies", 2, 2, 1),
        ("delivery at least once: 2 copies", 2, 2, 0),
    ],
)
def test_the_bounds_that_were_promised_are_in_the_catalogue(scenario, workers, crashes, losses):
    bounds = [check.bounds for check in CHECKS if check.scenario.name == scenario]

    assert any(
        each.workers >= workers and each.crashes >= crashes and each.losses >= losses for each in bounds
    )


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.name)
def test_a_planted_mistake_is_found(mistake: Mistake):
    """A checker that finds nothing in wrong code proves nothing."""
    report = found_with(mistake.name)

    assert report.violation is not None, f"not found in {report.worlds} states"
    assert report.violation.invariant == mistake.breaks

    # ... again when the seed is replayed, and no more without the mistake
    assert mistake.replay(report).problem == report.violation.problem
    assert mistake.replay(report, planted=False).problem is None


def test_the_mistakes_are_many_and_have_names_of_their_own():
    names = [mistake.name for mistake in MISTAKES]

    assert len(names) == len(set(names)) >= 20


OPPOSITES = {
    "nothing is committed": lambda view: view.facts.committed,
    "nothing is published": lambda view: view.facts.published,
    "nothing is acknowledged": lambda view: view.facts.done,
    "there is no second version": lambda view: len(view.facts.committed) > 1,
    "a committed version has always been published": lambda view: (
        len(view.facts.committed) > len({output.sequence >> 20 for output in view.facts.published})
    ),
    "two lines come in one order only": lambda view: (
        [version.message for _, version in view.facts.committed] == ["y", "x"]
    ),
    "nothing ever ends": lambda view: view.is_quiescent,
}


def opposite(name: str, holds) -> Invariant:
    return Invariant(name, lambda view: "it happened" if holds(view) else None)


@pytest.mark.parametrize("name", OPPOSITES)
def test_what_must_happen_happens(name):
    scenario = replace(messages("x", "y"), invariants=[opposite(name, OPPOSITES[name])])

    report = explore(scenario, Bounds(2))

    assert report.violation is not None
    assert report.violation.invariant == name


def test_a_version_is_cut_and_its_late_copy_refused():
    def is_cut_and_acknowledged(view: View) -> bool:
        cut = [version.message for place, version in view.facts.committed if place not in view.held]
        late = [done for done in view.facts.done if done.job == "a"]
        return cut == ["a"] and len(late) > 0 and len(view.facts.committed) == 2

    scenario = replace(LATE, invariants=[opposite("no late copy is refused", is_cut_and_acknowledged)])

    assert explore(scenario, Bounds(2)).violation is not None


def test_races_are_lost_in_the_walk():
    engine = Engine(messages("x", "y"), Bounds(2))

    Walk(Ways(engine)).run()

    refused = {type(answer.error) for answer in engine.contents.answers.values if answer.error}
    assert refused & {RowChangedError, RowExistsError, RowNotFoundError}


def _cut(view: View) -> str | None:
    gone = [place for place, _ in view.facts.committed if place not in view.held]
    return f"{gone[0]} is gone" if gone else None


@pytest.mark.parametrize(
    "check", [each for each in TRUNCATION if each.is_quick], ids=lambda check: check.scenario.name
)
def test_something_is_cut(check):
    scenario = replace(check.scenario, invariants=[Invariant("NothingIsCut", _cut)])

    report = explore(scenario, check.bounds)

    assert report.violation is not None


def _forgotten(view: View) -> str | None:
    """Say that the id of the message of long ago is not kept any more."""
    entity, rows = entity_in(view.snapshot), view.snapshot.tables.get(OTHER, {}).get(KEY, {})
    kept = entity is not None and "a" in entity.outbox
    return None if kept or any(key.startswith(FIRST) and key.endswith("a") for key in rows) else "it is gone"


@pytest.mark.parametrize("family", [OUTBOX, STORE], ids=lambda family: family.name)
def test_something_is_evicted(family):
    never = replace(family.evicted(), invariants=[Invariant("NothingIsEvicted", _forgotten)])

    found = explore(never, Bounds(1)).violation

    assert found is not None
    assert len(found.schedule) > len(["delivered", "scan"]), "it was there at first"


@pytest.mark.parametrize("family", [OUTBOX, STORE], ids=lambda family: family.name)
def test_a_copy_that_comes_after_its_id_was_evicted_is_processed_again(family):
    # As the documentation says: keep ids for as long as copies may come.
    found = explore(family.evicted_at_once(), Bounds(1)).violation

    assert found is not None
    assert found.invariant == "AtMostOneStateChange"


def test_a_single_message_whose_worker_died_is_lost_where_the_operator_promised_that_it_was_acknowledged():
    # Handled long ago, its worker died before it published, and the queue has it still: --acknowledged-after said no.
    (first,) = long_ago("a")
    scenario = truncated_beside("redelivered after the cut", first, deliver(write("x")), earlier=[])

    report = explore(scenario, Bounds(2, crashes=1))

    assert report.violation is not None
    assert report.violation.invariant in {"NoLost", "DoneWhenAcknowledged"}


def test_without_a_crash_nothing_is_lost_even_then():
    (first,) = long_ago("a")
    scenario = truncated_beside("delivered before the cut", first, deliver(write("x")), earlier=[])

    assert explore(scenario, Bounds(2)).violation is None


def test_and_it_is_not_lost_where_nothing_was_promised():
    assert explore(DIED, Bounds(2, crashes=1)).violation is None


def _shown(scenario, bounds) -> str:
    found = explore(scenario, bounds).violation
    assert found is not None
    return table(replay(scenario, seed(scenario, found.schedule)))


def test_at_most_once_loses_what_a_worker_was_going_to_send_when_it_died():
    shown = _shown(at_most_once(invariants=[SENT_OR_SAID]), Bounds(1, 1))

    assert "dies before" in shown
    assert "SentOrSaid: it was not sent, and nothing says so" in shown


def test_at_most_once_loses_nothing_while_nobody_dies():
    assert explore(at_most_once(2, [SENT_OR_SAID]), Bounds(2)).violation is None


def test_at_least_once_sends_again_what_was_sent_by_a_worker_that_died_before_it_sealed_the_key():
    shown = _shown(at_least_once(invariants=[SENT_ONCE]), Bounds(1, 1))

    assert "dies before transact" in shown
    assert "SentOnce: it was sent 2 times" in shown


def test_at_least_once_sends_again_while_a_slow_worker_sends_longer_than_its_lock_lasts():
    shown = _shown(at_least_once(2, [SENT_ONCE]), Bounds(2))

    assert "dies" not in shown
    assert "SentOnce: it was sent 2 times" in shown


def test_a_redis_that_keeps_all_in_memory_sends_twice_at_most_once_after_it_died():
    scenario, bounds = at_most_once(invariants=[SENT_ONCE], keys=in_redis), Bounds(1, cuts=1)
    assert explore(scenario, bounds).violation is None

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Call, "makes_durable", Call.is_barrier)
        assert "SentOnce: it was sent 2 times" in _shown(scenario, bounds)


SOURCES = {
    "runtime/algorithms/algorithm.py": (),
    "runtime/algorithms/outbox/entity.py": (),
    "runtime/algorithms/outbox/algorithm.py": ("TokenBased.known_elsewhere",),
    "runtime/algorithms/outbox/stores.py": ("TokenStore.add", "TokenStore.find"),
    "runtime/publishing/last_hop.py": ("TableKeys.unended", "TableKeys.forget_expired", "RedisKeys.unended"),
    "runtime/documents.py": (),
    "runtime/ledger/ledger.py": ("Ledger.batches", "Ledger.choose_attempt", "Ledger.prune"),
    "eventstore/reading.py": ("read_header",),
    "eventstore/writing.py": ("_version_of", "delete"),
}
"""The modules that call a table or Redis, and their functions that the explored code does not use.

- `known_elsewhere` waits for a barrier only when a copy carries another token than the original, which no scenario
  delivers: `tests/unit/runtime/algorithms/outbox/test_stores.py` does, and kills the worker at each step.
- Tokens are issued (`TokenStore.add`) before their message is sent, and are found again when an object is forgotten.
- `unended` and `forget_expired` serve the operator: they list keys, and delete those that are too old to matter.
- `Ledger.batches` lists batches for people. `prune` deletes what is left of batches that have
  ended long ago.
- Which attempt at a round counts is decided (`Ledger.choose_attempt`) beside files, which the model does not have:
  `tests/unit/spark/test_commit.py` stops a driver at each of those steps, and lets another one
  overtake it.
- `read_header`, `delete` and `_version_of`, which recognises a repeated write, are parts of the event store that no
  algorithm uses: it reads the header with the newest versions in one query, recognises messages itself, and truncates
  streams, but never deletes one.
"""

_CALLS = {"get", "query", "scan", "transact", "barrier"}
_CALLS_OF_REDIS = {"get", "set", "watch", "execute"}
_FUNCTIONS = {"query", "publish"}


def calls_in(module: str, *, leave_out: Collection[str] = ()) -> set[Site]:
    """Return the lines of a module, by its path from the root, that call a table or Redis, or publish.

    Those in the functions that are left out, each by its name in the module, are not among them: `Class.method`, or the
    name alone where it is in no class.
    """
    tree = ast.parse((ROOT / module).read_text())
    left_out = {line for name, function in _functions(tree) if name in leave_out for line in _lines(function)}
    return {(module, line) for line in _lines(tree) if line not in left_out}


def _lines(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        if isinstance(node, ast.AsyncFor) and _is_pages(node.iter):
            yield node.lineno
        if isinstance(node, ast.Await) and isinstance(node.value, ast.Call):
            called = node.value.func
            if isinstance(called, ast.Name) and called.id in _FUNCTIONS:
                yield node.lineno
            if isinstance(called, ast.Attribute) and _is_table_call(called):
                yield node.lineno


def _is_pages(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "pages"


def _functions(tree: ast.Module) -> Iterator[tuple[str, ast.AsyncFunctionDef]]:
    """Give the coroutines of a module and those of its classes, by their names."""
    for node in tree.body:
        if isinstance(node, ast.AsyncFunctionDef):
            yield node.name, node
        if isinstance(node, ast.ClassDef):
            methods = [each for each in node.body if isinstance(each, ast.AsyncFunctionDef)]
            yield from [(f"{node.name}.{method.name}", method) for method in methods]


def _is_table_call(called: ast.Attribute) -> bool:
    owner = called.value
    name = owner.attr if isinstance(owner, ast.Attribute) else owner.id if isinstance(owner, ast.Name) else ""
    if name in {"_redis", "pipe"}:
        return called.attr in _CALLS_OF_REDIS
    return called.attr == "publish" or (called.attr in _CALLS and name in {"table", "_table"})


CALL_NO_TABLE = [
    "runtime/processor.py",
    "runtime/versions/index.py",
    "runtime/versions/stream.py",
    "runtime/algorithms/state_based/truncation.py",
]


@pytest.fixture(scope="module")
def crash_points() -> set[Site]:
    return {site for number in QUICK for sites in report_of(number).crash_points for site in shipped(sites)}


@pytest.mark.thorough
@pytest.mark.parametrize("module", SOURCES)
def test_each_call_of_a_table_is_explored_with_a_crash(module, crash_points):
    calls = calls_in(module, leave_out=SOURCES[module])

    assert calls <= crash_points
    assert calls or SOURCES[module]


@pytest.mark.thorough
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

"""An object is forgotten while others work on it, who take turns at each of their calls.

One goes on for some calls, then the other one for some, then the first one ends and then the other: every such
schedule is carried out. Whatever it is, nothing of the object is left but what was sent after it was forgotten.
"""

import json
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

import pytest

from eventstore import InterceptedTable, Table, drive
from runtime import Envelope, Outcome, Processor
from runtime.algorithms.choice import AlgorithmName
from runtime.algorithms.state_based.truncation import RetentionRules, TruncationChoices, truncate_stream
from runtime.ledger.batch import BatchContext, OpenBatches
from runtime.maintenance.forget import Tables, forget
from runtime.maintenance.policies import Policies, Scope
from runtime.messages.outcome import Output
from runtime.publishing.publisher import Record, Result
from runtime.publishing.records import PARTITION, Publications
from runtime.versions import limits
from tests.unit.runtime.accidents import disturbed, lose_answer, pause
from tests.unit.runtime.algorithms.world import ALGORITHMS
from tests.unit.runtime.dead_letters.post import DAMAGED, PostOffice, app, parcel
from tests.unit.runtime.maintenance.test_forgetting import Step, overtaken
from tests.unit.runtime.patience import PATIENCE
from tests.unit.runtime.tables import copy_of, memory_table, rows
from tests.unit.runtime.worker import DAY, HOUR, NOW, ToldClock, Worker, ends

KEY = "Boxes-b"
BEFORE, AFTER = NOW - DAY, NOW + HOUR
OLD, NEW = "abcd", "pqrs"
"""Parcels that were sent before the object is forgotten, and after it; b and q are damaged."""

SOME_ALGORITHMS = [
    ALGORITHMS[0],
    *(pytest.param(each, marks=pytest.mark.thorough) for each in ALGORITHMS[1:3]),
]

Actor = Callable[[Table], Coroutine[Any, Any, Any]]


@dataclass
class Process:
    """Somebody at work, one call of the table after another."""

    actor: Coroutine[Any, Any, Any]
    result: Any = None
    is_done: bool = field(default=False)

    def go_on(self, calls: int | None = None) -> None:
        """Make so many calls, by default all that are left."""
        while not self.is_done and calls != 0:
            calls = None if calls is None else calls - 1
            try:
                self.actor.send(None)
            except StopIteration as stop:
                self.result, self.is_done = stop.value, True


def sent(name: str) -> Envelope:
    return parcel(name)._replace(enqueued_at=BEFORE if name in OLD else AFTER)


def batch(algorithm: AlgorithmName, names: str, number: int = 2) -> Actor:
    async def act(table: Table) -> list[Outcome]:
        context = BatchContext(f"batch-{number}", number=number)
        clock = ToldClock(AFTER + HOUR)
        worker = Worker(table, app, clock=clock, batch=context, business_id="b", algorithm=algorithm)
        return await worker.handle(*map(sent, names))

    return act


def single(algorithm: AlgorithmName, name: str) -> Actor:
    async def publish(_: Output) -> None: ...

    async def act(table: Table) -> list[Outcome]:
        clock = ToldClock(AFTER + HOUR)
        processor = Processor(app, table, publish, clock=clock, retries=PATIENCE, algorithm=algorithm)
        return await processor.process(sent(name))

    return act


def forgetting(*, restart: bool, now: int = NOW) -> Actor:
    async def act(table: Table) -> list[Outcome]:
        await forget(Tables(table, table, table), "Boxes", "b", now, restart=restart, retries=PATIENCE)
        return []

    return act


def truncating() -> Actor:
    async def act(table: Table) -> list[Outcome]:
        rules = TruncationChoices(keep_last=1, allow_undated=True).as_of(AFTER + 9 * DAY, OpenBatches(next=9))
        await truncate_stream(table, KEY, rules, PATIENCE)
        return []

    return act


def one_after_another(*actors: Actor) -> Actor:
    async def act(table: Table) -> list[Outcome]:
        return [outcome for actor in actors for outcome in await actor(table)]

    return act


def office_of(algorithm: AlgorithmName) -> PostOffice:
    """Return a table with an object that has versions in rows and letters, of a batch that has ended."""
    office = PostOffice(algorithm, clock=ToldClock(BEFORE))
    DAMAGED.update("bq")
    for name in OLD:
        office.attempt(office.table, 1, [sent(name)])
    return office


@dataclass
class Ended:
    table: Table
    first: list[Outcome]
    second: list[Outcome]


def schedules(table: Table, first: Actor, second: Actor) -> Iterator[Ended]:
    """Carry every schedule out, each on a table of its own."""
    calls_of_first = 0
    while True:
        calls_of_second, is_last = 0, False
        while not is_last:
            target = copy_of(table)
            watched = InterceptedTable(target, before=pause)
            one, other = Process(first(watched)), Process(second(watched))
            one.go_on(calls_of_first)
            is_first_done = one.is_done
            other.go_on(calls_of_second)
            is_last = other.is_done
            one.go_on()
            other.go_on()
            yield Ended(target, one.result, other.result)
            calls_of_second += 1
        if is_first_done:
            return
        calls_of_first += 1


def of_object(table: Table) -> dict[str, Any]:
    return {row_key: row for (key, row_key), row in rows(table).items() if key == KEY}


def names_in(office: PostOffice, table: Table) -> list[str]:
    return PostOffice(office.algorithm, table).state()


@pytest.fixture(autouse=True)
def every_version_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "MAX_SEGMENT_BYTES", 0)
    DAMAGED.update("bq")


WORK = {
    "a batch with duplicates, new messages and a letter": lambda name: batch(name, "abpqr"),
    "a single message": lambda name: single(name, "p"),
    "a single message that is refused": lambda name: single(name, "q"),
    "a redelivery": lambda name: single(name, "a"),
}


@pytest.mark.parametrize("algorithm", SOME_ALGORITHMS)
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_an_object_that_refuses_has_nothing_left_of_what_others_did_meanwhile(algorithm, work, is_first):
    office = office_of(algorithm)
    actors = [forgetting(restart=False), WORK[work](algorithm)]
    count = 0
    for ended in schedules(office.table, *(actors if is_first else reversed(actors))):
        count += 1
        outcomes = ended.second if is_first else ended.first

        assert len(of_object(ended.table)) == 1, of_object(ended.table)
        assert set(ends(outcomes)) <= {"processed", "duplicate", "handler_error", "forgotten"}
        found = ends(drive(batch(algorithm, "apq", 3)(ended.table)))
        assert found == ["forgotten"] * 3
        # ... and all that is told after the first that is forgotten is forgotten too
        told = ends(outcomes)
        assert "forgotten" not in told or set(told[told.index("forgotten") :]) == {"forgotten"}
    assert count > 10


@pytest.mark.parametrize("algorithm", SOME_ALGORITHMS)
@pytest.mark.parametrize("work", WORK)
@pytest.mark.parametrize("is_first", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_an_object_that_begins_anew_has_only_what_was_sent_later_and_that_once(algorithm, work, is_first):
    office = office_of(algorithm)
    actors = [forgetting(restart=True), WORK[work](algorithm)]
    for ended in schedules(office.table, *(actors if is_first else reversed(actors))):
        state = names_in(office, ended.table)

        assert set(state) <= set(NEW)
        assert len(set(state)) == len(state)
        # ... and it goes on from there as any other object does; a stream that had a message from the future when it
        # was forgotten takes no other of that time, as it cannot tell whether it had that too
        again = ends(drive(batch(algorithm, "apr", 3)(ended.table)))
        had_it = algorithm == "state-based" and "too_late" in again[1:]
        assert not had_it or "processed" in ends(ended.second if is_first else ended.first)
        assert again[0] == "too_late"
        assert sorted(names_in(office, ended.table)) == ([] if had_it else ["p", "r"])
        letters = [found.letter.message_id for found in PostOffice(algorithm, ended.table).letters()]
        assert set(letters) <= {"q"}


@pytest.mark.parametrize("is_first", [True, False])
@pytest.mark.parametrize("restart", [True, False])
def test_beside_truncation_too(restart: bool, is_first: bool):
    office = office_of("state-based")
    actors = [forgetting(restart=restart), truncating()]
    for ended in schedules(office.table, *(actors if is_first else reversed(actors))):
        assert len(of_object(ended.table)) == 1


@pytest.mark.parametrize("algorithm", SOME_ALGORITHMS)
@pytest.mark.parametrize("restart", [True, pytest.param(False, marks=pytest.mark.thorough)])
def test_two_who_forget_it_leave_a_new_history_whole(algorithm: AlgorithmName, restart: bool):
    # Given one who forgets the object, while another one does so, and then messages begin a new history
    office = office_of(algorithm)
    anew = one_after_another(
        forgetting(restart=True), *(batch(algorithm, name, number) for number, name in enumerate("pqr", 2))
    )
    for ended in schedules(office.table, forgetting(restart=restart, now=NOW + 1), anew):
        kept = of_object(ended.table)

        assert len(kept) == 1 or names_in(office, ended.table) in (["p"], ["r"], ["p", "r"])
        again = ends(drive(batch(algorithm, "pr", 9)(ended.table)))
        assert set(again) <= {"processed", "duplicate", "forgotten", "too_late"}
        assert json.dumps(names_in(office, ended.table)) in ('["p", "r"]', '["r", "p"]', "[]")


@pytest.mark.parametrize("algorithm", SOME_ALGORITHMS)
def test_a_message_handled_while_the_answer_to_a_write_is_lost_keeps_its_effect(algorithm: AlgorithmName):
    office = office_of(algorithm)
    counted = InterceptedTable(copy_of(office.table))
    drive(forgetting(restart=True)(counted))
    writes, told = counted.counts["transact"], set[str]()
    for number in range(1, writes + 1):
        table = copy_of(office.table)

        # Given one who forgets the object, whose write takes effect without an answer
        def handle_and_lose(table: Table = table) -> None:
            told.update(ends(drive(batch(algorithm, "p")(table))))
            lose_answer()

        # When a message is handled before that one tries again
        drive(forgetting(restart=True)(disturbed(table, handle_and_lose, numbers=[number], after=True)))

        # Then the message has its effect, unless it was refused
        again = ends(drive(batch(algorithm, "p", 3)(table)))
        assert (again, names_in(office, table)) == (["duplicate" if number == writes else "processed"], ["p"])
    assert told == {"forgotten", "processed"}


@pytest.mark.parametrize("later", range(1, 6))
def test_one_who_is_overtaken_and_dies_leaves_the_ids_of_a_new_history(later: int):
    async def publish(_: Output) -> None: ...

    def deliver(states: Table, ids: Table, name: str) -> str:
        processor = Processor(
            app, states, publish, clock=ToldClock(AFTER + HOUR), retries=PATIENCE,
            algorithm="deduplication-store", deduplication_store=ids,
        )  # fmt: skip
        (outcome,) = drive(processor.process(sent(name)))
        return str(outcome.status)

    def forgets(states: Table, ids: Table, now: int) -> None:
        drive(forget(Tables(states, ids, states), "Boxes", "b", now, restart=True, retries=PATIENCE))

    def new() -> tuple[Table, Table]:
        states, ids = office_of("deduplication-store").table, memory_table()
        for name in "ac":
            deliver(states, ids, name)
        return states, ids

    def begin_anew(tables: tuple[Table, Table]) -> None:
        forgets(*tables, NOW)
        assert deliver(*tables, "p") == "processed"

    def forgets_slowly(tables: tuple[Table, Table], step: Step) -> None:
        states, ids = (InterceptedTable(table, before=step) for table in tables)
        forgets(states, ids, NOW + 1)

    # When another one forgets the object at some call, a new history begins, and the first one dies
    for tables, _ in overtaken(later, new, forgets_slowly, begin_anew):
        # Then a message of the new history has its id, or is forgotten with it; a death may leave what refuses all
        told = [deliver(*tables, "p") for _ in range(2)]
        assert told in (["duplicate"] * 2, ["processed", "duplicate"], ["dead_letter"] * 2)
        assert told[0] == "dead_letter" or PostOffice("deduplication-store", tables[0]).state() == ["p"]


def keep_elsewhere(table: Table) -> None:
    """Let a target refuse an output of the object, and give the object a rule of its own."""
    publications = Publications(table, lambda: NOW)
    publication = drive(publications.begin("b1-0123456789ab", "post:send", 1, 1))
    letter = Record("m-1", "Sent", "b", "Boxes", Result.NOT_SENT, "400")
    found = drive(publications.slices(publication)).get(0)
    claim = drive(publications.claim(publication, 0, found, "ada", timedelta(minutes=1)))
    assert claim is not None
    drive(claim.note(1, [letter]))
    drive(Policies(table, lambda: NOW).set_rules(Scope("Boxes", "b"), RetentionRules(older_than=DAY)))


def elsewhere(table: Table) -> tuple[int, bool]:
    """Return how many outputs a target has refused, and whether the object has rules."""
    letters = [key for partition, key in rows(table) if partition == PARTITION and key.startswith("r:")]
    return len(letters), drive(Policies(table, lambda: NOW).get(Scope("Boxes", "b"))).rules is not None


@pytest.mark.parametrize("algorithm", SOME_ALGORITHMS)
@pytest.mark.parametrize("later", range(1, 8))
def test_one_who_is_overtaken_and_dies_leaves_letters_and_rules_of_a_new_history(algorithm, later):
    def new() -> Table:
        table = office_of(algorithm).table
        keep_elsewhere(table)
        return table

    def begin_anew(table: Table) -> None:
        drive(forgetting(restart=True)(table))
        assert elsewhere(table) == (0, False)
        assert ends(drive(batch(algorithm, "p")(table))) == ["processed"]
        keep_elsewhere(table)

    def forgets(table: Table, step: Step) -> None:
        drive(forgetting(restart=True, now=NOW + 1)(InterceptedTable(table, before=step)))

    # When another one forgets the object at some call, a new history begins, and the first one dies
    for table, _ in overtaken(later, new, forgets, begin_anew):
        # Then the new history has all that is its own, unless it is being forgotten as well
        told = ends(drive(batch(algorithm, "p", 3)(table)))
        assert told[0] in ("duplicate", "processed", "forgotten")
        if told == ["duplicate"]:
            assert elsewhere(table) == (1, True)

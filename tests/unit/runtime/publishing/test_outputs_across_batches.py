"""Random worlds of batches with copies of each other's messages, published in any order by runners that are killed.

Nothing is lost. What a batch has published to a target, no later publication sends there again for a duplicate.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Container, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from eventstore import InterceptedTable, Table, drive
from runtime.algorithms.choice import AlgorithmName
from runtime.clock import system_clock
from runtime.ledger.batch import BatchContext
from runtime.ledger.ledger import BatchRecord, BatchStatus, Ledger, records
from runtime.messages.envelope import id_key
from runtime.messages.outcome import Outcome, Outcomes, Reason, dead_letter
from runtime.publishing.publisher import (
    CommittedOutput,
    Promise,
    Publisher,
    PublishOptions,
    Record,
    SliceName,
    Target,
)
from runtime.publishing.records import prune_publications
from runtime.publishing.runner import publish
from runtime.spark.worker.outcomes import to_arrow
from tests.support.done_batches import write_round
from tests.unit.runtime.diary import write
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import Worker

MESSAGES = [(diary, number) for diary in ("d-1", "d-2") for number in range(4)]
_messages = st.lists(st.sampled_from(MESSAGES), min_size=1, max_size=8)
_batches = st.tuples(
    st.just("batch"),
    _messages,
    st.integers(0, 8),
    st.sampled_from(["publish", "publish", "abandon", "leave"]),
    st.sets(st.sampled_from(MESSAGES), max_size=2),
)
_singles = st.tuples(st.just("single"), st.sampled_from(MESSAGES))
_publications = st.tuples(
    st.just("publish"), st.integers(0, 9), st.integers(0, 1), st.none() | st.integers(1, 30)
)
steps = st.lists(
    st.one_of(_batches, _batches, _singles, _publications, _publications, st.tuples(st.just("prune"))),
    min_size=2,
    max_size=12,
)
algorithms = st.sampled_from(["state-based", "state-based", "outbox", "deduplication-store"])
promises = st.sampled_from([Promise.EXACTLY_ONCE, Promise.AT_LEAST_ONCE])

BOTH = [("d-1", 0), ("d-1", 1), ("d-2", 0)]
KILLED_AND_RESUMED: list[tuple[Any, ...]] = [
    ("batch", BOTH, 2, "publish", {BOTH[0]}),
    ("batch", [*BOTH, ("d-2", 1)], 0, "publish", set()),
    ("publish", 0, 0, 9),
    ("publish", 1, 0, None),
]
ID_REUSED: list[tuple[Any, ...]] = [
    ("batch", BOTH, 0, "publish", set()),
    ("prune",),
    ("batch", [("d-1", 2)], 0, "publish", set()),
    ("publish", 0, 0, None),
    ("batch", BOTH, 0, "publish", set()),
]


class KilledError(BaseException):
    """The runner's process is gone."""


@dataclass
class Fuse:
    """Kills a runner before one of its calls, and refuses all later ones."""

    left: int | None = None

    def burn(self) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise KilledError


class Mailbox(Target):
    """A receiver that lists each output as often as it takes effect."""

    name = identity = "mailbox"
    chunk = 2

    def __init__(self, promise: Promise, number: int = 0) -> None:
        self.promise, self.identity = promise, f"mailbox {number}"
        self.sent: list[str] = []
        self.markers: set[SliceName] = set()
        self.fuse = Fuse()

    def publisher(self) -> Publisher:
        return MailboxPublisher(self)


class MailboxPublisher(Publisher):
    """Sends at once or, if the promise is "exactly once", in a transaction with a marker."""

    def __init__(self, mailbox: Mailbox) -> None:
        self.mailbox = mailbox
        self.pending: list[str] = []

    async def open(self, name: SliceName) -> bool:
        self.mailbox.fuse.burn()
        self.name, self.pending = name, []
        return name not in self.mailbox.markers

    async def send(self, outputs: Sequence[CommittedOutput]) -> Sequence[Record]:
        assert outputs
        ids = [each.message_id for each in outputs]
        self.mailbox.fuse.burn()
        if self.mailbox.promise is Promise.EXACTLY_ONCE:
            self.pending += ids
        else:
            self.mailbox.sent += ids
        self.mailbox.fuse.burn()
        return ()

    async def commit(self) -> None:
        self.mailbox.fuse.burn()
        if self.mailbox.promise is Promise.EXACTLY_ONCE:
            self.mailbox.sent += self.pending
            self.mailbox.markers.add(self.name)
        self.mailbox.fuse.burn()


@dataclass
class World:
    """A table, its batches, and two targets; and what is known of them without looking into the table."""

    folder: Path
    algorithm: AlgorithmName
    targets: Sequence[Mailbox]
    table: Table = field(default_factory=memory_table)
    made_by: dict[str, int | None] = field(
        default_factory=dict
    )  # the batch that made the version of an output
    outputs: dict[int, set[str]] = field(default_factory=dict)  # of each batch that has ended
    complete: set[tuple[int, int]] = field(
        default_factory=set
    )  # batches with the targets that have all of them

    def run(self, steps: Sequence[tuple[Any, ...]]) -> None:
        acts: dict[str, Callable[..., None]] = {
            "batch": self.batch,
            "single": self.single,
            "publish": self.publish,
            "prune": self.prune,
        }
        for name, *arguments in steps:
            acts[name](*arguments)

    def batch(
        self,
        messages: Sequence[tuple[str, int]],
        killed_after: int,
        end: str,
        invalid: Container[tuple[str, int]],
    ) -> None:
        """Run a batch, after an attempt that was killed, by an app for which some bodies are invalid; and end it."""
        ledger, taken = Ledger(self.table, system_clock), {each.batch_id for each in self.known()}
        names = (f"b{number}" for number in range(100) if f"b{number}" not in taken)
        record = drive(ledger.begin(next(names), "a log", str(self.folder / str(len(self.outputs)))))
        context = BatchContext(record.batch_id, drive(ledger.open_batches()), number=record.number)
        self.handle(context, messages[:killed_after])
        outcomes = self.handle(context, [each for each in messages if each not in invalid])
        rejected = [
            dead_letter(
                write("", f"{diary}-{number}", diary=diary), Reason.INVALID_BODY, "no line", "Diary", diary
            )
            for diary, number in messages
            if (diary, number) in invalid
        ]
        if end == "publish":
            rows = to_arrow([Outcomes.of([each]) for each in [*outcomes, *rejected]]).to_pylist()
            write_round(Path(record.out), record, 0, rows)
            self.outputs[record.number] = {each["message_id"] for row in rows for each in row["outputs"]}
            counts = {"outputs": len(self.outputs[record.number]), "dead_letter": len(rejected)}
            record = drive(ledger.commit_round(record, 0, counts, 0))
            drive(ledger.publish(record))
            for diary in {diary for diary, _ in messages} if self.algorithm != "state-based" else ():
                ids = {id_key(f"{diary}-{number}") for _, number in messages}
                drive(self.worker(context, diary).algorithm.finish(diary, ids))
        elif end == "abandon":
            drive(ledger.abandon(record.batch_id))

    def single(self, message: tuple[str, int]) -> None:
        """Handle a message outside batches."""
        self.handle(BatchContext(), [message])

    def handle(self, batch: BatchContext, messages: Sequence[tuple[str, int]]) -> list[Outcome]:
        found = []
        for diary in dict.fromkeys(diary for diary, _ in messages):
            numbers = [number for each, number in messages if each == diary]
            copies = [write(f"line {number}", f"{diary}-{number}", diary=diary) for number in numbers]
            found += self.worker(batch, diary).process(*copies)
        for each in found:
            for output in each.outputs:
                self.made_by.setdefault(output.message_id, batch.number)
        return found

    def worker(self, batch: BatchContext, diary: str) -> Worker:
        return Worker(self.table, batch=batch, business_id=diary, algorithm=self.algorithm)

    def known(self) -> list[BatchRecord]:
        """Return all batches in the ledger, in order."""

        async def found() -> list[BatchRecord]:
            return [each async for each in records(self.table)]

        return sorted(drive(found()), key=lambda each: each.number)

    def publish(self, which: int, to: int, kill: int | None = None) -> None:
        """Publish a batch, and check that it sends nothing that its maker has published there."""
        batches = [each for each in self.known() if each.status is BatchStatus.PUBLISHED]
        if not batches:
            return
        record, target = batches[which % len(batches)], self.targets[to]
        present = {each.number for each in batches}
        published = {number for number, each in self.complete if each == to and number in present}
        already, target.fuse = len(target.sent), Fuse(kill)

        async def burn(*_: object) -> None:
            target.fuse.burn()

        options = PublishOptions(slices=2, concurrency=1, take_over=True)
        try:
            asyncio.run(
                publish(InterceptedTable(self.table, before=burn), record, record.out, target, options)
            )
            self.complete.add((record.number, to))
        except KilledError:
            pass
        finally:
            target.fuse = Fuse()
        sent_now = target.sent[already:]
        assert not [each for each in sent_now if self.is_sent_by(published - {record.number}, each)]

    def is_sent_by(self, batches: Container[int | None], output: str) -> bool:
        """Return whether one of these batches made an output's version, and did not reject its message afterwards."""
        maker = self.made_by[output]
        return maker is not None and maker in batches and output in self.outputs[maker]

    def prune(self) -> None:
        """Forget all batches that have ended."""
        asyncio.run(Ledger(self.table, system_clock).prune(system_clock() + 1))
        asyncio.run(prune_publications(self.table, system_clock))


@contextmanager
def world_in(algorithm: AlgorithmName, promise: Promise, steps: Sequence[tuple[Any, ...]]) -> Iterator[World]:
    """Run the steps in a new world."""
    with TemporaryDirectory() as folder:
        world = World(Path(folder), algorithm, [Mailbox(promise, 0), Mailbox(promise, 1)])
        world.run(steps)
        yield world


@given(algorithms, promises, steps, st.permutations(range(12)))
@example("state-based", Promise.AT_LEAST_ONCE, KILLED_AND_RESUMED, range(12))
@example("state-based", Promise.EXACTLY_ONCE, KILLED_AND_RESUMED, range(12))
@example("state-based", Promise.AT_LEAST_ONCE, ID_REUSED, range(12))
def test_every_output_of_every_batch_goes_out(algorithm, promise, steps, order):
    with world_in(algorithm, promise, steps) as world:
        ended = [each.number for each in world.known() if each.status is BatchStatus.PUBLISHED]
        for which in (*order, *range(len(ended))):
            world.publish(which, 0)

        assert {id_ for number in ended for id_ in world.outputs[number]} <= {*world.targets[0].sent}


@given(
    algorithms, promises, st.lists(st.one_of(_batches, _batches, _singles), max_size=8), st.integers(1, 30)
)
def test_batches_published_in_order_send_each_output_once(algorithm, promise, steps, kill):
    with world_in(algorithm, promise, steps) as world:
        ended = [each.number for each in world.known() if each.status is BatchStatus.PUBLISHED]
        for which in range(len(ended)):
            world.publish(which, 0, kill)
            world.publish(which, 0)

        expected = Counter(id_ for number in ended for id_ in world.outputs[number])
        for id_ in expected:
            if world.is_sent_by(ended, id_):
                expected[id_] = 1
        sent = Counter(world.targets[0].sent)
        if promise is Promise.EXACTLY_ONCE:
            assert sent == expected
        else:  # a kill repeats what was under way
            assert not expected - sent
            assert (sent - expected).total() <= Mailbox.chunk * len(ended)


def test_a_runner_that_was_killed_repeats_at_most_a_chunk():
    batch: tuple[Any, ...] = ("batch", [("d-1", number) for number in range(8)], 0, "publish", set())
    for kill in range(2, 26, 3):
        with world_in("state-based", Promise.AT_LEAST_ONCE, [batch]) as world:
            world.publish(0, 0, kill)
            world.publish(0, 0)

            sent = world.targets[0].sent
            assert set(sent) == next(iter(world.outputs.values()))
            assert len(sent) - len(set(sent)) <= Mailbox.chunk


@pytest.mark.parametrize("algorithm", ["state-based", "outbox", "deduplication-store"])
def test_a_version_of_a_message_that_its_batch_then_rejected_is_published_by_the_next(algorithm, tmp_path):
    table, box = memory_table(), Mailbox(Promise.EXACTLY_ONCE)
    ledger, message = Ledger(table, system_clock), write("line", "m", diary="d-1")

    def worker(record: BatchRecord) -> Worker:
        batch = BatchContext(record.batch_id, drive(ledger.open_batches()), number=record.number)
        return Worker(table, batch=batch, business_id="d-1", algorithm=algorithm)

    def published(record: BatchRecord, outcome: Outcome) -> None:
        write_round(Path(record.out), record, 0, to_arrow([Outcomes.of([outcome])]).to_pylist())
        counts = {"outputs": len(outcome.outputs), outcome.status.value: 1}
        drive(ledger.publish(drive(ledger.commit_round(record, 0, counts, 0))))
        ended = drive(ledger.find(record.batch_id))
        assert ended is not None
        asyncio.run(publish(table, ended, ended.out, box, PublishOptions(slices=1)))

    first = drive(ledger.begin("first", "a log", str(tmp_path / "first")))
    worker(first).process(message)  # the first attempt dies; in the second, a stricter app rejects the body
    published(first, dead_letter(message, Reason.INVALID_BODY, "no line", "Diary", "d-1"))
    second = drive(ledger.begin("second", "a log", str(tmp_path / "second")))
    (outcome,) = worker(second).process(message)
    published(second, outcome)

    assert outcome.made_by is not None
    assert set(box.sent) == {each.message_id for each in outcome.outputs}

"""Streams that share their commits end as they would one by one, whoever interferes with which of them."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import InterceptedTable, StoreUnavailableError, Table, connect, drive
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome
from runtime.spark.worker.connection import GroupCommit
from runtime.versions import limits
from tests.unit.runtime.diary import misbehave, ponder, write
from tests.unit.runtime.worker import Worker, stored

STREAMS = "abcdef"
LINES = "uvwxyz"

deliveries = st.lists(
    st.one_of(
        st.sampled_from(LINES).map(write),
        st.just(ponder("p")),
        st.sampled_from(["fail", "set an attribute"]).map(misbehave),
    ),
    max_size=6,
)


@dataclass(frozen=True)
class Disturbance:
    """What happens at one of the transactions of a stream: another worker is faster, or there is no answer."""

    number: int
    kind: str
    line: str = "w"


disturbances = st.lists(
    st.builds(
        Disturbance,
        st.integers(1, 3),
        st.sampled_from(["overtaken", "not sent", "answer lost"]),
        st.sampled_from(LINES),
    ),
    max_size=3,
    unique_by=lambda each: each.number,
)

Story = Mapping[str, tuple[list[Envelope], list[Disturbance]]]


@contextmanager
def new_table(kind: str) -> Iterator[Table]:
    with tempfile.TemporaryDirectory() as folder:
        store = connect("memory:" if kind == "memory" else f"sqlite:///{Path(folder)}/store.db")
        yield drive(store.table("states"))
        drive(store.close())


def named(delivery: Envelope, stream: str) -> Envelope:
    """Return the delivery, addressed to a stream."""
    assert isinstance(delivery.body, str)
    return delivery._replace(body=delivery.body.replace('"d-1"', f'"{stream}"'))


def told(
    table: Table, story: Story, most: int | None = None
) -> tuple[dict[str, list[Outcome]], dict[str, list[object]]]:
    """Process the streams of a story; return the outcomes and the versions of each.

    At most so many share their commits; without a number each transaction is committed by itself.
    """
    group, came = GroupCommit(), Counter[str]()
    due = {f"Diary-{key}": {each.number: each for each in of_it} for key, (_, of_it) in story.items()}

    def before(name: str, partition: str, number: int) -> None:
        if name != "transact":
            return
        came[partition] += 1
        here = due[partition].get(came[partition])
        if here and here.kind == "overtaken":
            key = partition.removeprefix("Diary-")
            Worker(table, business_id=key, batch="other").process(named(write(here.line), key))
        elif here and here.kind == "not sent":
            raise StoreUnavailableError("nobody answers")

    def after(name: str, partition: str, number: int, result: object) -> None:
        here = due[partition].get(came[partition]) if name == "transact" else None
        if here and here.kind == "answer lost":
            raise StoreUnavailableError("no answer", outcome_unknown=True)

    watched = InterceptedTable(group.around(table), before, after)

    async def process(key: str, messages: list[Envelope]) -> tuple[str, list[Outcome]]:
        worker = Worker(watched, business_id=key, batch="night")
        return key, await worker.handle(*[named(each, key) for each in messages])

    work = (process(key, messages) for key, (messages, _) in story.items())
    with pytest.MonkeyPatch.context() as patch:
        # So that a stream may need several transactions.
        patch.setattr(limits, "MAX_RUN_VERSIONS", 2)
        patch.setattr(limits, "MAX_TRANSACTION_RUNS", 1)
        outcomes = dict(map(drive, work) if most is None else group.run_all(work, most))
    return outcomes, {key: list(stored(table, business_id=key)) for key in story}


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@given(story=st.fixed_dictionaries({key: st.tuples(deliveries, disturbances) for key in STREAMS}))
def test_any_streams_and_any_disturbances(kind, story):
    with new_table(kind) as table:
        one_by_one = told(table, story)

    for most in (1, 2, len(STREAMS)):
        with new_table(kind) as table:
            assert told(table, story, most) == one_by_one

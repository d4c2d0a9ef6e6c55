"""Trace context: an output carries that of the delivery it came from, and nothing that is stored or digested does."""

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import drive
from handlers import Published
from runtime import Envelope, Output, Processor
from runtime.algorithms.choice import AlgorithmName
from runtime.dead_letters import PARTITION, check_letter
from runtime.messages.envelope import Envelopes, digest_outputs
from runtime.messages.outcome import Outcomes
from runtime.spark.worker.outcomes import to_arrow
from tests.unit.runtime import diary
from tests.unit.runtime.diary import write
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import ToldClock, Worker, stored

TRACES = st.fixed_dictionaries(
    {"traceparent": st.from_regex(r"00-[0-9a-f]{32}-[0-9a-f]{16}-0[01]", fullmatch=True)},
    optional={"tracestate": st.text("abc=,123", min_size=1, max_size=20)},
)
OWN = st.dictionaries(st.sampled_from(["lang", "priority", "Traceparent"]), st.text("xyz", max_size=4))
A, B = (
    {"traceparent": f"00-{1:032x}-{1:016x}-01"},
    {"traceparent": f"00-{2:032x}-{2:016x}-01", "tracestate": "b=1"},
)


class World:
    """One table, and a processor that keeps what it publishes."""

    def __init__(self, algorithm: AlgorithmName) -> None:
        self.table, self.published = memory_table(), list[Output]()
        self.processor = Processor(
            diary.app, self.table, self.publish, clock=ToldClock(), algorithm=algorithm
        )

    async def publish(self, output: Output) -> None:
        self.published.append(output)

    def deliver(self, message: Envelope) -> list[Output]:
        first = len(self.published)
        (outcome,) = drive(self.processor.process(message))
        assert not outcome.is_dead_letter, outcome.error
        return self.published[first:]

    def issue(self, message: Envelope) -> Envelope:
        return drive(self.processor.issue(message))


def message(headers) -> Envelope:
    return write("a line", "m-1")._replace(headers=headers or None)


def without_trace(outputs) -> list[Output]:
    """Return outputs with the headers that are digested."""
    return [
        each._replace(headers={name: value for name, value in each.headers.items() if name not in {*A, *B}})
        for each in outputs
    ]


@given(OWN, TRACES, st.one_of(st.just({}), TRACES))
def test_a_redelivery_with_another_trace_has_the_same_outputs(own, first, second):
    world, untraced = World("state-based"), World("state-based")

    made = world.deliver(message({**own, **first}))
    again = world.deliver(message({**own, **second}))
    plain = untraced.deliver(message(own))

    # All that is digested is equal, byte for byte, as is all that is stored
    digests = {
        digest_outputs([Published(each.message_id, each.type, each.body.encode(), each.headers)])
        for outputs in (made, again, plain)
        for each in without_trace(outputs)
    }
    assert len(digests) == 1
    assert without_trace(made) == without_trace(again) == plain
    assert rows(world.table) == rows(untraced.table)
    # Each carries the trace of its own delivery
    for outputs, trace in ((made, first), (again, second)):
        assert [{name: each.headers.get(name) for name in trace} for each in outputs] == [trace]


@pytest.mark.parametrize("algorithm", [each for each in get_args(AlgorithmName) if each != "state-based"])
def test_an_outbox_does_not_store_traces(algorithm):
    world, untraced = World(algorithm), World(algorithm)
    traced, plain = world.issue(message(A)), untraced.issue(message(None))

    published, expected = world.deliver(traced), untraced.deliver(plain)

    assert without_trace(published) == without_trace(expected)
    assert [each.headers["traceparent"] for each in published] == [A["traceparent"]]
    assert "traceparent" not in str(rows(world.table))


def test_handlers_and_versions_do_not_see_it():
    table = memory_table()

    (outcome,) = Worker(table).process(message({"lang": "en", **A}))

    assert json.loads(outcome.outputs[0].body)["headers"] == [["lang", "en"]]
    assert [version.record.headers for version in stored(table)] == [{"lang": "en"}]


def test_outcomes_of_a_batch_carry_it_by_column_beside_a_handlers_own():
    outcomes = Outcomes(Envelopes.of([message(A), message(None), message(A)]), "Diary", "d-1")
    own = {"own": "x"}
    published = [Published(f"o-{number}", "Wrote", b"{}", own) for number in range(2)]
    published.append(Published("o-2", "Wrote", b"{}", dict(B)))
    outcomes.processed(1, [1, 2, 3], [published[:1], published[1:2], published[2:]])

    in_columns = [dict(each["headers"]) for (each,) in to_arrow([outcomes]).column("outputs").to_pylist()]

    assert in_columns == [{**A, **own}, own, B]
    assert [each.outputs[0].headers for each in outcomes] == in_columns


def test_redeliveries_of_what_has_no_stream_share_a_letter():
    world = World("state-based")
    for trace in (A, B):
        unknown = Envelope.of("m-1", "Unknown", "{}", headers=trace)
        drive(world.processor.process(unknown))

    (letter,) = drive(world.table.query(PARTITION, "!", "~")).rows
    check_letter(letter)

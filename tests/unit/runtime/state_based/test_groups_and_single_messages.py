"""A group of deliveries has the outcomes and leaves the versions that its deliveries have one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import Table, drive
from handlers import App, Context, Handler, Message, State, handles
from runtime.ledger.batch import NOTHING, BatchContext, OpenBatches
from runtime.messages.envelope import Envelope, Envelopes
from runtime.messages.outcome import Outcome, Outcomes, Output
from runtime.messages.parsing import prepare, prepare_all
from runtime.versions import limits
from runtime.versions.run import Version
from tests.unit.runtime.tables import memory_table
from tests.unit.runtime.worker import DAY, HOUR, NOW, Worker, stored


class Add(Message):
    """Something is added to an account, or refused."""

    account: str
    amount: int
    note: str = ""


class Added(Message):
    """Something was added."""

    total: int
    lot: str


class AccountData(State):
    """A plain state."""

    total: int = 0
    note: str | None = None


class LabelledData(AccountData):
    """The same, but for a set, which makes it not plain."""

    labels: frozenset[str] = frozenset()


class Account(Handler[AccountData], name="Account"):
    """Adds numbers, refuses negative ones, and tells nothing of zero."""

    @handles(by="account")
    def add(self, state: AccountData, message: Add, context: Context) -> AccountData:
        if message.amount < 0:
            object.__setattr__(state, "total", -1)
            raise ValueError("nothing is taken away")
        if message.amount == 0:
            return state
        total = state.total + message.amount
        for _ in range(message.amount % 3):
            lot = f"{context.new_guid()} {context.random.randrange(9)} {context.capture(str(_), lambda: 'x')}"
            context.publish(Added(total=total, lot=lot), headers=dict(context.headers))
        return state.model_copy(update={"total": total, "note": message.note or None})


class Labelled(Handler[LabelledData], name="Account"):
    """The same on a state that is not plain."""

    @handles(by="account")
    def add(self, state: LabelledData, message: Add, context: Context) -> LabelledData:
        done = Account().add(state, message, context)
        return done.model_copy(update={"labels": state.labels | {message.note}})  # type: ignore[return-value]


ids = st.integers(0, 7).map(lambda number: f"00000000-0000-4000-8000-{number:012}")
bodies = st.one_of(
    st.builds(
        '{{"account": "a-1", "amount": {}, "note": "{}"}}'.format,
        st.integers(-1, 4),
        st.sampled_from(["", "n", "ü"]),
    ),
    st.sampled_from(
        [
            '{"amount":1,"account":"a-1"}',
            '{"account": "a-2", "amount": 1}',
            '{"account": "", "amount": 1}',
            '{"account": "a-1"}',
            '{"account": "a-1", "amount": 1.0}',
            '{"account": "a-1", "amount": [1]}',
            '{"account": "a-1", "amount": 1',
            "[]",
            b"\x82\xa7account\xa3a-1\xa6amount\x01",
            b"\xc1",
        ]
    ),
)
deliveries = st.builds(
    Envelope,
    ids | st.sampled_from(["x-1", "x\ny", "\ud800"]),
    st.sampled_from(["Add", "Add", "Add", "Other"]),
    bodies,
    st.none(),
    st.none() | st.integers(0, 9),
    st.none() | st.sampled_from([NOW - 2 * DAY, NOW, NOW + 2 * HOUR, -(10**18)]),
    st.none() | st.sampled_from([{}, {"trace": "ä"}, {"n": 1}, {"half": "\ud800"}]),
)
contexts = st.builds(
    BatchContext,
    st.sampled_from(["night", None]),
    st.just(OpenBatches(names=frozenset({"day"}))),
    is_cascade=st.booleans(),
    late=st.sampled_from(["refuse", "process"]),
    on_error=st.sampled_from(["continue", "stop-stream"]),
)
bounds = st.fixed_dictionaries(
    {
        "MAX_SEGMENT_VERSIONS": st.sampled_from([1, 3, 400]),
        "MAX_RUN_VERSIONS": st.sampled_from([1, 2, 8192]),
        "MAX_TRANSACTION_RUNS": st.sampled_from([1, 2, 48]),
    }
)


def app_of(handler: type[Handler]) -> App:
    return App(handler)


def in_one_group(table: Table, app: App, batch: BatchContext, log: Sequence[Envelope]) -> Outcomes:
    worker = Worker(table, app, batch=batch, business_id="a-1")
    deliveries = prepare_all(worker.handler, "a-1", Envelopes.of(log))
    return Outcomes.of(drive(worker.algorithm.process("a-1", deliveries)))


def one_by_one(table: Table, app: App, batch: BatchContext, log: Sequence[Envelope]) -> list[Outcome]:
    worker, seen = Worker(table, app, batch=batch, business_id="a-1"), NOTHING
    outcomes: list[Outcome] = []
    for delivery in log:
        ended = drive(worker.algorithm.process("a-1", [prepare(worker.handler, "a-1", delivery)], seen))
        outcomes += ended
        seen = seen.after(ended)
    return outcomes


def in_columns(outcomes: Outcomes) -> tuple[list[int], list[Output]]:
    """Return the outputs of all outcomes as they are stored, and how many each has."""
    counts, outputs = outcomes.outputs()
    texts: list[str | bytes] = [body if isinstance(body, str) else body.decode() for body in outputs.bodies]
    return counts, list(replace(outputs, bodies=texts))


def kept(table: Table) -> list[Version]:
    """Return the stored versions, but for when they were written: at the end of a transaction."""
    return [version._replace(written_at=None) for version in stored(table, "Account", "a-1")]


@pytest.mark.parametrize("handler", [Account, Labelled])
@given(st.lists(deliveries, max_size=6), st.lists(deliveries, min_size=1, max_size=20), contexts, bounds)
def test_a_group_gives_what_its_deliveries_give_one_by_one(handler, before, log, batch, smaller):
    app, day = app_of(handler), BatchContext("day")
    together, apart = memory_table(), memory_table()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in smaller.items():
            patch.setattr(limits, name, value)
        assert (
            in_one_group(together, app, day, before) == one_by_one(apart, app, day, before)
            if before
            else True
        )

        outcomes = in_one_group(together, app, batch, log)

        assert outcomes == one_by_one(apart, app, batch, log)
        assert kept(together) == kept(apart)
        assert [outcome.envelope for outcome in outcomes] == log
        assert in_columns(outcomes) == in_columns(Outcomes.of(list(outcomes)))


FAILURES: list[str] = []


class Fragile(Handler[AccountData], name="Account"):
    """Adds numbers; told to, it changes the state that it was given, and fails."""

    @handles(by="account")
    def add(self, state: AccountData, message: Add, context: Context) -> AccountData:
        if context.message_id in FAILURES:
            FAILURES.remove(context.message_id)
            object.__setattr__(state, "total", -1)
            raise ValueError("not now")
        return state.model_copy(update={"total": state.total + message.amount})


def test_a_replay_that_fails_leaves_nothing_to_the_next_one():
    log = [
        Envelope(name, "Add", f'{{"account": "a-1", "amount": {number}}}')
        for number, name in enumerate("abb", 1)
    ]
    log[2] = log[1]
    app, table = app_of(Fragile), memory_table()
    in_one_group(table, app, BatchContext("day"), log[:2])
    FAILURES.append("b")

    outcomes = in_one_group(table, app, BatchContext("night", OpenBatches()), log)

    assert [str(outcome.reason or outcome.status) for outcome in outcomes] == [
        "duplicate",
        "replay_failed",
        "duplicate",
    ]

"""Transactions: what one commit holds, whatever messages and states are like."""

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore import InterceptedTable, StoreUnavailableError, Table, drive
from eventstore.limits import MAX_BINARY_BYTES
from handlers import App, Context, Handler, Message, State, handles
from runtime.errors import RetriesExhaustedError
from runtime.ledger.batch import NOTHING, BatchContext, OpenBatches
from runtime.messages.envelope import Envelope, Envelopes
from runtime.messages.outcome import Outcome, Outcomes, Output
from runtime.messages.parsing import prepare, prepare_all
from runtime.versions import limits
from runtime.versions.limits import MAX_HEAD_STATE_BYTES as HEADER_LIMIT
from runtime.versions.limits import MAX_STATE_BYTES
from runtime.versions.run import Version
from tests.unit.runtime.diary import DEEDS, DIARY, NOISE, SKY, misbehave, ponder, write
from tests.unit.runtime.indexes import check_index
from tests.unit.runtime.tables import memory_table, rows
from tests.unit.runtime.worker import DAY, HOUR, NOW, Worker, ends, made_by, open_batches, stored

# More new versions than fit one transaction are stored in parts.


@pytest.fixture
def tiny(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let runs and transactions be so small that a few messages make several parts."""
    monkeypatch.setattr(limits, "MAX_RUN_VERSIONS", 2)
    monkeypatch.setattr(limits, "MAX_TRANSACTION_RUNS", 2)


@given(sizes=st.lists(st.integers(0, 3000), min_size=1, max_size=12), room=st.integers(4000, 30_000))
@settings(max_examples=60)
def test_what_does_not_fit_a_transaction_is_forgotten_and_folded_again(sizes, room):
    # The size of a run is known only once it is compressed, so a part may turn out to be too large.
    messages = [write("x" * size + str(number), f"m-{number}") for number, size in enumerate(sizes)]
    messages = [*(copy for message in messages for copy in (message, message)), write("known")]
    whole, parted = memory_table(), memory_table()
    for table in (whole, parted):
        Worker(table, batch="earlier").process(write("known"))
    expected = Worker(whole).process(*messages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(limits, "MAX_RUN_VERSIONS", 1)
        patch.setattr(limits, "ROW_OVERHEAD", 1000)
        patch.setattr(limits, "MAX_TRANSACTION_BYTES", room)
        found = Worker(parted).process(*messages)

    assert found == expected
    assert made_by(parted) == made_by(whole)


@pytest.mark.usefixtures("tiny")
def test_the_parts_that_were_stored_before_a_crash_are_a_valid_prefix():
    messages = [write(str(number)) for number in range(10)]
    counted = InterceptedTable(memory_table())
    expected = Worker(counted, batch="batch-1").process(*messages)
    assert counted.counts == {"query": 1, "transact": 3}, (
        "a part is a transaction of two runs of two versions"
    )

    for crash in range(1, 4):
        table = memory_table()
        worker = Worker(_dying(table, crash), batch="batch-1", attempts=1)

        with pytest.raises(RetriesExhaustedError):
            worker.process(*messages)

        assert made_by(table) == [str(number) for number in range(4 * (crash - 1))]
        assert Worker(table, batch="batch-1").process(*messages) == expected


def _dying(table: Table, crash: int) -> Table:
    def die(name: str, *_: object) -> None:
        if name == "transact" and intercepted.counts["transact"] >= crash:
            raise StoreUnavailableError("the machine is gone")

    intercepted = InterceptedTable(table, before=die)
    return intercepted


# Whatever messages and states are like, what a transaction writes keeps to the limits of a table.


def runs(table: Table) -> list[int]:
    return [row["Count"] for (_, key), row in sorted(rows(table).items()) if key.startswith("SS-SE-")]


def data_bytes(table: Table) -> list[int]:
    return [
        sum(len(value) for name, value in row.items() if name.startswith("Data"))
        for (_, key), row in sorted(rows(table).items())
        if key.startswith("SS-SE-")
    ]


def test_a_run_is_closed_at_its_raw_bytes(table):
    # States of 300 KB of which compression leaves almost nothing: what is read back must not fill the memory.
    messages = [misbehave("fill the diary", message_id=str(number)) for number in range(40)]

    Worker(table).process(*messages)

    most = -(-limits.MAX_RUN_RAW_BYTES // 300_000)
    assert runs(table) == [most, 40 - most]
    assert max(data_bytes(table)) < 10_000
    assert ends(Worker(table, batch="other").process(*messages)) == ["duplicate"] * 40


def test_versions_whose_ids_would_not_fit_one_row_make_several_runs(table):
    # Ids of 255 characters that take four bytes each.
    messages = [ponder(f"{number:05d}" + "\U0001f4d6" * 250) for number in range(600)]

    Worker(table).process(*messages)

    assert runs(table) == [150, 150, 150, 150]
    assert made_by(table) == [message.message_id for message in messages]


@pytest.mark.parametrize("diary", ["d-1", "日" * 506, "/" * 168, "é" * 506])
def test_a_full_transaction_is_small_enough_however_long_its_key_is(table, diary, monkeypatch):
    # The key is sent with each row, escaped, and a row has many properties: both count as bytes of the transaction.
    # So does the newest state, which just fits the header.
    monkeypatch.setattr(limits, "MAX_RUN_VERSIONS", 1)
    monkeypatch.setitem(NOISE, "bytes", 29_000)
    large = write("x" * 16_000, message_id="large", diary=diary)
    noise = [misbehave("capture noise", message_id=str(number), diary=diary) for number in range(120)]

    outcomes = Worker(table, business_id=diary).process(large, *noise)

    assert ends(outcomes) == ["processed"] * 121
    assert runs(table) == [1] * 121


texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=60)


@given(
    messages=st.lists(
        st.tuples(texts, st.integers(0, 3000), st.none() | st.dictionaries(texts, texts)), max_size=25
    ),
    diary=texts.filter(lambda text: len(text.encode()) < 100),
    smaller=st.fixed_dictionaries(
        {
            "MAX_RUN_VERSIONS": st.integers(1, 9),
            "MAX_RUN_RAW_BYTES": st.integers(1, 9000),
            "MAX_RUN_DATA_BYTES": st.integers(1, 9000),
            "MAX_TRANSACTION_RUNS": st.integers(1, 5),
        }
    ),
)
@settings(max_examples=60)
def test_whatever_the_limits_are_all_is_written_and_replayed(messages, diary, smaller):
    sizes = {message_id: (size, headers) for message_id, size, headers in messages}
    deliveries = [
        write(random.randbytes(size // 2).hex(), message_id=message_id, diary=diary, headers=headers)
        for message_id, (size, headers) in sizes.items()
    ]
    table = memory_table()

    with pytest.MonkeyPatch.context() as patched:
        for name, limit in smaller.items():
            patched.setattr(limits, name, limit)
        outcomes = Worker(table, business_id=diary, batch="b").process(*deliveries)

    assert ends(outcomes) == ["processed"] * len(deliveries)
    assert Worker(table, business_id=diary, batch="b").process(*deliveries) == outcomes


# States of any size up to the limit are stored and replayed, whether they fit the header or not.


FRAME = len('{"lines":[""],"words":[""],"weight":0.0}')


def noise(count: int) -> str:
    """Return text that does not get smaller by compression, of so many bytes."""
    chance = random.Random(count)
    return "".join(chr(chance.randrange(0x10000, 0x10FFFF)) for _ in range(count // 4)) + "x" * (count % 4)


def line_for_state_of(size: int) -> str:
    """Return a line that makes a state of so many bytes: it stands there as a line and as a word."""
    odd = (size - FRAME) % 2
    assert not odd, "choose an odd size"
    return noise((size - FRAME) // 2)


@pytest.mark.parametrize(
    "size", [HEADER_LIMIT - 10, HEADER_LIMIT, HEADER_LIMIT + 2, 100_000, MAX_STATE_BYTES]
)
def test_a_large_state_is_stored_and_replayed_and_returns_to_the_header_when_it_is_small(table, size):
    large = write(line_for_state_of(size), message_id="large")

    (first,) = Worker(table).process(large)
    (again,) = Worker(table).process(large)
    (pondered,) = Worker(table).process(ponder("p"))

    assert ends([first, again, pondered]) == ["processed", "duplicate", "processed"]
    assert again.outputs == first.outputs
    assert len(stored(table)[0].after) == size
    assert pondered.outputs[0].body == '{"lines":1}'
    assert ("State" in rows(table)[f"Diary-{DIARY}", "SS-HEAD"]) == (size <= HEADER_LIMIT)
    Worker(table).process(misbehave("burn the diary"))
    assert rows(table)[f"Diary-{DIARY}", "SS-HEAD"]["State"] == b'{"lines":[],"words":[],"weight":0.0}'


def test_the_largest_version_that_is_taken_can_be_stored(table, monkeypatch: pytest.MonkeyPatch):
    # Two states of the largest size and as much captured noise, none of which compression makes smaller.
    monkeypatch.setitem(SKY, "colour", "")
    Worker(table).process(write(line_for_state_of(MAX_STATE_BYTES), message_id="large"))

    def burn_and_fill(state, context):
        context.capture("noise", lambda: random.Random(1).randbytes(MAX_STATE_BYTES - 200))
        line = line_for_state_of(MAX_STATE_BYTES)[::-1]
        return state.model_copy(update={"lines": (line,), "words": frozenset({line})})

    monkeypatch.setitem(DEEDS, "burn and fill", burn_and_fill)
    filling = misbehave("burn and fill", message_id="filled")

    (outcome,) = Worker(table).process(filling)
    (again,) = Worker(table).process(filling)

    assert ends([outcome, again]) == ["processed", "duplicate"]
    assert len(stored(table)[1].after) == MAX_STATE_BYTES
    largest = max(
        len(value) for row in rows(table).values() for value in row.values() if isinstance(value, bytes)
    )
    assert largest == MAX_BINARY_BYTES


# A group of deliveries has the outcomes and leaves the versions that its deliveries have one by one.


class Add(Message):
    account: str
    amount: int
    note: str = ""


class Added(Message):
    total: int
    lot: str


class AccountData(State):
    total: int = 0
    note: str | None = None


class LabelledData(AccountData):
    labels: frozenset[str] = frozenset()


class Account(Handler[AccountData], name="Account"):
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
drawn_deliveries = st.builds(
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
    st.just(open_batches("day")),
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


def in_one_group(table: Table, app: App, batch: BatchContext, log: Sequence[Envelope]) -> Outcomes:
    worker = Worker(table, app, batch=batch, business_id="a-1")
    drawn_deliveries = prepare_all(worker.handler, "a-1", Envelopes.of(log))
    return Outcomes.of(drive(worker.algorithm.process("a-1", drawn_deliveries)))


def one_by_one(table: Table, app: App, batch: BatchContext, log: Sequence[Envelope]) -> list[Outcome]:
    worker, seen = Worker(table, app, batch=batch, business_id="a-1"), NOTHING
    outcomes: list[Outcome] = []
    for each in log:
        ended = drive(worker.algorithm.process("a-1", [prepare(worker.handler, "a-1", each)], seen))
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
@given(
    st.lists(drawn_deliveries, max_size=6),
    st.lists(drawn_deliveries, min_size=1, max_size=20),
    contexts,
    bounds,
)
def test_a_group_gives_what_its_deliveries_give_one_by_one(handler, before, log, batch, smaller):
    app, day = App(handler), BatchContext("day")
    together, apart = memory_table(), memory_table()
    with pytest.MonkeyPatch.context() as patch:
        for name, value in smaller.items():
            patch.setattr(limits, name, value)
        if before:
            assert in_one_group(together, app, day, before) == one_by_one(apart, app, day, before)

        outcomes = in_one_group(together, app, batch, log)

        assert outcomes == one_by_one(apart, app, batch, log)
        assert kept(together) == kept(apart)
        check_index(together, "Account-a-1")
        assert [outcome.envelope for outcome in outcomes] == log
        assert in_columns(outcomes) == in_columns(Outcomes.of(list(outcomes)))


FAILURES: list[str] = []


class Fragile(Handler[AccountData], name="Account"):
    @handles(by="account")
    def add(self, state: AccountData, message: Add, context: Context) -> AccountData:
        if context.message_id in FAILURES:
            FAILURES.remove(context.message_id)
            object.__setattr__(state, "total", -1)
            raise ValueError("not now")
        return state.model_copy(update={"total": state.total + message.amount})


def test_a_replay_that_fails_leaves_nothing_to_the_next_one():
    a, b = (Envelope(name, "Add", f'{{"account": "a-1", "amount": {len(name)}}}') for name in "ab")
    log = [a, b, b]
    app, table = App(Fragile), memory_table()
    in_one_group(table, app, BatchContext("day"), log[:2])
    FAILURES.append("b")

    outcomes = in_one_group(table, app, BatchContext("night", OpenBatches()), log)

    assert ends(outcomes) == ["duplicate", "replay_failed", "duplicate"]

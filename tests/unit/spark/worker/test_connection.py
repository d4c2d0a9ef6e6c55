"""Connections of workers: how many streams are in flight, and commits that streams share."""

import asyncio
import os
import signal
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eventstore import (
    InterceptedTable,
    Operation,
    StoreUnavailableError,
    Table,
    connect,
    drive,
)
from eventstore.backends.sqlite import SqliteTable
from runtime.batch_options import TablePlace
from runtime.errors import RetriesExhaustedError
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome
from runtime.retries import RetryPolicy
from runtime.spark.worker.connection import (
    FEWEST,
    ConcurrencyLimit,
    Connection,
    EventLoop,
    GroupCommit,
    MeasuredTable,
    Wait,
    open_table,
)
from runtime.versions import limits
from tests.unit.runtime.diary import misbehave, ponder, write
from tests.unit.runtime.worker import Worker, ends, made_by, stored

MOST = 64


def limit_after(*answers: tuple[float | None, int], most: int = MOST) -> int:
    """Return the limit after so many answers in so many seconds each, or failures."""
    concurrency = ConcurrencyLimit(most)
    for seconds, times in answers:
        for _ in range(times):
            concurrency.failed() if seconds is None else concurrency.answered(seconds)
    return concurrency.limit


AT_REST = (0.01, 2_000)


@pytest.mark.parametrize(
    ("answers", "most", "least", "highest"),
    [
        # A store that answers as fast as ever gets more streams, up to the bound, and one that becomes slow gets fewer,
        ([(0.01, 100)], MOST, ConcurrencyLimit(MOST).limit + 1, MOST),
        ([AT_REST], MOST, MOST, MOST),
        ([AT_REST, (0.1, 2 * MOST)], MOST, FEWEST, MOST // 2 - 1),
        # ... until it is found to be slower for good.
        ([AT_REST, (0.1, 20_000)], MOST, MOST // 2, MOST),
        # A failure halves the number, but there is always a stream under way, and there are more again.
        ([AT_REST, (None, 1)], MOST, MOST // 2, MOST // 2),
        ([(None, 20)], MOST, FEWEST, FEWEST),
        ([(None, 20), AT_REST], MOST, MOST, MOST),
        # A small bound is kept.
        *(([AT_REST, (None, 1)], most, min(most, FEWEST), min(most, FEWEST)) for most in (1, 2, 3)),
    ],
)
def test_there_are_as_many_streams_at_once_as_a_store_serves(answers, most, least, highest) -> None:
    assert least <= limit_after(*answers, most=most) <= highest


def test_calls_of_a_table_are_taken_note_of_and_failures_too() -> None:
    concurrency = ConcurrencyLimit(MOST)
    for _ in range(2_000):
        concurrency.answered(1.0)
    table = drive(connect("memory:").table("games"))
    measured = MeasuredTable(table, concurrency)

    def fail(*_: object) -> None:
        raise StoreUnavailableError("no answer")

    assert drive(measured.get("stream", "row")) is None
    with pytest.raises(StoreUnavailableError):
        drive(MeasuredTable(InterceptedTable(table, before=fail), concurrency).get("stream", "row"))

    assert concurrency.limit == MOST // 2


def test_coroutines_are_asked_for_only_while_there_is_room() -> None:
    loop = EventLoop()
    concurrency = ConcurrencyLimit(4)
    under_way, most_under_way = 0, 0

    async def work(number: int) -> int:
        nonlocal under_way, most_under_way
        under_way += 1
        most_under_way = max(most_under_way, under_way)
        for _ in range(3):
            await asyncio.sleep(0)
        under_way -= 1
        return number

    asked = 0

    def coroutines() -> Iterator[Coroutine[Any, Any, int]]:
        nonlocal asked
        for number in range(50):
            asked += 1
            assert asked - len(results) <= concurrency.limit
            yield work(number)

    results: list[int] = []
    try:
        for result in loop.run_all(coroutines(), concurrency):
            results += [result]
    finally:
        loop.close()

    assert sorted(results) == list(range(50))
    assert 1 < most_under_way <= concurrency.limit


@pytest.fixture
def interrupted_as_in_a_terminal():
    """Let Python raise KeyboardInterrupt: a process that was started in the background ignores the signal."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def loop():
    made = EventLoop()
    yield made
    made.close()


@pytest.mark.usefixtures("interrupted_as_in_a_terminal")
@pytest.mark.parametrize("interrupts", ["the wait", "the code of the request"])
def test_it_ends_the_request_and_the_next_one_runs(loop, interrupts, caplog):
    steps = []

    async def request():
        try:
            steps.append("sent")
            interrupt = threading.Timer(0.01, os.kill, (os.getpid(), signal.SIGINT))
            interrupt.start()
            if interrupts == "the wait":
                await asyncio.sleep(60)
            else:
                await asyncio.sleep(0)
                while True:
                    steps.append("reading") if steps[-1] != "reading" else None
        finally:
            steps.append("closed")

    async def answer():
        return len(asyncio.all_tasks())

    with pytest.raises(KeyboardInterrupt):
        loop.run(request())

    assert steps[-1] == "closed"
    assert loop.run(answer()) == 1
    assert not caplog.records


STREAMS = ["a", "b", "c", "d", "e"]
TOGETHER = ConcurrencyLimit(len(STREAMS))


@pytest.fixture
def url(tmp_path):
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def connection(url) -> Iterator[Connection]:
    connection = Connection(TablePlace(url, "states"))
    yield connection
    connection.close()


@pytest.fixture
def elsewhere(url, connection) -> Iterator[Table]:
    """Give the table as another process has it."""
    store = connect(url)
    yield drive(store.table("states"))
    drive(store.close())


@pytest.fixture
def statements(connection) -> list[str]:
    """Collect the statements that begin and end transactions of the file."""
    said: list[str] = []
    file(connection).set_trace_callback(said.append)
    return said


def file(connection: Connection) -> sqlite3.Connection:
    opened: sqlite3.Connection = connection.store.connection()  # type: ignore[attr-defined]
    return opened


def insert(value: int | bytes = 1) -> list[Operation]:
    return [Operation.insert("row", {"V": value})]


async def put(table: Table, key: str) -> str:
    await table.query(key, "", "~")
    await table.transact(key, insert())
    return key


async def process(table: Table, key: str, retries: RetryPolicy | None = None) -> list[str]:
    worker = Worker(table, business_id=key, batch="night")
    if retries is not None:
        worker.algorithm.retries = retries
    return ends(await worker.handle(write("first", diary=key), write("second", diary=key)))


def test_what_as_many_streams_append_as_are_under_way_is_one_commit_that_nobody_hears_of_before(
    url, connection, elsewhere, statements
):
    keys = [f"p{number:02}" for number in range(12)]
    seen: list[int] = []

    def write_elsewhere(name: str, key: str, number: int) -> None:
        if name == "transact":  # nothing is locked before all have come to their commit
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0)) as other:
                other.execute("BEGIN IMMEDIATE")

    def look(name: str, key: str, number: int, result: object) -> None:
        if name == "transact":
            seen.append(sum(drive(elsewhere.get(each, "row")) is not None for each in keys))

    table = InterceptedTable(connection.table, write_elsewhere, look)

    assert list(connection.run_all((put(table, key) for key in keys), TOGETHER)) == keys

    assert seen == [5] * 5 + [10] * 5 + [12] * 2
    assert statements.count("COMMIT") == 3
    assert not statements.count("SAVEPOINT one"), "one operation alone needs none"
    assert table.counts == {"query": 12, "transact": 12}


@pytest.mark.parametrize("has_effect", [True, False])
def test_after_a_lost_answer_to_a_commit_all_look_what_is_stored(
    connection, elsewhere, monkeypatch, has_effect
):
    commit = SqliteTable.transact_each
    sizes: list[int] = []

    async def lose_the_first(self, transactions):
        sizes.append(len(transactions))
        if len(sizes) > 1:
            return await commit(self, transactions)
        if has_effect:
            await commit(self, transactions)
        raise StoreUnavailableError("no answer", outcome_unknown=True)

    monkeypatch.setattr(SqliteTable, "transact_each", lose_the_first)

    outcomes = list(connection.run_all((process(connection.table, key) for key in STREAMS), TOGETHER))

    assert outcomes == [["processed"] * 2] * len(STREAMS)
    assert all(made_by(elsewhere, business_id=key) == ["first", "second"] for key in STREAMS)
    # What did take effect is found, and nothing is written again; else each of them commits by itself.
    assert sizes == ([5] if has_effect else [5, 1, 1, 1, 1, 1])


def test_a_full_disk_is_told_to_all_and_those_that_fit_are_stored(connection, elsewhere):
    (pages,) = file(connection).execute("PRAGMA page_count").fetchone()
    file(connection).execute(f"PRAGMA max_page_count={pages + 4}")

    errors: list[str] = []

    async def told(key: str, value: int | bytes = 1) -> str:
        try:
            await connection.table.transact(key, insert(value))
        except StoreUnavailableError as error:
            errors.append(str(error))
            await connection.table.transact(key, insert())
        return key

    work = [told("a"), told("b", b"x" * 60_000), told("c")]

    assert list(connection.run_all(work, TOGETHER)) == ["a", "b", "c"]
    assert ["full" in error for error in errors] == [True] * 3
    rows = [drive(elsewhere.get(key, "row")) for key in ("a", "b", "c")]
    assert [row.properties for row in rows if row] == [{"V": 1}] * 3


def test_a_store_that_stays_unavailable_is_given_up_as_if_there_were_one_stream(connection, monkeypatch):
    pauses: list[float] = []

    async def fail(self, transactions):
        raise StoreUnavailableError("locked")

    async def note(seconds: float) -> None:
        pauses.append(seconds)

    monkeypatch.setattr(SqliteTable, "transact_each", fail)
    retries = RetryPolicy(attempts=4, sleep=note)

    with pytest.raises(RetriesExhaustedError, match="4 attempts"):
        list(connection.run_all((process(connection.table, key, retries) for key in STREAMS), TOGETHER))

    assert len(pauses) == 3


def test_when_one_fails_the_others_end_and_what_was_not_committed_is_not_stored(connection, elsewhere):
    closed: list[str] = []

    async def put_and_note(key: str) -> str:
        try:
            return await put(connection.table, key)
        finally:
            closed.append(key)

    async def fail() -> str:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        list(connection.run_all([put_and_note("a"), put_and_note("b"), fail()], TOGETHER))

    assert closed == ["a", "b"]
    assert [drive(elsewhere.get(key, "row")) for key in ("a", "b")] == [None, None]


def test_who_wants_no_more_results_ends_those_that_have_none_yet(connection, elsewhere):
    results = connection.run_all((put(connection.table, key) for key in "abcd"), ConcurrencyLimit(2))

    assert next(results) == "a"
    results.close()

    # Those two were committed together; the others had not begun.
    assert [drive(elsewhere.get(key, "row")) is not None for key in "abcd"] == [True, True, False, False]
    assert drive(connection.table.get("d", "row")) is None


def test_a_wait_holds_back_what_comes_after_it(connection):
    begun: list[str] = []

    async def twice(key: str) -> str:
        begun.append(key)
        (etag,) = await connection.table.transact(key, insert())
        await connection.table.transact(key, [Operation.replace("row", {"V": 2}, etag)])
        return key

    def work() -> Iterator[object]:
        yield twice("a")
        yield put(connection.table, "b")
        yield Wait.FOR_ONE
        begun.append("one has ended")
        yield twice("c")
        yield Wait.FOR_ALL
        begun.append("all have ended")
        yield twice("d")

    ended: list[str] = []
    for key in connection.run_all(work(), TOGETHER):
        ended.append(key)
        begun.append(f"{key} ended")

    assert ended == ["b", "a", "c", "d"]
    assert begun == [
        *["a", "b ended", "one has ended"],
        *["c", "a ended", "c ended", "all have ended", "d", "d ended"],
    ]


def test_outside_of_such_work_a_transaction_is_committed_at_once(connection, elsewhere, statements):
    work = connection.run_all((put(connection.table, key) for key in "ab"), ConcurrencyLimit(1))
    assert next(work) == "a"

    connection.run(put(connection.table, "x"))

    assert drive(elsewhere.get("x", "row")) is not None
    assert (list(work), statements.count("COMMIT")) == (["b"], 3)


def test_states_and_another_table_are_committed_each_for_itself(tmp_path, url):
    connection = Connection(TablePlace(url, "states"), TablePlace(f"sqlite:///{tmp_path}/other.db", "tokens"))

    async def put_both(key: str) -> str:
        await put(connection.table, key)
        return await put(connection.other, key)

    work: list[object] = [put_both("a"), put(connection.other, "b"), put_both("c")]
    assert list(connection.run_all(work, TOGETHER)) == ["b", "a", "c"]  # type: ignore[arg-type]

    for table, keys in (connection.table, "ac"), (connection.other, "abc"):
        assert "".join(key for key in "abc" if connection.run(table.get(key, "row"))) == keys
    connection.close()


@pytest.mark.parametrize("name", ["sqlite:///store.db", "env:STORE"])
@pytest.mark.parametrize("kept", ["states", "other"])
def test_a_store_is_known_by_what_its_url_means_and_not_by_what_it_says(tmp_path, monkeypatch, name, kept):
    # Given tables that are opened by the same words, in three working directories with environments of their own
    opened = []
    for folder in (tmp_path / "first", tmp_path / "second", tmp_path / "first"):
        folder.mkdir(exist_ok=True)
        monkeypatch.chdir(folder)
        monkeypatch.setenv("STORE", f"sqlite:///{folder}/store.db")
        states = name if kept == "states" else f"sqlite:///{tmp_path}/states.db"
        opened.append(open_table(states, "games", TablePlace(name, "others")))
        assert (folder / "store.db").exists()

    # Then those of two are of two stores, and the first is still open
    assert opened[0] is opened[2]
    assert opened[0] is not opened[1]
    for each in opened[:2]:
        each.close()


KEYS = "abcdef"
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
@given(story=st.fixed_dictionaries({key: st.tuples(deliveries, disturbances) for key in KEYS}))
def test_any_streams_and_any_disturbances(kind, story):
    with new_table(kind) as table:
        one_by_one = told(table, story)

    for most in (1, 2, len(KEYS)):
        with new_table(kind) as table:
            assert told(table, story, most) == one_by_one

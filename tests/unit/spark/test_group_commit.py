"""Streams on a file that a worker processes together: one commit for what they append, each with its own outcome."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from eventstore import (
    InterceptedTable,
    Operation,
    RowExistsError,
    StoreUnavailableError,
    Table,
    connect,
    drive,
)
from eventstore.backends.sqlite import SqliteTable
from runtime.batch_options import TablePlace
from runtime.errors import RetriesExhaustedError
from runtime.retries import RetryPolicy
from runtime.spark.worker.connection import ConcurrencyLimit, Connection, Wait
from tests.unit.runtime.diary import write
from tests.unit.runtime.worker import Worker, ends, made_by

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
    opened: sqlite3.Connection = connection.store._file.connection()  # type: ignore[attr-defined]
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


def test_what_as_many_streams_append_as_are_under_way_is_one_commit(connection, statements):
    table = InterceptedTable(connection.table)
    keys = [f"p{number:02}" for number in range(12)]

    done = list(connection.run_all((put(table, key) for key in keys), TOGETHER))

    assert done == keys
    assert statements.count("COMMIT") == 3
    assert not statements.count("SAVEPOINT one"), "one operation alone needs none"
    assert table.counts == {"query": 12, "transact": 12}


def test_nothing_is_locked_before_all_have_come_to_their_commit(url, connection):
    def write_elsewhere(name: str, key: str, number: int) -> None:
        if name == "transact":
            with closing(sqlite3.connect(url.removeprefix("sqlite:///"), timeout=0)) as other:
                other.execute("BEGIN IMMEDIATE")

    table = InterceptedTable(connection.table, write_elsewhere)

    assert list(connection.run_all((put(table, key) for key in STREAMS), TOGETHER)) == STREAMS


def test_nobody_hears_of_a_transaction_before_it_is_committed(connection, elsewhere):
    seen: list[list[str]] = []

    def look(name: str, key: str, number: int, result: object) -> None:
        if name == "transact":
            seen.append([each for each in STREAMS if drive(elsewhere.get(each, "row"))])

    table = InterceptedTable(connection.table, after=look)
    list(connection.run_all((put(table, key) for key in STREAMS), TOGETHER))

    assert seen == [STREAMS] * len(STREAMS)


def test_a_refusal_is_told_to_its_stream_alone(connection, elsewhere):
    drive(elsewhere.transact("c", insert(7)))

    async def told(key: str) -> str:
        try:
            await connection.table.transact(key, [*insert(), Operation.insert("other", {})])
        except RowExistsError as error:
            return f"{key} {error.index}"
        return key

    assert list(connection.run_all(map(told, STREAMS), TOGETHER)) == ["a", "b", "c 0", "d", "e"]
    assert drive(elsewhere.get("c", "other")) is None


def test_a_stream_that_lost_a_race_is_processed_again_and_the_others_are_not(connection, elsewhere):
    def write_first(name: str, key: str, number: int) -> None:
        if name == "transact" and key == "Diary-c" and table.counts["transact"] <= len(STREAMS):
            Worker(elsewhere, business_id="c", batch="day").process(write("second", diary="c"))

    table = InterceptedTable(connection.table, write_first)

    outcomes = list(connection.run_all((process(table, key) for key in STREAMS), TOGETHER))

    # The one that was overtaken ends last.
    assert outcomes == [["processed", "processed"]] * 4 + [["processed", "duplicate"]]
    assert table.counts == {"query": 6, "transact": 6}
    assert made_by(elsewhere, business_id="c") == ["second", "first"]
    assert made_by(elsewhere, business_id="e") == ["first", "second"]


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


@pytest.mark.parametrize("waits", [[Wait.FOR_ONE], [Wait.FOR_ALL], [Wait.FOR_ONE, Wait.FOR_ALL]])
def test_a_wait_for_nothing_is_over_at_once(connection, waits):
    assert list(connection.run_all([*waits, put(connection.table, "a"), *waits], TOGETHER)) == ["a"]


def test_outside_of_such_work_a_transaction_is_committed_at_once(connection, elsewhere, statements):
    work = connection.run_all((put(connection.table, key) for key in "ab"), ConcurrencyLimit(1))
    assert next(work) == "a"

    connection.run(put(connection.table, "x"))

    assert drive(elsewhere.get("x", "row")) is not None
    assert list(work) == ["b"]
    assert statements.count("COMMIT") == 3


def test_states_and_another_table_are_committed_each_for_itself(tmp_path, url):
    other = TablePlace(f"sqlite:///{tmp_path}/other.db", "tokens")
    connection = Connection(TablePlace(url, "states"), other)

    async def put_both(key: str) -> str:
        await put(connection.table, key)
        return await put(connection.other, key)

    work: list[object] = [put_both("a"), put(connection.other, "b"), put_both("c")]
    assert list(connection.run_all(work, TOGETHER)) == ["b", "a", "c"]  # type: ignore[arg-type]

    for table, keys in (connection.table, "ac"), (connection.other, "abc"):
        assert "".join(key for key in "abc" if connection.run(table.get(key, "row"))) == keys
    connection.close()


def test_a_coroutine_that_waits_for_something_else_is_an_error(connection):
    class Something:
        def __await__(self):
            yield "something else"

    async def wait() -> None:
        await Something()

    with pytest.raises(TypeError, match="something else"):
        list(connection.run_all([wait()], TOGETHER))

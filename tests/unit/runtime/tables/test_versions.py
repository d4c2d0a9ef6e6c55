"""Whatever happened to a table: read as tables it is what `consistent show` shows, now and as it was, also in part."""

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from io import StringIO
from operator import ge, gt, itemgetter, le, lt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from runtime.cli import main
from runtime.clock import to_datetime, to_microseconds
from runtime.tables import read_batches, read_letters, read_state, read_versions
from runtime.tables.reader import Request, TableKind, read, scan
from runtime.tables.sql import TableDataset
from tests.support.names import new_name
from tests.support.network_store import driven_table
from tests.support.postgresql import administer
from tests.unit.runtime.tables.random_worlds import DIARIES, World, steps

TABLE = "diaries"

_SOME = ("batch", [(DIARIES[0], "write")] * 8 + [(DIARIES[1], "write"), (DIARIES[1], "fail")])
CUT = [_SOME, _SOME, ("truncate", 1), _SOME]
FORGOTTEN = [_SOME, ("forget", DIARIES[0]), ("batch", [(DIARIES[1], "ponder")])]

few = settings(max_examples=settings().max_examples // 4)
"""Each example is a whole world."""


ON_DISK = [pytest.param(each, marks=pytest.mark.thorough) for each in ("sqlite", "postgresql")]


@pytest.fixture(params=["memory", *ON_DISK], scope="module")
def new_store(request, tmp_path_factory) -> Callable[[], str]:
    def new_schema() -> str:
        schema = new_name().lower()
        administer(request.getfixturevalue("postgresql_url"), f"CREATE SCHEMA {schema}")
        return f"{request.getfixturevalue('postgresql_url')}?schema={schema}"

    folder = tmp_path_factory.mktemp("stores")
    on_disk = {"sqlite": lambda: f"sqlite:///{folder}/{new_name()}.db", "postgresql": new_schema}
    return on_disk.get(request.param, new_memory_store)


def new_memory_store() -> str:
    return f"memory:{new_name()}"


def world_in(store: str, happened: Any) -> World:
    with driven_table(store, TABLE) as table:
        world = World(table)
        world.run(happened)
    return world


def said(store: str, *command: str) -> dict[str, Any] | None:
    """Return the document that a command shows of the table, None when it fails."""
    out = StringIO()
    with pytest.raises(SystemExit) as ended, redirect_stdout(out), redirect_stderr(StringIO()):
        main([*command, "--store", store, "--table", TABLE, "--json"])
    document: dict[str, Any] | None = None if ended.value.code else json.loads(out.getvalue())
    return document


def known(rows: list[dict[str, Any]]) -> dict[str, tuple[int, bytes]]:
    return {row["business_id"]: (row["version"], row["state"].encode()) for row in rows if row["state"]}


def unknown(rows: list[dict[str, Any]]) -> dict[str, int]:
    """Return the streams of which something is not known, with the time from which it is."""
    times = {row["business_id"]: row["known_from"] for row in rows}
    return {diary: to_microseconds(time) for diary, time in times.items() if time is not None}


def whatever_happened(test: Any) -> Any:
    return few(given(happened=steps)(example(happened=CUT)(example(happened=FORGOTTEN)(test))))


@whatever_happened
def test_states_versions_batches_and_letters_are_what_commands_show(new_store, happened):
    store = new_store()
    world_in(store, happened)

    states = {row["business_id"]: row for row in read_state(store, TABLE).to_pylist()}
    made = read_versions(store, TABLE).to_pylist()

    for diary in DIARIES:
        document = said(store, "show", "--limit", "0", "Diary", diary)
        row = states.pop(diary, None)
        assert (document is None) == (row is None)
        if document is None or row is None:
            continue
        assert (row["version"], row["kept_from"]) == (document["newest_version"], document["kept_from"])
        assert (json.loads(row["state"]) if row["state"] else None) == document["state"]
        assert row["letters"] == document["letters"]
        facts = itemgetter("version", "message_id", "type", "batch", "state")
        own = [{**each, "state": json.loads(each["after"])} for each in made if each["business_id"] == diary]
        assert list(map(facts, own)) == list(map(facts, document["versions"]))
        waiting = read_letters(store, TABLE, handler="Diary", business_id=diary)
        assert waiting.num_rows == document["letters"]
    assert not states
    batches = {row["batch"]: row["status"] for row in read_batches(store, TABLE).to_pylist()}
    listed = {command: said(store, command) or {} for command in ("batches", "letters")}
    assert {each["batch_id"]: each["status"] for each in listed["batches"]["batches"]} == batches
    letters = set(read_letters(store, TABLE)["message_id"].to_pylist())
    assert {each["message_id"] for each in listed["letters"]["letters"]} == letters


@whatever_happened
def test_states_as_of_each_step_are_those_that_were_seen_then(new_store, happened):
    store = new_store()
    world = world_in(store, happened)

    for snapshot in world.snapshots:
        rows = read_state(store, TABLE, as_of=to_datetime(snapshot.moment)).to_pylist()
        late = unknown(rows)
        assert all(moment > snapshot.moment for moment in late.values())
        assert world.remembered(known(rows)) == world.remembered(snapshot.states, late)


@whatever_happened
def test_states_as_of_each_batch_and_the_feed_up_to_it_are_those_at_its_end(new_store, happened):
    store = new_store()
    world = world_in(store, happened)

    for snapshot in filter(lambda each: each.batch is not None, world.snapshots):
        rows = read_state(store, TABLE, batch_id=snapshot.batch).to_pylist()
        expected = world.remembered(snapshot.states, unknown(rows))
        assert world.remembered(known(rows)) == expected
        feed = read_versions(store, TABLE, read_change_feed=True, change_end_batch_id=snapshot.batch)
        summed = {row["business_id"]: row["after"].encode() for row in feed.to_pylist()}
        assert not set(summed) & set(unknown(rows))
        assert {diary: summed[diary] for diary in expected} == {
            diary: state for diary, (_, state) in expected.items()
        }


def test_a_stream_that_was_cut_says_from_when_it_is_known(new_store):
    store = new_store()
    world = world_in(store, CUT)
    first = next(row for row in read_versions(store, TABLE).to_pylist() if row["business_id"] == DIARIES[0])

    rows = read_state(store, TABLE, as_of=to_datetime(world.snapshots[0].moment)).to_pylist()
    feed = read_versions(store, TABLE, handler="Diary", business_id=DIARIES[0], read_change_feed=True)

    assert first["version"] > 1
    (row,) = (row for row in rows if row["business_id"] == DIARIES[0])
    assert (row["version"], row["state"], row["known_from"]) == (None, None, first["now"])
    snapshot, following, *_ = feed.to_pylist()
    assert (snapshot["change_type"], snapshot["version"]) == ("snapshot", first["version"] - 1)
    assert (snapshot["after"], following["version"]) == (first["before"], first["version"])


TIMES = {TableKind.STATE: "now", TableKind.VERSIONS: "now", TableKind.LETTERS: "refused_at"}
STREAMS = {TableKind.STATE: "business_id", TableKind.VERSIONS: "business_id", TableKind.LETTERS: "stream"}


def in_order(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


def scanned(store: str, request: Request, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    return scan(store, TABLE, request.with_columns(names))


@few
@given(happened=steps, data=st.data())
def test_some_columns_of_some_rows_are_those_of_the_whole_table(happened, data):
    store = new_memory_store()
    world = world_in(store, happened)

    for kind in TableKind:
        request = Request(kind)
        whole = read(store, TABLE, request)
        columns = data.draw(st.lists(st.sampled_from(whole.column_names), unique=True))
        condition = data.draw(conditions(kind, world))

        dataset = TableDataset(request.schema, partial(scanned, store, request))
        found = dataset.to_table(columns=columns, filter=condition)

        expected = whole if condition is None else whole.filter(condition)
        assert found.num_rows == expected.num_rows
        assert in_order(found) == in_order(expected.select(columns))


@st.composite
def conditions(draw: st.DrawFn, kind: TableKind, world: World) -> pc.Expression | None:
    """Return a condition on the stream, the time or both; one that narrows what is read, and one that does not."""
    if kind is TableKind.BATCHES:
        return draw(st.sampled_from([None, pc.field("batch") == "batch-0"]))
    moments = [snapshot.moment for snapshot in world.snapshots]
    compare, moment = draw(st.sampled_from([ge, gt, le, lt])), draw(st.sampled_from(moments))
    on_time = compare(pc.field(TIMES[kind]), pa.scalar(to_datetime(moment), pa.timestamp("us", tz="UTC")))
    on_stream = pc.field(STREAMS[kind]) == draw(st.sampled_from([*DIARIES, "nobody"]))
    on_handler = pc.field("handler") == "Diary"
    return draw(
        st.sampled_from(
            [None, on_time, on_stream, on_handler & on_stream & on_time, on_stream | on_time, ~on_stream]
        )
    )


@few
@given(happened=steps, data=st.data())
def test_the_feed_of_some_batches_is_what_the_whole_feed_has_of_them(happened, data):
    store = new_memory_store()
    world = world_in(store, happened)
    batches = [snapshot.batch for snapshot in world.snapshots if snapshot.batch is not None]
    if not batches:
        return
    first = data.draw(st.integers(0, len(batches) - 1))
    last = data.draw(st.integers(first, len(batches) - 1))
    read_feed = partial(read_versions, store, TABLE, read_change_feed=True)

    some = read_feed(change_start_batch_id=batches[first], change_end_batch_id=batches[last])

    whole = read_feed()
    wanted = pc.is_in(whole["batch"], value_set=pa.array(batches[first : last + 1], pa.string()))
    changes = some.filter(pc.is_in(some["batch"], value_set=pa.array(batches, pa.string())))
    assert in_order(changes) == in_order(whole.filter(wanted))

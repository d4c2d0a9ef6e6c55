"""Whatever happened to a table: some columns of some rows are those that the whole of it has."""

from __future__ import annotations

import json
from contextlib import redirect_stdout
from io import StringIO
from operator import ge, gt, le, lt
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eventstore import connect, drive
from runtime.cli import main
from runtime.clock import to_datetime
from runtime.tables import read_batches, read_letters, read_versions
from runtime.tables.reader import Kind, Request, read
from runtime.tables.sql import TableDataset
from tests.support.names import new_name
from tests.unit.runtime.table_reading.random_worlds import DIARIES, World, steps

TABLE = "diaries"
TIMES = {Kind.STATE: "now", Kind.VERSIONS: "now", Kind.LETTERS: "refused_at"}
STREAMS = {Kind.STATE: "business_id", Kind.VERSIONS: "business_id", Kind.LETTERS: "stream"}

few = settings(max_examples=settings().max_examples // 4)
"""Each example is a whole world."""


def world_in(happened: Any) -> tuple[str, World]:
    store = f"memory:{new_name()}"
    world = World(drive(connect(store).table(TABLE)))
    world.run(happened)
    return store, world


def in_order(table: pa.Table) -> list[str]:
    return sorted(map(str, table.to_pylist()))


@few
@given(happened=steps, data=st.data())
def test_some_columns_of_some_rows_are_those_of_the_whole_table(happened, data):
    store, world = world_in(happened)

    for kind in Kind:
        request = Request(kind)
        whole = read(store, TABLE, request)
        columns = data.draw(
            st.lists(st.sampled_from(whole.column_names), unique=True), label=f"{kind} columns"
        )
        condition = data.draw(conditions(kind, world), label=f"{kind} condition")

        found = TableDataset(store, TABLE, request).to_table(columns=columns, filter=condition)

        expected = whole if condition is None else whole.filter(condition)
        assert found.num_rows == expected.num_rows
        assert in_order(found) == in_order(expected.select(columns))


@st.composite
def conditions(draw: st.DrawFn, kind: Kind, world: World) -> pc.Expression | None:
    """Return a condition on the stream, the time or both; one that narrows what is read, and one that does not."""
    if kind is Kind.BATCHES:
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
    store, world = world_in(happened)
    batches = [snapshot.batch for snapshot in world.snapshots if snapshot.batch is not None]
    if not batches:
        return
    first = data.draw(st.integers(0, len(batches) - 1), label="first")
    last = data.draw(st.integers(first, len(batches) - 1), label="last")

    some = read_versions(
        store, TABLE, read_change_feed=True, change_start_batch_id=batches[first],
        change_end_batch_id=batches[last],
    )  # fmt: skip

    whole = read_versions(store, TABLE, read_change_feed=True)
    wanted = pc.is_in(whole["batch"], value_set=pa.array(batches[first : last + 1], pa.string()))
    changes = some.filter(pc.is_in(some["batch"], value_set=pa.array(batches, pa.string())))
    assert in_order(changes) == in_order(whole.filter(wanted))


@few
@given(happened=steps)
def test_batches_and_letters_are_those_that_are_listed(happened):
    store, _ = world_in(happened)

    batches = {row["batch"]: row for row in read_batches(store, TABLE).to_pylist()}
    letters = {row["message_id"]: row for row in read_letters(store, TABLE).to_pylist()}

    listed = said(store, "batches")["batches"]
    assert {each["batch_id"]: each["status"] for each in listed} == {
        name: row["status"] for name, row in batches.items()
    }
    assert {each["message_id"] for each in said(store, "letters")["letters"]} == set(letters)


def said(store: str, *command: str) -> Any:
    out = StringIO()
    with pytest.raises(SystemExit), redirect_stdout(out):
        main([*command, "--store", store, "--table", TABLE, "--json"])
    return json.loads(out.getvalue())

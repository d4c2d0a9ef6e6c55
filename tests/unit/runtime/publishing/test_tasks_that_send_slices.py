"""Two attempts at a task of Spark that sends slices, without Spark; `tests/integration/spark` has the rest."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa

from runtime.batch_options import TablePlace
from runtime.clock import system_clock
from runtime.publishing.outputs import slice_of
from runtime.publishing.publisher import PublishOptions
from runtime.publishing.records import Publications
from runtime.publishing.runner import begin
from runtime.spark.publishing import RouteJob, SendJob
from tests.support.done_batches import TABLE

OPTIONS = PublishOptions(slices=3)


def test_a_task_that_runs_twice_at_the_same_time_sends_each_output_once_and_marks_empty_slices(make):
    # Given two games, so that a slice has no outputs
    batch, sent = make(2, 12), list[str]()

    def send(output):
        time.sleep(0.002)
        sent.append(output.message_id)

    open_target = partial(batch.target, "post:send", send=send)
    target, out = open_target(), str(batch.out)
    starting = partial(
        begin, record=batch.record, out=out, target=target, options=OPTIONS, clock=system_clock
    )
    begun = batch.on_table(starting)
    files = begun.outputs.files()
    route = RouteJob(begun.outputs, files, 3, begun.waiting)
    routed = list(route.run([pa.RecordBatch.from_pydict({"id": list(range(len(files)))})]))
    assert all(
        each["slice"] == slice_of(each["business_id"], 3) for part in routed for each in part.to_pylist()
    )

    def run():
        numbers = pa.RecordBatch.from_pydict({"slice": pa.array(range(3), pa.int32())})
        tables = [pa.Table.from_batches([each]) for each in (*routed, numbers)]
        rows = pa.concat_tables(tables, promote_options="default").to_batches()
        place = TablePlace(batch.store, TABLE)
        job = SendJob(place, open_target, begun.publication, OPTIONS, frozenset())
        return [row for part in job.run(rows) for row in part.to_pylist()]

    # When two attempts run at once
    with ThreadPoolExecutor(2) as attempts:
        rows = [row for each in [attempts.submit(run) for _ in range(2)] for row in each.result()]

    # Then each output is sent once, and all slices are marked
    assert sorted(sent) == sorted(batch.ids)
    assert (sum(row["outputs"] for row in rows), sum(row["slices"] for row in rows)) == (24, 3)
    slices = batch.on_table(lambda table: Publications(table, system_clock).slices(begun.publication))
    assert [slices[number].is_sent for number in range(3)] == [True] * 3

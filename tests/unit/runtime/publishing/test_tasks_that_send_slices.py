"""The tasks of Spark that send slices, without Spark: what is routed to them, and two attempts at one of them."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa

from runtime.batch_options import TablePlace
from runtime.clock import system_clock
from runtime.errors import TransientError
from runtime.publishing import DeliverySettings
from runtime.publishing.outputs import slice_of
from runtime.publishing.publisher import PublishOptions
from runtime.publishing.records import Publications
from runtime.publishing.runner import begin
from runtime.spark.publishing import RouteJob, SendJob
from tests.support.done_batches import TABLE, make_batch, outcome, output

SLICES = 3


class Task:
    """The slices of a batch as they come to a task, and the job that sends them."""

    def __init__(self, batch, send, settings=None):
        self.batch = batch
        self.target_of_an_attempt = partial(
            batch.target, "post:send", send=send, attempts=1, settings=settings or DeliverySettings()
        )
        self.options = PublishOptions(slices=SLICES)
        target, out = self.target_of_an_attempt(), str(batch.out)
        given: dict[str, Any] = {"options": self.options, "clock": system_clock}
        self.begun = batch.on_table(lambda table: begin(table, batch.record, out, target, **given))

    def routed(self):
        files = self.begun.outputs.files()
        route = RouteJob(self.begun.outputs, files, SLICES, self.begun.waiting)
        return list(route.run([pa.RecordBatch.from_pydict({"id": list(range(len(files)))})]))

    def run(self):
        """Send the slices that come in, with one that nothing comes of but its number."""
        numbers = pa.RecordBatch.from_pydict({"slice": pa.array(range(SLICES), pa.int32())})
        tables = [pa.Table.from_batches([each]) for each in (*self.routed(), numbers)]
        rows = pa.concat_tables(tables, promote_options="default").to_batches()
        place = TablePlace(self.batch.store, TABLE)
        job = SendJob(place, self.target_of_an_attempt, self.begun.publication, self.options, frozenset())
        return [row for batch in job.run(rows) for row in batch.to_pylist()]

    def out(self):
        found = self.batch.on_table(
            lambda table: Publications(table, system_clock).slices(self.begun.publication)
        )
        return [found[number].is_sent for number in range(SLICES)]


def slowly(sent, output):
    time.sleep(0.002)
    sent.append(output.message_id)


def test_a_task_that_runs_twice_at_the_same_time_sends_each_output_once(batch):
    sent: list[str] = []
    task = Task(batch, partial(slowly, sent))
    routed = [row for part in task.routed() for row in part.to_pylist()]
    assert all(row["slice"] == slice_of(row["business_id"], SLICES) for row in routed)

    with ThreadPoolExecutor(2) as attempts:
        rows = [row for each in [attempts.submit(task.run) for _ in range(2)] for row in each.result()]

    assert sorted(sent) == sorted(batch.ids)
    assert sum(row["outputs"] for row in rows) == len(batch.ids)
    assert task.out() == [True] * SLICES


def test_a_slice_without_outputs_is_sent_too(make):
    task = Task(make(1, 2), print)

    (row,) = task.run()

    assert (row["slices"], row["outputs"], task.out()) == (SLICES, 2, [True] * SLICES)


def test_a_task_skips_what_another_batch_has_published(make_of):
    first = make_of([[outcome("g1", output("o1", 1))]])
    Task(first, print).run()
    made_by = {"status": "duplicate", "made_by": first.record.batch_id, "made_by_number": first.record.number}
    rows = [outcome("g1", output("o1", 1)) | made_by, outcome("g2", output("o2", 2))]
    record = make_batch(first.store, first.out, [rows], batch_id="b2")
    sent: list[str] = []

    (row,) = Task(replace(first, record=record), partial(slowly, sent)).run()

    assert sent == ["o2"]
    assert (row["outputs"], row["skipped"]) == (1, [(first.record.batch_id, 1)])


def test_a_target_that_does_not_answer_is_told_to_the_driver_and_not_tried_again_by_spark(batch):
    def refuse(_):
        raise TransientError("busy")

    task = Task(batch, refuse, DeliverySettings(frozenset("*")))

    (row,) = task.run()

    assert "in 1 attempts: TransientError: busy" in row["error"]
    assert False in task.out()

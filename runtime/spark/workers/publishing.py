"""What the workers of a publication do: route outputs to slices, and send the slices that come to a task.

A task has some slices as a whole, and sends them as a runner of its own does: under a claim for each. So a task that
is run again, or twice at the same time, waits for the claims of the other attempt, and goes on with what is not sent.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.types import IntegerType, LongType, StringType, StructField, StructType

from eventstore import connect
from runtime.batch_options import TablePlace, Wrap
from runtime.clock import Clock, system_clock
from runtime.errors import TargetError
from runtime.publishing.outputs import BatchOutputs, OutcomeFile
from runtime.publishing.publisher import Target
from runtime.publishing.records import Publication
from runtime.publishing.runner import PublishOptions, Runner
from runtime.publishing.slices import Slices, cut, slice_numbers
from runtime.publishing.tally import Tally
from runtime.spark.schemas import OUTPUT

OpenTarget = Callable[[], Target]

_SLICE = "slice"
ROUTED = StructType(
    [
        StructField(_SLICE, IntegerType()),
        *OUTPUT.fields,
        StructField("business_id", StringType()),
        StructField("handler", StringType()),
    ]
)
"""Outputs, each with the number of its slice. A row with a number alone says that there is the slice."""

SENT = StructType(
    [
        StructField("slices", LongType()),
        StructField("outputs", LongType()),
        StructField("error", StringType()),
    ]
)
"""What a task has sent, and what stopped it, if anything did."""


@dataclass(frozen=True)
class RouteJob:
    """Reads some of the files of a batch, and gives their outputs with the numbers of their slices."""

    outputs: BatchOutputs = field(repr=False)
    files: Sequence[OutcomeFile] = field(repr=False)
    count: int
    waiting: Sequence[int]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files whose places in the list come in; leave out what is in slices that are sent."""
        places = (place for batch in batches for place in batch["id"].to_pylist())
        wanted = pa.array(self.waiting, pa.int32())
        for table in self.outputs.tables(self.files[place] for place in places):
            routed = table.append_column(_SLICE, slice_numbers(table, self.count))
            routed = routed.filter(pc.is_in(routed[_SLICE], value_set=wanted))
            yield from routed.select(ROUTED.fieldNames()).to_batches()


@dataclass(frozen=True)
class SendJob:
    """All that a worker needs to send slices. `dead` are tokens of claims that are not waited for."""

    place: TablePlace = field(repr=False)
    open_target: OpenTarget = field(repr=False)
    publication: Publication
    options: PublishOptions
    dead: frozenset[str]
    clock: Clock = system_clock
    wrap: Wrap | None = None

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Send the slices whose outputs come in, and give a row of `SENT`."""
        numbers: set[int] = set()
        with cut(_outputs(batches, numbers), self.publication.slices) as found:
            if numbers:
                row = asyncio.run(self._send(replace(found, numbers=sorted(numbers))))
                yield pa.RecordBatch.from_pylist([row], _ARROW_SENT)

    async def _send(self, mine: Slices) -> dict[str, object]:
        async with connect(self.place.store) as store:
            table = await store.table(self.place.table, make=False)
            runner = Runner(
                self.wrap(table) if self.wrap else table,
                self.publication,
                mine,
                self.open_target(),
                options=self.options,
                tally=Tally(None, None),
                clock=self.clock,
            )
            error = None
            try:
                await runner.run(self.dead)
            except TargetError as stopped:  # which Spark would try again, as often as a target was by now
                error = str(stopped)
        return {"slices": runner.sender.slices, "outputs": runner.sender.outputs, "error": error}


_ARROW_SENT = pa.schema([("slices", pa.int64()), ("outputs", pa.int64()), ("error", pa.string())])


def _outputs(batches: Iterable[pa.RecordBatch], numbers: set[int]) -> Iterator[pa.Table]:
    """Give the outputs that come in, and add the numbers of all slices that do."""
    for batch in batches:
        numbers.update(pc.unique(batch[_SLICE]).to_pylist())
        outputs = pa.Table.from_batches([batch]).drop_columns([_SLICE])
        outputs = outputs.filter(pc.is_valid(outputs["message_id"]))
        if outputs.num_rows:
            yield outputs

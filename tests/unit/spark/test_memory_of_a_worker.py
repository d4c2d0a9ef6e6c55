"""What a worker holds of all streams in process is bounded in bytes, however many they may be."""

from __future__ import annotations

import asyncio
import json
import tracemalloc
from collections.abc import Iterable, Mapping

import pyarrow as pa
import pytest

from benchmarks.games import by_game, routed_batches
from eventstore import InterceptedTable, Table
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Outcomes, Output, Status
from runtime.spark.verification import VerifyJob
from runtime.spark.worker import connection as buffer
from runtime.spark.worker import job as deliveries
from runtime.spark.worker import outcomes as writing
from runtime.spark.worker.job import DELIVERY_BYTES, FoldJob, groups, text_bytes
from runtime.spark.worker.outcomes import OutcomeWriter
from samples.shooting_range import app
from tests.support.logs import message_id

LENGTH = 10
TEXT = 1000
SIZE = LENGTH * (TEXT + DELIVERY_BYTES)
TURNS = 20


def stream(number: int) -> str:
    return f"00000000-0000-4000-8000-{number:012}"


def body(game: str, length: int = TEXT) -> str:
    """Return a shot with something beside it that makes it so long."""
    text = json.dumps({"game_id": game, "position": 7, "beside": ""})
    return text.replace('""', f'"{"x" * (length - len(text))}"')


def log(*lengths: int) -> list[pa.RecordBatch]:
    """Give a stream of so many deliveries for each length, as Spark gives them to a worker."""
    games = [stream(number) for number, length in enumerate(lengths) for _ in range(length)]
    return batches(games, [body(game) for game in games], [None] * len(games))


def batches(games: list[str], bodies: list[str], headers: list[str] | list[None]) -> list[pa.RecordBatch]:
    count = len(games)
    nothing = [None] * count
    columns = {
        "handler": ["ShootingRange"] * count,
        "business_id": games,
        "message_id": [message_id(number) for number in range(count)],
        "type": ["FireAt"] * count,
        "body": bodies,
        "sequence": pa.array(range(count), pa.int64()),
        "enqueued_at": pa.array(nothing, pa.timestamp("us", tz="UTC")),
        "headers": pa.array(headers, pa.string()),
        "given": pa.array(nothing, pa.string()),
        "problem": pa.array(nothing, pa.string()),
        "line": pa.array(nothing, pa.string()),
    }
    given: list[pa.RecordBatch] = pa.table(columns).to_batches()
    return given


class SlowTable:
    """A table whose calls let others go on before they answer; it notes how many bytes the streams in process take.

    A stream is in process from its first call until it is released.
    """

    def __init__(self, sizes: Mapping[str, int], turns: int = TURNS) -> None:
        self.peak = 0
        self.ended: list[str] = []
        self._sizes = sizes
        self._turns = turns
        self._in_process: set[str] = set()

    def around(self, table: Table) -> Table:
        return InterceptedTable(table, before=self._before, after=self._after)

    def release(self, game: str) -> None:
        if game in self._in_process:
            self._in_process.remove(game)
            self.ended.append(game)

    async def _before(self, name: str, partition_key: str, number: int) -> None:
        self._in_process.add(partition_key.removeprefix("ShootingRange-"))
        self.peak = max(self.peak, sum(self._sizes[game] for game in self._in_process))
        for _ in range(self._turns):
            await asyncio.sleep(0)

    def _after(self, name: str, partition_key: str, number: int, result: object) -> None:
        """Do nothing: a stream goes on."""


class TableThatIsRead(SlowTable):
    """A table of which a stream asks once."""

    def _after(self, name: str, partition_key: str, number: int, result: object) -> None:
        self.release(partition_key.removeprefix("ShootingRange-"))


def sizes(*lengths: int) -> dict[str, int]:
    return {stream(number): length * SIZE // LENGTH for number, length in enumerate(lengths)}


def fold(url: str, slow: SlowTable, given: Iterable[pa.RecordBatch]) -> list[str]:
    job = FoldJob(app, url, "games", BatchContext("night"), wrap=slow.around)
    statuses = []
    for batch in job.fold(given):
        statuses += batch.column("status").to_pylist()
        for game in set(batch.column("business_id").to_pylist()):
            slow.release(game)
    return statuses


@pytest.fixture(autouse=True)
def _three_streams_fit(monkeypatch):
    monkeypatch.setattr(buffer, "MAX_BUFFERED_BYTES", 3 * SIZE + SIZE // 2)
    monkeypatch.setattr(writing, "MAX_ROWS", LENGTH)


def test_a_group_begins_only_when_it_has_room(network_store):
    lengths = [LENGTH] * 12
    slow = SlowTable(sizes(*lengths))

    assert fold(network_store, slow, log(*lengths)) == ["processed"] * sum(lengths)

    assert slow.peak == 3 * SIZE


def test_a_group_larger_than_all_the_room_is_processed_alone(network_store):
    lengths = [LENGTH, LENGTH, 5 * LENGTH, LENGTH, LENGTH]
    slow = SlowTable(sizes(*lengths))

    assert fold(network_store, slow, log(*lengths)) == ["processed"] * sum(lengths)

    assert slow.peak == 5 * SIZE
    assert slow.ended[2] == stream(2)


def test_groups_on_a_file_wait_for_a_commit_while_they_have_room(tmp_path):
    lengths = [LENGTH] * 12
    slow = SlowTable(sizes(*lengths), turns=0)

    assert fold(f"sqlite:///{tmp_path}/store.db", slow, log(*lengths)) == ["processed"] * sum(lengths)

    assert slow.peak == 3 * SIZE


def test_a_large_group_on_a_file_waits_for_no_commit_with_others(tmp_path, monkeypatch):
    monkeypatch.setattr(buffer, "LARGE_BYTES", 2 * SIZE)
    lengths = [LENGTH, 2 * LENGTH, 3 * LENGTH, LENGTH, LENGTH]
    slow = SlowTable(sizes(*lengths), turns=0)
    ended_when_asked_for: list[list[str]] = []

    def given() -> Iterable[pa.RecordBatch]:
        for number in range(len(lengths)):
            ended_when_asked_for.append(list(slow.ended))
            yield from log(*[length if n == number else 0 for n, length in enumerate(lengths)])

    assert fold(f"sqlite:///{tmp_path}/store.db", slow, given()) == ["processed"] * sum(lengths)

    # A group is whole when the next stream begins.
    first, second, third = map(stream, range(3))
    assert ended_when_asked_for == [[], [], [], [], [first, second, third]]


def test_a_verification_keeps_to_the_bound_too(network_store):
    lengths = [LENGTH] * 12
    fold(network_store, SlowTable(sizes(*lengths)), log(*lengths))
    slow = TableThatIsRead(sizes(*lengths))

    job = VerifyJob(app, network_store, "games", wrap=slow.around)
    found = [row for batch in job.verify(log(*lengths)) for row in batch.to_pylist()]

    assert {row["verdict"]: row["deliveries"] for row in found} == {"match": sum(lengths)}
    assert slow.peak == 3 * SIZE


@pytest.mark.parametrize(
    ("content", "headers", "expected"),
    [
        ("four", None, 4),
        ("fünf", None, 5),
        (b"\xff\xfe", None, 2),
        (None, {}, 0),
        ("", {"trace": "ä"}, 7),
    ],
)
def test_text_counts_as_the_bytes_that_it_is_sent_as(content, headers, expected):
    assert text_bytes(Envelope("m-1", "Said", content, headers=headers)) == expected


def test_headers_fill_a_group_as_bodies_do(monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_TEXT_BYTES", 1000)
    given = batches([stream(1)] * 6, ["{}"] * 6, [json.dumps({"trace": "x" * 500})] * 6)

    assert [len(group.envelopes) for group in groups(given)] == [2, 2, 2]


def test_the_size_of_a_group_is_its_text_and_something_for_each_delivery():
    (group,) = groups(log(LENGTH))

    assert (group.text_bytes, group.size) == (LENGTH * TEXT, SIZE)


def test_what_a_delivery_counts_for_is_about_what_it_takes(tmp_path, monkeypatch):
    count = 3000
    monkeypatch.setattr(writing, "MAX_ROWS", 2 * count)
    given = routed_batches(by_game([0], range(count)))
    taken: list[int] = []

    def measure(name: str, *_: object) -> None:
        if name == "transact":
            taken.append(tracemalloc.get_traced_memory()[0])

    job = FoldJob(
        app,
        f"sqlite:///{tmp_path}/store.db",
        "games",
        BatchContext("night"),
        wrap=lambda table: InterceptedTable(table, before=measure),
    )
    tracemalloc.start()
    try:
        done = list(job.fold(given))
    finally:
        tracemalloc.stop()

    assert sum(batch.num_rows for batch in done) == count
    assert 0.5 < taken[0] / count / DELIVERY_BYTES < 1.5


@pytest.mark.parametrize("large", ["body", "output"])
def test_large_outcomes_leave_in_small_batches(monkeypatch, large):
    monkeypatch.setattr(writing, "MAX_BYTES", 2000)
    text = "x" * 900
    envelope = Envelope("m-1", "Said", text if large == "body" else "")
    outputs = (Output("m-2", "Heard", text[writing.OUTPUT_BYTES :], 1, 1, {}),) if large == "output" else ()
    writer = OutcomeWriter()

    writer.add(Outcomes.of([Outcome(envelope, "Ear", "left", Status.PROCESSED, outputs=outputs)] * 8))

    flushed = []
    while writer.is_full:
        flushed.append(writer.flush().num_rows)
    assert flushed == [2, 2, 2]
    assert writer.flush().num_rows == 2

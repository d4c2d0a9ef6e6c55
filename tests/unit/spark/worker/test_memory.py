"""What a worker holds is bounded in bytes, however slow the store and however large the messages."""

import asyncio
import gc
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pyarrow as pa
import pytest

from benchmarks.games import by_game, routed_batches
from eventstore import InterceptedTable, Table
from runtime.batch_options import BatchOptions
from runtime.ledger.batch import BatchContext
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Outcome, Outcomes, Output, Status
from runtime.spark.worker import job as deliveries
from runtime.spark.worker import outcomes as writing
from runtime.spark.worker.job import DELIVERY_BYTES, FoldJob, groups
from runtime.spark.worker.outcomes import OutcomeWriter
from samples.shooting_range import app
from tests.support.logs import message_id
from tests.support.routed import rows_of

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
    ids = map(message_id, range(count))
    return rows_of(
        "ShootingRange", games, message_id=ids, type=["FireAt"] * count, body=bodies, headers=headers
    )


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


def sizes(*lengths: int) -> dict[str, int]:
    return {stream(number): length * SIZE // LENGTH for number, length in enumerate(lengths)}


def job(url: str, **options: Any) -> FoldJob:
    return FoldJob(app, url, "games", BatchContext("night"), BatchOptions(**options))


def fold(url: str, slow: SlowTable, given: Iterable[pa.RecordBatch]) -> list[str]:
    statuses = []
    for batch in job(url, wrap=slow.around).fold(given):
        statuses += batch.column("status").to_pylist()
        for game in set(batch.column("business_id").to_pylist()):
            slow.release(game)
    return statuses


@pytest.fixture
def url(tmp_path) -> str:
    """Give the url of a store in a file."""
    return f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def _three_streams_fit(monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_BUFFERED_BYTES", 3 * SIZE + SIZE // 2)
    monkeypatch.setattr(writing, "MAX_ROWS", LENGTH)


@pytest.mark.usefixtures("_three_streams_fit")
@pytest.mark.parametrize(
    ("lengths", "peak"),
    [([LENGTH] * 12, 3), ([LENGTH, LENGTH, 5 * LENGTH, LENGTH, LENGTH], 5)],
    ids=["begins only when it has room", "is processed alone when it is larger than all the room"],
)
def test_a_group(network_store, lengths, peak):
    slow = SlowTable(sizes(*lengths))

    assert fold(network_store, slow, log(*lengths)) == ["processed"] * sum(lengths)

    assert slow.peak == peak * SIZE
    assert peak == 3 or slow.ended[2] == stream(2)


@pytest.mark.usefixtures("_three_streams_fit")
def test_groups_on_a_file_wait_for_a_commit_while_they_have_room(url):
    slow = SlowTable(sizes(*[LENGTH] * 12), turns=0)

    assert fold(url, slow, log(*[LENGTH] * 12)) == ["processed"] * 12 * LENGTH

    assert slow.peak == 3 * SIZE


@pytest.mark.usefixtures("_three_streams_fit")
def test_a_large_group_on_a_file_waits_for_no_commit_with_others(url, monkeypatch):
    monkeypatch.setattr(deliveries, "LARGE_BYTES", 2 * SIZE)
    lengths = [LENGTH, 2 * LENGTH, 3 * LENGTH, LENGTH, LENGTH]
    slow = SlowTable(sizes(*lengths), turns=0)
    ended_when_asked_for: list[list[str]] = []

    def given() -> Iterable[pa.RecordBatch]:
        for number in range(len(lengths)):
            ended_when_asked_for.append(list(slow.ended))
            yield from log(*[length if n == number else 0 for n, length in enumerate(lengths)])

    assert fold(url, slow, given()) == ["processed"] * sum(lengths)

    # A group is whole when the next stream begins.
    first, second, third = map(stream, range(3))
    assert ended_when_asked_for == [[], [], [], [], [first, second, third]]


def test_headers_fill_a_group_as_bodies_do(monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_TEXT_BYTES", 1000)
    given = batches([stream(1)] * 6, ["{}"] * 6, [json.dumps({"trace": "x" * 500})] * 6)

    assert [len(group.envelopes) for group in groups(given)] == [2, 2, 2]


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


STREAMS = 40
SHOTS = 5
ROWS_IN_A_BATCH = 10
IN_FLIGHT = 4


class PulledLog:
    """Gives batches of deliveries, and counts those that were given."""

    pulled = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        for batch in in_small_batches(routed_batches(by_game(range(STREAMS), range(SHOTS)))):
            self.pulled += batch.num_rows
            yield batch


def in_small_batches(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    for batch in batches:
        for start in range(0, batch.num_rows, ROWS_IN_A_BATCH):
            yield batch.slice(start, ROWS_IN_A_BATCH)


def statuses(batches: Iterable[pa.RecordBatch]) -> list[str]:
    return [status for batch in batches for status in batch.column("status").to_pylist()]


def test_parts_of_one_long_stream_wait_for_each_other(network_store, monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_DELIVERIES", 10)
    under_way: list[str] = []
    most: list[int] = []

    async def before(name: str, partition_key: str, number: int) -> None:
        if name == "query":
            under_way.append(partition_key)
            most.append(len(under_way))
        await asyncio.sleep(0)  # others may go on

    def after(name: str, partition_key: str, number: int, result: object) -> None:
        if name == "transact":
            under_way.remove(partition_key)

    folding = job(
        network_store, in_flight=IN_FLIGHT, wrap=lambda table: InterceptedTable(table, before, after)
    )
    done = statuses(folding.fold(in_small_batches(routed_batches(by_game([0], range(100))))))

    assert done == ["processed"] * 100
    assert most == [1] * 10


def test_an_embedded_store_holds_up_the_reading_of_the_log_until_a_commit(url):
    under_way: set[str] = set()
    most: list[int] = []
    log = PulledLog()

    def before(name: str, partition_key: str, number: int) -> None:
        under_way.add(partition_key)
        most.append(len(under_way))

    def after(name: str, partition_key: str, number: int, result: object) -> None:
        if name == "transact":
            under_way.remove(partition_key)
            ended.append(number)
            ahead.append(log.pulled - len(ended) * SHOTS)

    ended: list[int] = []
    ahead: list[int] = []
    folding = job(url, in_flight=IN_FLIGHT, wrap=lambda table: InterceptedTable(table, before, after))

    assert statuses(folding.fold(log.batches())) == ["processed"] * (STREAMS * SHOTS)
    assert max(most) == IN_FLIGHT
    assert len(ahead) == STREAMS
    assert max(ahead) <= IN_FLIGHT * SHOTS + ROWS_IN_A_BATCH


def test_outcomes_that_nobody_takes_hold_up_the_reading_of_the_log(url, monkeypatch):
    monkeypatch.setattr(writing, "MAX_ROWS", 20)
    log = PulledLog()

    taken = 0
    for batch in job(url, in_flight=IN_FLIGHT).fold(log.batches()):
        taken += batch.num_rows
        assert log.pulled <= taken + (IN_FLIGHT + 1) * SHOTS + ROWS_IN_A_BATCH

    assert taken == STREAMS * SHOTS


def test_a_long_group_gives_its_outcomes_in_several_batches(url, monkeypatch):
    monkeypatch.setattr(writing, "MAX_ROWS", 30)

    batches = list(job(url).fold(routed_batches(by_game([0], range(100)))))

    assert [batch.num_rows for batch in batches] == [30, 30, 30, 10]
    versions = [version for batch in batches for version in batch.column("version").to_pylist()]
    assert versions == list(range(1, 101))


def test_nothing_of_a_group_is_kept_when_it_is_done(url, monkeypatch):
    monkeypatch.setattr(deliveries, "MAX_DELIVERIES", 20)
    monkeypatch.setattr(deliveries, "LARGE_BYTES", 19 * deliveries.DELIVERY_BYTES)
    monkeypatch.setattr(writing, "MAX_ROWS", 20)
    groups: list[int] = []
    outcomes: list[int] = []

    def pulled() -> Iterator[pa.RecordBatch]:
        for batch in in_small_batches(routed_batches(by_game([0], range(100)))):
            groups.append(living(deliveries.Group))
            yield batch

    def before(name: str, partition_key: str, number: int) -> None:
        if name == "query":
            outcomes.append(living(Outcome))

    folding = job(url, wrap=lambda table: InterceptedTable(table, before))
    gc.collect()
    gc.freeze()  # what there is already is not counted
    try:
        assert len(statuses(folding.fold(pulled()))) == 100
    finally:
        gc.unfreeze()
    # While a group is put together there is no other, and while one is handled there are no outcomes of another.
    assert max(groups) == 1
    assert outcomes == [0] * 5


def living(kind: type) -> int:
    return sum(isinstance(each, kind) for each in gc.get_objects())

"""Streams: each micro-batch of a query is a batch."""

import json
from collections import Counter
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from runtime.batch_options import TablePlace
from runtime.clock import system_clock
from runtime.errors import UsageError
from runtime.ledger.ledger import Ledger
from runtime.publishing import DeliverySettings
from runtime.publishing.publisher import PublishOptions
from runtime.publishing.targets.function import FunctionTarget
from runtime.spark import PublishTo, published_outputs, run_stream
from runtime.spark.session import cores_of
from runtime.spark.streaming import Stream, open_source
from runtime.spark.worker.connection import open_table
from tests.docs.pasting import marked
from tests.integration.spark.conftest import Place
from tests.support.logs import GAME, generated, message_id, start
from tests.support.outcomes import (
    all_outcomes,
    heads,
    statuses,
)
from tests.support.streaming import outcomes, put, stream


@pytest.fixture
def incoming(place):
    """Give a folder with two files of messages."""
    log = generated(place.folder / "log.jsonl", games=3, messages=40, duplicates=0.2, shuffle=True)
    folder = place.folder / "incoming"
    folder.mkdir()
    spread(log, folder, 2)
    return folder


def spread(log, folder, files):
    """Write the messages of a log to so many files, each an epoch."""
    lines = Path(log).read_text().splitlines(keepends=True)
    for number in range(files):
        put(folder, number, "".join(lines[number::files]))


def forget_the_last_commit(place):
    """Leave a checkpoint as when the driver dies after an epoch was published, before Spark knows."""
    commits = place.folder / "checkpoint" / "commits"
    last = max(int(each.name) for each in commits.iterdir() if each.name.isdecimal())
    (commits / str(last)).unlink()
    (commits / f".{last}.crc").unlink()
    return last


def test_each_epoch_is_a_batch_and_the_last_one_is_done_once(place, incoming):
    # Given a stream that has ended, but for the note of its last epoch
    with pytest.raises(UsageError, match="omit keep_large"):
        stream(place, incoming, keep_large=str(place.folder / "large"))
    assert stream(place, incoming, partitions=None) == [0, 1]
    before = all_outcomes(outcomes(place))
    files = Path(place.out).glob("batch_id=shots-0/round=0/*.parquet")
    assert len(list(files)) <= cores_of(place.spark)  # a task for each core
    assert {row.batch_id for row in outcomes(place).select("batch_id").collect()} == {"shots-0", "shots-1"}
    assert forget_the_last_commit(place) == 1

    # When it is started again, and Spark hands the epoch over again
    assert stream(place, incoming, partitions=3) == [1]

    # Then nothing has changed, and a checkpoint made anew is refused
    assert all_outcomes(outcomes(place)) == before
    with pytest.raises(
        StreamingQueryException, match="Epoch 0 of the query shots has different content than before"
    ):
        stream(place, incoming, checkpoint=str(place.folder / "anew"))
    assert all_outcomes(outcomes(place)) == before


@pytest.mark.thorough
def test_a_micro_batch_is_one_job(place, incoming):
    query = run_beside(place, incoming, "shots", cascade=False)
    query.awaitTermination()

    jobs = place.spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))
    assert len(jobs) == 2  # epochs


def put_bad(folder, number):
    """Write a file with a message that nobody knows."""
    line = (folder / "0.jsonl").read_text().partition("\n")[0]
    put(folder, number, json.dumps({**json.loads(line), "message_id": f"bad-{number}", "type": "Unknown"}))


@pytest.mark.thorough
def test_files_of_any_age_in_any_folder_are_read_and_never_passed_over(place, incoming):
    # Given a stream over a file in a folder within the source, and then an old file, whose epoch is held back
    (incoming / "day=1").mkdir()
    (incoming / "1.jsonl").rename(incoming / "day=1" / "a b%20\u00fc#.jsonl")
    assert stream(place, incoming) == [0, 1]
    put_bad(incoming, -99 * 86_400)
    (old,) = incoming.glob("-*.jsonl")
    with pytest.raises(StreamingQueryException, match="is held back"):
        stream(place, incoming, max_dead_letters=0)

    # When the file is gone, the query does not go on without it
    old.rename(place.folder / "aside")
    with pytest.raises(StreamingQueryException, match=f"{old.name} is missing. Nothing of the epoch is"):
        stream(place, incoming)

    # When another one has its name, neither
    old.write_text((incoming / "0.jsonl").read_text())
    with pytest.raises(StreamingQueryException, match=f"{old.name} was replaced"):
        stream(place, incoming)
    (place.folder / "aside").rename(old)

    # Then it goes on with it, with other parallelism
    assert stream(place, incoming, partitions=3) == [2]
    assert outcomes(place).where("type = 'Unknown'").count() == 1


def test_an_epoch_whose_file_is_written_again_while_it_is_handled_is_not_published(
    place, folder, monkeypatch
):
    put(folder, 0, lines(start(1, 40)))
    monkeypatch.chdir(folder.parent)

    def write_again(step):
        if step.endswith("handling messages"):
            (folder / "0.jsonl").write_text(lines(start(2, 40)))

    with pytest.raises(StreamingQueryException, match="was replaced"):
        stream(place, folder.name, step=write_again)
    assert heads(place.store, place.table)
    put(folder, 0, lines(start(1, 40)))  # with the time that it had
    assert stream(place, folder) == [0]
    assert statuses(outcomes(place)) == {message_id(1): ["processed"]}


@pytest.mark.thorough
def test_epochs_that_wait_to_be_merged_are_put_in_out_once_no_others_come(place, incoming):
    def seen(out=place.out):
        return {path.name.removeprefix("batch_id=shots-") for path in Path(out).glob("batch_id=*")}

    # Given a query that has ended by itself
    spread(place.folder / "log.jsonl", incoming, 5)
    stream(place, incoming, compact_after=3)
    assert seen() == {"0..2", "3..4"}

    # When it goes on, is stopped while an epoch waits, and has another OUT then
    put(incoming, 5, (incoming / "0.jsonl").read_text())
    put_bad(incoming, 6)
    with pytest.raises(StreamingQueryException, match=r"is held back.*start the query again, now with a"):
        stream(place, incoming, compact_after=4, max_dead_letters=0)
    assert seen() == {"0..2", "3..4"}
    other = str(place.folder / "other")
    stream(place, incoming, compact_after=4, out=other)
    assert (seen(), seen(other)) == ({"0..2", "3..4", "5"}, {"6"})

    # And when an epoch is abandoned while the one before waits
    put(incoming, 7, (incoming / "0.jsonl").read_text())
    put_bad(incoming, 8)
    with pytest.raises(StreamingQueryException, match="is held back"):
        stream(place, incoming, compact_after=4, out=other, max_dead_letters=0)
    assert seen(other) == {"6"}
    connection = open_table(place.store, place.table, None)
    connection.run(Ledger(connection.table, system_clock).abandon("shots-8"))
    with pytest.raises(StreamingQueryException, match="shots-8 was abandoned"):
        stream(place, incoming, compact_after=4, out=other)

    # Then readers see all that is published
    assert seen(other) == {"6", "7"}


@pytest.mark.thorough
@pytest.mark.parametrize("compact_after", [1, 2])
def test_streams_are_chained(place, incoming, compact_after):
    # Given a stream of five epochs, and one over its OUT that runs beside it
    spread(place.folder / "log.jsonl", incoming, 5)
    chained = place.beside("chained")
    Path(place.out).mkdir()
    second = run_stream(
        open_source(place.spark, place.out, "outcomes"), place.app, store=place.store, table=place.table,
        out=chained.out, query="board", checkpoint=str(chained.folder / "c"),
        trigger=timedelta(milliseconds=100), partitions=2,
    )  # fmt: skip
    try:
        # When the first one has run to its end
        where = TablePlace(place.store, place.table)
        new = Stream(place.app, where, place.out, "shots", str(place.folder / "shots"), compact_after)
        new.run(open_source(place.spark, str(incoming), "json", max_files=1), "available-now")
        second.processAllAvailable()
    finally:
        second.stop()
    spans = {path.name.removeprefix("batch_id=shots-") for path in Path(place.out).glob("batch_id=*")}
    assert spans == ({"0..1", "2..3", "4"} if compact_after == 2 else set("01234"))

    # Then the second one has handled each output once, as one batch with its cascade would have
    given = published_outputs(outcomes(place)).select("message_id").collect()
    taken = outcomes(chained).where("handler is not null").select("message_id").collect()
    assert Counter(row.message_id for row in taken) == Counter(row.message_id for row in given)
    beside = place.beside("batch")
    beside.run(str(place.folder / "log.jsonl"), cascade=True)
    assert versions(place) == versions(beside)


def versions(place):
    return {key: count for key, (count, _) in heads(place.store, place.table).items()}


def run_beside(place, incoming, query, **options):
    where = {"store": place.store, "table": place.table, "out": place.out, "query": query}
    return run_stream(
        open_source(place.spark, str(incoming), "json", max_files=1), place.app, **where,
        checkpoint=str(place.folder / query), trigger="available-now", partitions=2, **{"cascade": True, **options},
    )  # fmt: skip


KAFKA = """
    key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int,
    headers array<struct<key: string, value: binary>>
"""


@pytest.mark.parametrize("door", ["batch", pytest.param("stream", marks=pytest.mark.thorough)])
def test_records_of_a_topic_are_read_as_the_docs_say(place, door):
    # Given records as Kafka has them: a copy, a tombstone, headers named twice, without a value, and none at all
    def record(number: int, value: dict[str, object] | None, *more: tuple[str, bytes | None], **ids: str):
        headers = [(name, text.encode()) for name, text in ids.items()] + list(more)
        body = None if value is None else json.dumps(value).encode()
        return (b"k", body, "shots", 0, number, datetime(2026, 3, 1, tzinfo=UTC), 0, headers or None)

    begun = {"game_id": GAME, "position": 3}
    records = place.spark.createDataFrame(
        [
            record(0, begun, ("ce_id", b"other"), ("empty", None), ce_id="one", ce_type="StartNewRound"),
            record(1, begun, ce_id="one", ce_type="StartNewRound"),
            record(2, None, ce_id="two", ce_type="StartNewRound"),
            record(3, begun),
        ],
        KAFKA,
    )
    names: dict[str, Any] = {}
    exec(marked("docs/kafka.md", "topic.py")[0], names)

    # When they are handled
    if door == "batch":
        found = place.run(names["log_of"](records))
    else:
        folder = str(place.folder / "topic")
        records.write.parquet(folder)
        where = {"store": place.store, "table": place.table, "out": place.out, "query": "topic"}
        log = names["log_of"](place.spark.readStream.schema(records.schema).parquet(folder))
        checkpoint = str(place.folder / "checkpoint")
        run_stream(log, place.app, **where, checkpoint=checkpoint, trigger="available-now").awaitTermination()
        found = outcomes(place)

    # Then the copy is one, and only the record without headers is a dead letter
    ends = Counter((row.message_id, row.status, row.reason) for row in found.collect())
    assert ends == {
        ("one", "processed", None): 1,
        ("one", "duplicate", None): 1,
        (None, "dead_letter", "invalid_envelope"): 1,
    }


@pytest.mark.thorough
@pytest.mark.parametrize("compact_after", [1, 2])
def test_each_epoch_is_published_and_what_a_target_did_not_take_when_it_goes_on(
    place, incoming, compact_after
):
    # Given a stream whose target takes nothing of the second epoch
    sent, broken = place.folder / "sent", place.folder / "broken"
    to = PublishTo(partial(noting, sent, broken), options=PublishOptions(slices=2))
    options = {"publish": to, "compact_after": compact_after}
    broken.touch()
    with pytest.raises(StreamingQueryException, match="ConnectionError: no"):
        stream(place, incoming, **options)
    assert {line.split()[0] for line in sent.read_text().splitlines()} == {"shots-0"}

    # When it goes on, and once more after its last epoch was published and Spark did not note it
    broken.unlink()
    stream(place, incoming, **options)
    assert forget_the_last_commit(place) == 1
    stream(place, incoming, **options)

    # Then each output was sent once, with the first epoch that has it
    expected = outcomes(place).selectExpr("explode(outputs) AS output").collect()
    lines = sent.read_text().splitlines()
    assert sorted(line.split()[1] for line in lines) == sorted({row.output.message_id for row in expected})


def noting(file, broken, options):
    """Return a target that notes what it is given, but nothing of the second epoch while it is broken."""

    def send(output):
        if broken.exists() and options.batch_id == "shots-1":
            raise ConnectionError("no")
        with file.open("a") as opened:
            opened.write(f"{options.batch_id} {output.message_id}\n")

    kept = {"keys": f"sqlite:///{file.parent}/keys.db", "keys_table": "deliveries"}
    settings = DeliverySettings(frozenset("*"))
    return FunctionTarget("post:send", replace(options, send=send, settings=settings, attempts=1, **kept))


def lines(*rows: dict[str, object]) -> str:
    return "".join(f"{json.dumps(each)}\n" for each in rows)


@pytest.fixture
def folder(place: Place) -> Path:
    folder = place.folder / "incoming"
    folder.mkdir()
    return folder

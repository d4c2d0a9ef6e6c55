"""Topics of a real broker as a log or a stream: what is read, what identifies it, and what is refused."""

import json
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.cimpl import NewPartitions
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from handlers import App, Context, handles
from runtime.errors import BatchFailedError, BatchRefusedError, LogError, UsageError
from runtime.ledger.ledger import BatchStatus
from runtime.messages.records import Decoding
from runtime.spark import reprocess, run_stream, verify
from runtime.spark.logs import kafka as module
from runtime.spark.logs.kafka import KafkaLog
from runtime.spark.streaming import open_source
from samples.shooting_range import app as shooting_range
from samples.shooting_range.handlers import FireAt, LeaderBoard, Missed, ShootingRange, ShootingRangeData
from tests.docs.pasting import beside_the_project, marked
from tests.integration.spark.conftest import Place
from tests.support.logs import fire, generated, message_id, start, write_lines
from tests.support.outcomes import by_status, statuses
from tests.support.registry import registry
from tests.support.streaming import outcomes as outcomes_of
from tests.support.streaming import stream
from tests.support.topics import OF_TWO_GAMES, ROWS, Topic

pytestmark = pytest.mark.thorough


@pytest.mark.connect(thorough=True)
def test_the_records_of_all_partitions_are_handled_in_the_order_of_their_partition(topic, place):
    topic.send(ROWS)
    other = "00000000-0000-4000-8000-000000000002"
    topic.send([start(11, 7, other), fire(12, 7, other), fire(12, 7, other)], partition=1)

    outcomes = place.run(topic.url)

    assert by_status(outcomes) == {("ShootingRange", "processed"): 5, ("ShootingRange", "duplicate"): 1}
    # Each start came before its shots.
    hits = [row.type for row in outcomes.selectExpr("explode(outputs) AS o").select("o.type").collect()]
    assert sorted(hits) == ["Hit", "Hit", "Missed"]


def test_a_batch_goes_by_the_offsets_with_which_it_began_and_refuses_others(topic, place, monkeypatch):
    # Given a batch that stopped in its round
    topic.send(ROWS)
    monkeypatch.setattr("runtime.spark.batch.Rounds._commit", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        place.run(topic.url, batch_id="night")
    monkeypatch.undo()

    # When more is sent meanwhile, and it is run again
    topic.send([fire(4, 1), fire(5, 2)])
    outcomes = place.run(topic.url, batch_id="night")

    # Then it has the messages that it had before, and others as its input are refused
    assert sorted(statuses(outcomes)) == sorted(message_id(number) for number in (1, 2, 3))
    assert f"offsets {topic.name}/0:0-3,{topic.name}/1:0-0 of the topics " in place.batches()[0].input
    with pytest.raises(BatchRefusedError):
        place.run(f"{topic.url}?to=0:5,1:0", batch_id="night")
    other = Topic(topic.server, f"{topic.name}-too")
    other.make()
    other.send(ROWS)
    with pytest.raises(BatchRefusedError):
        place.run(f"{other.url}?from=0:0,1:0&to=0:3,1:0", batch_id="night")
    # And the next batch takes the rest
    later = place.run(f"{topic.url}?from=0:3,1:0")
    assert sorted(statuses(later)) == [message_id(4), message_id(5)]


def test_a_reprocessing_is_resumed_by_the_offsets_with_which_it_began(topic, place):
    where = {"store": place.store, "table": place.table, "into": f"{place.table}2", "out": place.out}
    topic.send(ROWS)
    place.run(topic.url)

    for _ in range(2):
        done = reprocess(place.spark, topic.url, shooting_range, **where, batch_id="again")
        assert done.result.outcomes.count() == 5
        topic.send([fire(4, 1)])


def test_a_topic_that_was_made_again_is_other_input_though_its_offsets_are_the_same(topic, place):
    topic.send(ROWS)
    place.run(topic.url, batch_id="night")
    topic.make_again()
    topic.send(ROWS)

    with pytest.raises(BatchRefusedError):
        place.run(topic.url, batch_id="night")


def test_a_range_may_be_given_by_times(topic, place):
    def at(moment: int) -> Callable[[dict[str, Any]], object]:
        return lambda record: record.update(timestamp=1_700_000_000_000 + moment * 1000)

    for number, row in enumerate(OF_TWO_GAMES):
        topic.produce(at(number), [row])

    outcomes = place.run(f"{topic.url}?from=2023-11-14T22:13:21Z&to=2023-11-14T22:13:23Z")

    assert sorted(statuses(outcomes)) == [message_id(2), message_id(3)]


def test_records_are_messages_by_their_headers_or_their_envelope_and_all_else_is_a_dead_letter(topic, place):
    rows = [start(number, 40) for number in range(1, 5)]
    named = {"message_id": message_id(1), "type": "StartNewRound"}
    envelope = {**rows[1], "body": json.loads(rows[1]["body"]), "enqueued_at": "2026-01-31T12:00:00.000001Z"}
    changes: list[dict[str, Any]] = [
        {"headers": [*named.items(), ("a", "1"), ("a", "2"), ("b", None)]},
        {"headers": {}, "value": json.dumps(envelope).encode()},
        {"value": None},
        {"headers": {"type": "StartNewRound"}, "value": b"no envelope"},
    ]
    for row, change in zip(rows, changes, strict=True):
        topic.produce(lambda record, change=change: record.update(change, timestamp=1_700_000_000_000), [row])

    log = KafkaLog(topic.url)
    first, second, bad = log.rows(place.spark, log.ranges()[0]).orderBy("message_id").collect()

    assert (first.type, first.headers, first.sequence) == ("StartNewRound", {"a": "2", "b": ""}, 0)
    assert first.enqueued_at.timestamp() == 1_700_000_000
    assert (second.message_id, second.sequence) == (message_id(2), 2)
    assert second.enqueued_at.isoformat()[:10] == "2026-01-31"
    assert second.enqueued_at.microsecond == 1
    assert bad.message_id == f"{topic.name}/0/3"
    # What is no message is a dead letter with its place, content and reason
    (dead,) = place.run(topic.url).where("status = 'dead_letter'").collect()
    assert (dead.message_id, dead.reason) == (bad.message_id, "invalid_envelope")
    assert "It is no envelope" in dead.error
    assert "no envelope" in str(dead)


def test_gaps_of_transactions_and_compaction_are_passed_over(topic, place):
    # Given a transaction that was aborted, and one that ends the topic with its mark
    for number, commits in ((1, True), (2, False), (3, True)):
        producer = Producer(
            {"bootstrap.servers": topic.server.address, "transactional.id": f"{topic.name}-{number}"}
        )
        producer.init_transactions(30)
        producer.begin_transaction()
        row = start(number, 40)
        headers = {"message_id": row["message_id"], "type": row["type"]}
        producer.produce(topic.name, row["body"].encode(), partition=0, headers=headers)
        producer.flush(10)
        (producer.commit_transaction if commits else producer.abort_transaction)(30)

    outcomes = place.run(topic.url)

    assert sorted(statuses(outcomes)) == [message_id(1), message_id(3)]
    assert f"{topic.name}/0:0-6" in place.batches()[0].input


def test_messages_of_an_open_transaction_are_left_to_a_later_batch(topic, place):
    topic.send(ROWS[:1])
    producer = Producer({"bootstrap.servers": topic.server.address, "transactional.id": topic.name})
    producer.init_transactions(30)
    producer.begin_transaction()
    row = fire(2, 40)
    headers = {"message_id": row["message_id"], "type": row["type"]}
    producer.produce(topic.name, row["body"].encode(), partition=0, headers=headers)
    producer.flush(10)

    assert sorted(statuses(place.run(topic.url))) == [message_id(1)]
    with pytest.raises(LogError, match="a transaction is open"):
        place.run(f"{topic.url}?to=0:2,1:0")

    producer.commit_transaction(30)
    assert sorted(statuses(place.run(f"{topic.url}?from=0:1,1:0"))) == [message_id(2)]


def test_a_compacted_topic_is_identified_by_its_messages_too(topic, place):
    compacted = Topic(topic.server, f"{topic.name}-compacted")
    often = {"segment.ms": "100", "min.cleanable.dirty.ratio": "0.01", "max.compaction.lag.ms": "100"}
    compacted.make(1, **{"cleanup.policy": "compact"}, **often)
    compacted.send(OF_TWO_GAMES)
    bounds = f"{compacted.url}?from=0:0&to=0:4"
    place.run(bounds, batch_id="night")
    assert "checksum" in place.batches()[0].input

    # When the broker has compacted it
    log, deadline = KafkaLog(bounds), time.monotonic() + 60
    while log.rows(place.spark, log.ranges()[0]).count() == 4 and time.monotonic() < deadline:
        compacted.send([fire(9, 9)])  # begins a segment
        time.sleep(0.5)

    # Then its offsets have gaps, and the batch is refused
    assert log.rows(place.spark, log.ranges()[0]).count() < 4
    with pytest.raises(BatchRefusedError):
        place.run(bounds, batch_id="night")


def test_offsets_that_were_deleted_are_an_error_that_tells_what_to_type(topic, place):
    topic.send(OF_TWO_GAMES)
    topic.delete_before(2)

    with pytest.raises(LogError) as deleted:
        place.run(f"{topic.url}?from=0:0,1:0", batch_id="night")

    assert "The offsets 0 to 1 of" in str(deleted.value)
    assert "from=0:2 for this partition" in str(deleted.value)
    assert sorted(statuses(place.run(f"{topic.url}?from=0:2,1:0"))) == [message_id(3), message_id(4)]


def test_records_that_are_deleted_while_a_batch_runs_stop_it(topic, place):
    topic.send(OF_TWO_GAMES)
    log = KafkaLog(topic.url)
    rows = log.rows(place.spark, log.ranges()[0])
    topic.delete_before(2)

    with pytest.raises((BatchFailedError, LogError), match="were deleted by the retention"):
        place.run(rows)


def test_a_large_range_is_cut_into_pieces(topic, place, monkeypatch):
    monkeypatch.setattr(module, "_PIECE", 2)
    topic.send([start(number, 40) for number in range(1, 8)])

    log = KafkaLog(f"{topic.url}?from=0:1,1:0")
    ranges, _ = log.ranges()

    assert len(list(module.cut(ranges))) == 3
    assert log.rows(place.spark, ranges).count() == 6


def test_an_empty_range_a_missing_topic_and_a_broker_that_is_away_are_told(topic, place):
    with pytest.raises(LogError, match="holds no messages"):
        place.run(topic.url)
    with pytest.raises(LogError, match="does not have all of these topics"):
        place.run(f"{topic.url},missing")
    with pytest.raises(LogError, match="end"):
        place.run(f"{topic.url}?to=0:9,1:0")
    with pytest.raises(UsageError, match="must name each partition"):
        place.run(f"{topic.url}?to=0:9")
    with pytest.raises(UsageError, match="is no bound"):
        place.run(f"{topic.url}?to=yesterday")
    with pytest.raises(UsageError, match="A log in Kafka is written"):
        place.run(f"kafka://{topic.server.address}")


def test_a_partition_that_is_added_later_changes_no_batch_that_began(topic, place, monkeypatch):
    topic.send(ROWS)
    monkeypatch.setattr("runtime.spark.batch.Rounds._commit", lambda *_, **__: 1 / 0)
    for id_, url in (("by-name", topic.url), ("by-offsets", f"{topic.url}?from=0:0,1:0&to=0:3,1:0")):
        with pytest.raises(ZeroDivisionError):
            place.run(url, batch_id=id_)
    monkeypatch.undo()
    for done in topic.admin.create_partitions([NewPartitions(topic.name, 3)]).values():
        done.result()
    deadline = time.monotonic() + 30
    while len(KafkaLog(topic.url).limits().first) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    topic.send([fire(4, 1)], partition=2)

    assert len(statuses(place.run(topic.url, batch_id="by-name"))) == 3
    assert len(statuses(place.run(f"{topic.url}?from=0:0,1:0&to=0:3,1:0", batch_id="by-offsets"))) == 3
    assert len(statuses(place.run(topic.url))) == 4
    assert {each.status for each in place.batches()} == {BatchStatus.PUBLISHED}


class Crooked(ShootingRange, name="ShootingRange"):
    """A rule that was changed without a new revision: no shot hits."""

    @handles(by="game_id")
    def fire_at(self, state: ShootingRangeData, message: FireAt, context: Context) -> ShootingRangeData:
        context.publish(Missed(id=context.new_guid(), game_id=message.game_id))
        return state.model_copy(update={"number_of_attempts": state.number_of_attempts + 1})


def verified(place, log, app, **options):
    """Verify a log. Return the counts, and the first difference of each stream."""
    found = verify(place.spark, log, app, store=place.store, table=place.table, **options)
    names = ("handler", "type", "revision", "verdict", "deliveries", "streams")
    counts = sorted((tuple(getattr(each, name) or None for name in names) for each in found.counts), key=repr)
    return counts, [(each.business_id, each.version, each.changes) for each in found.first_differences()]


def test_verify_finds_in_a_topic_what_it_finds_in_a_file_with_the_same_messages(topic, place):
    # Given a batch over a topic of two games, with copies, and messages that came after it
    log = generated(place.folder / "log.jsonl", games=4, messages=60, duplicates=0.3, shuffle=True)
    rows = [json.loads(line) for line in Path(log).read_text().splitlines()]
    for partition in range(2):
        of_games = [row for row in rows if sum(json.loads(row["body"])["game_id"].encode()) % 2 == partition]
        topic.send(of_games, partition=partition)
    place.run(topic.url, cascade=True)
    topic.send([fire(901, 1), fire(901, 1)])
    topic.produce(lambda record: record.update(value=None), [fire(902, 1)])
    topic.produce(lambda record: record.update(headers={}, value=b"no envelope"), [fire(903, 1)])
    more = write_lines(place.folder / "more.jsonl", [*rows, fire(901, 1), fire(901, 1), "no envelope"])

    for app in (shooting_range, App(Crooked, LeaderBoard)):
        # Then a verification tells the same of both, and finds a changed rule
        counts, differences = verified(place, topic.url, app, cascade=True)
        of_file, differences_of_file = verified(place, more, app, cascade=True)
        assert counts == of_file
        assert differences == differences_of_file
        assert bool(differences) is (app is not shooting_range)
        assert sum(each[4] for each in counts if each[3] == "unknown") == 3


def test_verify_takes_the_range_that_is_asked_for_and_refuses_one_that_is_gone(topic, place):
    topic.send([*OF_TWO_GAMES, fire(5, 1)])
    place.run(topic.url)

    def deliveries(url: str) -> dict[str, int]:
        found = verify(place.spark, url, shooting_range, store=place.store, table=place.table)
        return {str(each.verdict): found.deliveries for each in found.counts}

    assert deliveries(topic.url) == {"match": 5}
    assert deliveries(f"{topic.url}?from=0:1,1:0&to=0:3,1:0") == {"match": 2}
    topic.delete_before(2)
    assert deliveries(topic.url) == {"match": 3}
    with pytest.raises(LogError, match="deleted"):
        deliveries(f"{topic.url}?from=0:1,1:0")
    with pytest.raises(LogError):
        deliveries(topic.url.replace(topic.name, "nowhere"))


def test_the_commands_of_the_page(topic, tmp_path):
    topic.send(ROWS)
    (script,) = marked("docs/kafka.md", "topics")

    done = subprocess.run(
        ["bash", "-ec", script.replace("kafka://localhost:9092/shots", topic.url)],
        cwd=tmp_path, env=beside_the_project(), capture_output=True, text=True, check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    assert f"Reading the offsets {topic.name}/0:0-3," in done.stderr
    assert "shots-0: 5 duplicate" in done.stderr


def test_records_in_avro_are_handled_and_those_that_are_not_are_dead_letters(topic, place):
    with registry() as (url, _):
        schema = {"type": "record", "name": "FireAt", "fields": [
            {"name": "game_id", "type": "string"}, {"name": "position", "type": "int"}
        ]}  # fmt: skip
        write = AvroSerializer(SchemaRegistryClient({"url": url}), json.dumps(schema))
        context = SerializationContext(topic.name, MessageField.VALUE)
        encode = lambda record: record.update(value=write(json.loads(record["value"]), context))  # noqa: E731
        topic.produce(encode, ROWS)
        topic.send([fire(4, 1)])

        outcomes = place.run(topic.url, decoding=Decoding("avro", url), batch_id="night")

    assert by_status(outcomes) == {
        ("ShootingRange", "processed"): 3,
        ("-", "dead_letter", "invalid_envelope"): 1,
    }
    assert "decode=avro" in place.batches()[0].input
    (dead,) = outcomes.where("status = 'dead_letter'").collect()
    assert dead.message_id == f"{topic.name}/0/3"
    assert "It is not decoded, SerializationError" in dead.error


def test_each_start_takes_what_is_new_and_a_later_partition_from_its_beginning(topic: Topic, place: Place):
    topic.send(ROWS)
    assert stream(place, topic.url) == [0]
    assert stream(place, topic.url) == []

    for done in topic.admin.create_partitions([NewPartitions(topic.name, 3)]).values():
        done.result()
    deadline = time.monotonic() + 30
    while len(KafkaLog(topic.url).limits().first) < 3 and time.monotonic() < deadline:
        time.sleep(0.1)
    topic.send([fire(4, 1)], partition=2)
    topic.send([fire(5, 1)], partition=1)
    assert stream(place, topic.url) == [1]

    assert statuses(outcomes_of(place)) == {message_id(number): ["processed"] for number in range(1, 6)}


def test_a_micro_batch_has_no_more_messages_than_asked_for(topic: Topic, place: Place):
    topic.send([start(number, 40) for number in range(1, 8)])

    assert stream(place, f"{topic.url}?max=3") == [0, 1, 2]

    assert len(statuses(outcomes_of(place))) == 7


def test_an_epoch_that_was_stopped_is_repeated_with_its_offsets(topic: Topic, place: Place, monkeypatch):
    topic.send(ROWS)
    monkeypatch.setattr("runtime.spark.batch.Rounds._commit", lambda *_, **__: 1 / 0)
    with pytest.raises(Exception, match="division"):
        stream(place, topic.url)
    monkeypatch.undo()
    topic.send([fire(4, 1)])

    assert stream(place, topic.url) == [0, 1]

    epochs = outcomes_of(place).select("batch_id", "message_id").collect()
    assert {row.message_id for row in epochs if row.batch_id == "shots-0"} == set(map(message_id, (1, 2, 3)))


@pytest.mark.parametrize(
    ("harm", "sentence"),
    [
        (lambda topic: topic.delete_before(4), "were deleted by the retention"),
        (Topic.make_again, "was recreated since"),
    ],
)
def test_a_topic_that_lost_messages_or_was_made_again_stops_the_query(
    topic: Topic, place: Place, harm, sentence
):
    topic.send(ROWS)
    stream(place, topic.url)
    topic.send([fire(4, 1), fire(5, 1)])
    harm(topic)
    topic.send(OF_TWO_GAMES)

    with pytest.raises(Exception, match=sentence):
        stream(place, topic.url)

    # A new query begins with what is left; what was handled before is a duplicate
    stream(place, topic.url, query="again", checkpoint=str(place.folder / "again"))


def wait_for(place: Place, batch_id: str) -> None:
    deadline = time.monotonic() + 60
    while not (place.folder / "out" / f"batch_id={batch_id}").exists():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_query_that_runs_takes_what_comes(topic: Topic, place: Place):
    where: Any = {"store": place.store, "table": place.table, "out": place.out}
    given: Any = {"query": "shots", "checkpoint": str(place.folder / "checkpoint"), "partitions": 2}
    query = run_stream(open_source(place.spark, f"{topic.url}?from=latest"), place.app, **where, **given)
    try:
        wait_for(place, "shots-0")  # of no messages
        topic.send(ROWS)
        wait_for(place, "shots-1")
    finally:
        query.stop()
    assert set(statuses(outcomes_of(place))) == {message_id(number) for number in (1, 2, 3)}


def test_a_stream_has_no_end(place: Place):
    with pytest.raises(UsageError, match="A stream has no end"):
        open_source(place.spark, "kafka://127.0.0.1:1/shots?to=latest")

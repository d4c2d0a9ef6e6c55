"""Routing in the JVM names the stream that the handler's types name, with one shuffle."""

import asyncio
import itertools
import json
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise
from random import Random

import msgpack
import pytest
from pydantic import StrictInt
from pyspark.sql import SparkSession
from pyspark.sql import functions as sf

from handlers import App, Context, Handler, Message, State, handles
from handlers.app import KeyKind, Route
from runtime.messages import envelope as message_ids
from runtime.messages.envelope import Envelope
from runtime.messages.outcome import Output
from runtime.messages.parsing import id_as_written
from runtime.processor import Processor
from runtime.spark.logs import normalise as log_module
from runtime.spark.logs.normalise import FieldPath as KeyPath
from runtime.spark.logs.normalise import canonical, find, normalise, read, route
from runtime.spark.logs.read import open_log
from samples.shooting_range import app as shooting_range
from tests.integration.spark.conftest import Place
from tests.integration.spark.test_rounds import Friend, Listener
from tests.support.logs import fire, generated, message_id, row, write_lines
from tests.support.outcomes import heads, statuses
from tests.unit.runtime.tables import memory_table


class Player(Message):
    name: str


class Scored(Message):
    player: Player
    level: StrictInt


class Score(State):
    count: int = 0


class ByName(Handler[Score]):
    @handles(by="player.name")
    def scored(self, state: Score, message: Scored, context: Context) -> Score:
        return state.model_copy(update={"count": state.count + 1})


class ByLevel(Handler[Score]):
    @handles(by="level")
    def scored(self, state: Score, message: Scored, context: Context) -> Score:
        return state.model_copy(update={"count": state.count + 1})


app = App(ByName, ByLevel)


def test_java_spells_ids_as_python_does(spark):
    # Given a UUID in all spellings that there are, and texts that are nearly one
    plain = ("0123abcd", "0123", "4567", "89ab", "cdef01234567")
    written = {
        start + "".join(itertools.chain.from_iterable(zip(plain, (*hyphens, ""), strict=True))) + end
        for hyphens in itertools.product(("", "-"), repeat=4)
        for start, end in itertools.product(("", "{", "urn:uuid:", "urn:uuid:{"), ("", "}"))
    }
    written |= {text[:place] + other + text[place + 1 :] for text in list(written) for place in (0, 8, 23, 35)
                for other in ("g", "-", "", "{", "}", "é", "É")}  # fmt: skip
    written |= {text.upper() for text in written} | {text + "\n" for text in written}

    # When Java spells them, then each is as Python spells it
    ids = spark.createDataFrame([(text,) for text in sorted(written)], "id string")
    spelled = {row.id: row.spelled for row in ids.selectExpr("id", f"{canonical('id')} AS spelled").collect()}
    assert spelled == {text: message_ids.canonical(text) for text in written}


NAMES = ["a/b", "a\\b", "a#b", "a?b", "a%2Fb", "a~2Fb", "a|b", "a\tb", "ä€😀", " ", "\u0000", "x'y\"z"]


def test_names_with_any_character_have_streams_of_their_own_and_of_duplicate_keys_the_last_counts(place):
    place.app = app
    names = [*NAMES, "x" * 600, ""]
    log = write_lines(
        place.folder / "log.jsonl",
        [
            *(row(n, "Scored", {"player": {"name": name}, "level": 7}) for n, name in enumerate(names)),
            row(20, "Scored", '{"player": {"name": "first", "name": "last"}, "level": 1, "level": 2}'),
            {**row(21, "Scored", {"player": {"name": "Ada"}, "level": 3}), "business_id": ""},
        ],
    )

    found = statuses(place.run(log).where("handler = 'ByName'"))

    assert {key: versions for key, (versions, _) in heads(place.store, place.table).items()} == {
        **{f"ByName-{name}": 1 for name in [*NAMES, "last", "Ada"]},
        "ByLevel-7": len(names),
        "ByLevel-2": 1,
        "ByLevel-3": 1,
    }
    # One that is too long or empty is a dead letter, and an empty one that the log gives is none.
    ends = [found[message_id(number)] for number in (len(NAMES), len(NAMES) + 1, 21)]
    assert ends == [["key_too_long"], ["no_business_id"], ["processed"]]


TOP, NESTED = ("id",), ("player", "name")

PLAIN = [
    '{"id": "a"}',
    '{"id":"a","x":1}',
    '{ "x" : [1, -2.5, 1e-5, true, null, {"id": "b"}], "id" :\t"ä€😀",\n"" : "a\\"\\\\\\u0041" }\n',
    '{"lines":[{"sku":"s","price":{"amount":1}},{}],"tags":[],"id":"a"}',
    json.dumps({"text": "x" * 9_000, "id": "a", "many": list(range(9_000)), "lines": "\n" * 900}),
]
PLAIN_NESTED = ['{"player":{"name":"n"}}', '{"id":"a","player":{"a":[1],"name":"n","b":null},"name":"b"}']
OTHERS = [
    *('{"id":"a","id":"b"}', '{"id":"a","\\u0069d":"b"}', '{"id":"a\\u0041"}', '{"id":7}', '{"id":null}'),
    *('{"id":"a"', '{"id":"a"}}', '{"id":"a",}', '{,"id":"a"}', '[{"id":"a"}]', "{'id':'a'}", '{"id":""}'),
    *('{"x":01,"id":"a"}', '{"x":1.,"id":"a"}', '{"x":[1,],"id":"a"}', '{"x":{"y"},"id":"a"}', "{}", ""),
    *('{"x":"\\q","id":"a"}', '{"x":"\n","id":"a"}', '{"x":NaN,"id":"a"}', '{"x" "y","id":"a"}', "null"),
    *('{"player":{"name":"n"},"player":1}', '{"player":{"name":"n","name":"m"}}', '{"player":"name"}'),
    f'{{"x":{"[" * 9_000}{"]" * 9_000},"id":"a"}}',
    json.dumps({"x": "\n" * 500_000, "id": "a"}),
    json.dumps({**{f"field {number}": number for number in range(50_000)}, "id": "a", "y": {"id": 1}}),
]
_INSERTED = '{}[]",:\\0-. ae1\n'


def mutants(seed: int, each: int) -> Iterator[str]:
    """Give bodies in which a sign or two were deleted, inserted, or put in place of another."""
    random = Random(seed)
    for body in [*PLAIN[:-1], *PLAIN_NESTED, *OTHERS[:-3]]:
        for _ in range(each):
            signs = list(body)
            for _ in range(random.choice((1, 1, 2))):
                at = random.randrange(len(signs) + 1)
                signs[at : at + random.choice((0, 1))] = random.choice(["", *_INSERTED])
            yield "".join(signs)


ODD = [
    *r"""
    {"id":1e400} ¦ {"id":-0} ¦ {"id":1.0} ¦ {"id":1E+5} ¦ {"id":007} ¦ {"id":+7} ¦ {"id":.5} ¦ {"id":7 ¦ {"id":7,
    {"id":"\ud800"} ¦ {"x":"\ud800","id":"a"} ¦ {"id":"\uDE00\uD83D"} ¦ {"id":"\ud83d\ude00"} ¦ {"id":"a\u0000b"}
    {"id":{"a": [1]}} ¦ {"id":[1, 2]} ¦ {"id":true} ¦ {"id":NaN} ¦ {"x":Infinity,"id":"a"} ¦ {"id":+INF} ¦ {"ID":"a"}
    {"id":"a"} x ¦ {"id":"a"}{"id":"b"} ¦ /* c */{"id":"a"} ¦ {"id":"a" "x":1} ¦ {"id":"a","id":1}
    {"id":"a","id":null} ¦ {"id":"a","id":[} ¦ {"id":"a","id":"\q"} ¦ {"id":"a","id":tru}
    {"player":{"name":"n"},"player":null} ¦ {"player":{"name":"n"},"player":{}} ¦ {"player":[{"name":"n"}]}
    {"player":{"name":"n"},"player":""} ¦ {"player":{"name":{"a":1 , "b":"\u0041"}}} ¦ {"player":{"name":"n"}
    """.strip()
    .replace("\n    ", " ¦ ")
    .split(" ¦ "),
    '\ufeff{"id":"a"}',
    '\x0b{"id":"a"}',
    f'{{"id":{"9" * 40}}}',
    f'{{"x":{"9" * 4_000},"id":"a"}}',
    f'{{"id":"{"x" * 100_000}\\n"}}',
]


@pytest.mark.parametrize(("place", "plain"), [(TOP, PLAIN), (NESTED, PLAIN_NESTED)])
@pytest.mark.parametrize("each", [9, pytest.param(60, marks=pytest.mark.thorough)])
def test_all_ways_to_read_a_business_id_agree(
    spark: SparkSession, place: KeyPath, plain: list[str], each: int
):
    bodies = [*plain, *OTHERS, *ODD, *mutants(seed=1, each=each)]
    rows = [(number, body) for number, body in enumerate(bodies)]

    found = spark.createDataFrame(rows, "number int, body string").select("number", find(place), read(place))

    pairs = [(quick, careful) for _, quick, careful in sorted(found.collect())]
    assert all(quick for quick, _ in pairs[: len(plain)])
    assert sum(bool(quick) for quick, _ in pairs) > 2 * len(plain)
    by = Route("Any", Message, place, place, KeyKind.TEXT, {})
    for body, (quick, careful) in zip(bodies, pairs, strict=True):
        assert quick in ("", careful), body[:200]
        # Python finds what Java does, or nothing: the id of a dead letter is the one that Python finds
        in_python = id_as_written(by, Envelope("m", "Any", body))
        assert in_python in ((careful or None,) if quick else (careful or None, None)), body[:200]


@pytest.mark.parametrize("is_packed", [False, True])
def test_a_refused_body_has_the_same_business_id_in_a_batch_and_one_by_one(place: Place, is_packed: bool):
    # Given bodies of which most are no valid message, as text or as msgpack, without a business id beside them
    place.app = app
    named = (body.replace('"id"', '"level"') for body in [*OTHERS[:-2], *ODD, *mutants(seed=2, each=2)])
    bodies: list[str | bytes] = [*named]
    if is_packed:
        things = [
            {"level": 7},
            {"player": {"name": "n"}, "level": 1.5},
            {"player": {"name": 3}, "level": 2**63},
            [1],
        ]
        bodies = [b"", b"\xff\xc1", *map(msgpack.packb, things)]
    rows = [(f"m{number}", "Scored", body, None) for number, body in enumerate(bodies)]
    of_body = "binary" if is_packed else "string"
    frame = place.spark.createDataFrame(
        rows, f"message_id string, type string, body {of_body}, business_id string"
    )

    # When they are handled in a batch, and one by one
    in_batch = Counter(
        (row.message_id, row.handler, row.business_id, row.reason) for row in place.run(frame).collect()
    )

    async def handle() -> Counter[tuple[str, str | None, str | None, str | None]]:
        async def accept(output: Output) -> None:
            raise AssertionError(output)

        processor = Processor(app, memory_table(), accept)
        outcomes = [each for row in rows for each in await processor.process(Envelope(*row))]
        return Counter(
            (each.envelope.message_id, each.handler, each.business_id, each.reason and each.reason.value)
            for each in outcomes
        )

    # Then their dead letters are the same
    assert in_batch == asyncio.run(handle())


@pytest.mark.thorough
def test_messages_are_shuffled_once_and_split_no_stream(place):
    log = generated(place.folder / "log.jsonl", games=10, messages=200, duplicates=0.2)

    routed = route(normalise(open_log(place.spark, log).rows), shooting_range, 3)

    plan = routed._jdf.queryExecution().executedPlan().toString()
    exchanges = re.findall(r"\bExchange (\w+)\((.*?)\), (\w+)", plan)
    assert len(exchanges) == 1, plan
    ((partitioning, columns, origin),) = exchanges
    assert partitioning == "hashpartitioning"
    assert re.findall(r"(\w+)#\d+", columns) == ["handler", "business_id", "spread"]
    # a number of partitions given by name, which Spark neither coalesces nor splits
    assert origin == "REPARTITION_BY_NUM"
    assert routed.rdd.getNumPartitions() == 3


def test_what_takes_long_is_computed_once_for_a_row_however_many_handlers_ask_for_a_business_id(place):
    log = generated(place.folder / "log.jsonl", games=1, messages=10)
    rows = normalise(open_log(place.spark, log).rows)

    plan, routed = (
        frame._jdf.queryExecution().executedPlan().toString()
        for frame in (rows, route(rows, App(Listener, Friend), 3))
    )

    # the line and its headers, and the business id
    assert (plan.count("from_json("), routed.count("from_json(")) == (2, 3), routed
    assert plan.count(log_module._TIME) == plan.count(log_module._NUMBER) == plan.count(log_module._HALF) == 1


def test_rows_of_a_stream_are_together_and_in_order(place):
    log = generated(place.folder / "log.jsonl", games=10, messages=100, duplicates=0.2, shuffle=True)

    routed = route(normalise(open_log(place.spark, log).rows), shooting_range, 3)
    rows = routed.withColumn("partition", sf.spark_partition_id()).collect()

    streams = [(row.handler, row.business_id, row.partition) for row in rows]
    changes = 1 + sum(1 for before, after in pairwise(streams) if before != after)
    assert changes == len(set(streams)) == len({stream[:2] for stream in streams}) == 10
    for stream in set(streams):
        positions = [row.sequence for row, at in zip(rows, streams, strict=True) if at == stream]
        assert positions == sorted(positions)


def test_copies_stand_together_at_the_smallest_position_of_any_of_them(place):
    # Given two messages, the copies of which lie around each other
    rows = [fire(1, 5, sequence=9), fire(2, 5, sequence=2), fire(1, 5, sequence=1), fire(2, 5, sequence=5)]
    log = write_lines(place.folder / "log.jsonl", [*rows, {**fire(1, 5), "sequence": None}])

    routed = route(normalise(open_log(place.spark, log).rows), shooting_range, 1).collect()

    assert [(row.message_id, row.sequence) for row in routed] == [
        (message_id(1), 1),
        (message_id(1), 9),
        (message_id(1), None),
        (message_id(2), 2),
        (message_id(2), 5),
    ]

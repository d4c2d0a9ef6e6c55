"""Business ids that a regular expression finds in bodies are those that Spark's JSON parser reads there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from random import Random

import pytest
from pyspark.sql import SparkSession

from runtime.spark.logs.route import Place, find, read

TOP, NESTED = ("id",), ("player", "name")

PLAIN = [
    '{"id": "a"}',
    '{"id":"a","x":1}',
    '{ "x" : [1, -2.5, 1e-5, true, null, {"id": "b"}], "id" :\t"ä€😀",\n"" : "a\\"\\\\\\u0041" }\n',
    '{"lines":[{"sku":"s","price":{"amount":1}},{}],"tags":[],"id":"a"}',
    json.dumps({"text": "x" * 9_000, "id": "a", "many": list(range(9_000)), "lines": "\n" * 900}),
]
PLAIN_NESTED = [
    '{"player":{"name":"n"}}',
    '{"id":"a","player":{"a":[1],"name":"n","b":null},"name":"b"}',
]
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


@pytest.mark.thorough
@pytest.mark.parametrize(("place", "plain"), [(TOP, PLAIN), (NESTED, PLAIN_NESTED)])
def test_the_two_ways_to_read_a_business_id_agree(spark: SparkSession, place: Place, plain: list[str]):
    bodies = [*plain, *OTHERS, *mutants(seed=1, each=20)]
    rows = [(number, body) for number, body in enumerate(bodies)]

    found = spark.createDataFrame(rows, "number int, body string").select("number", find(place), read(place))

    pairs = [(quick, careful) for _, quick, careful in sorted(found.collect())]
    assert all(quick for quick, _ in pairs[: len(plain)])
    assert sum(bool(quick) for quick, _ in pairs) > 2 * len(plain)
    for body, (quick, careful) in zip(bodies, pairs, strict=True):
        assert quick in ("", careful), body[:200]

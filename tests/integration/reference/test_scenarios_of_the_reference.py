"""The scenarios of the reference implementation: one message after another, and two processes at once."""

import asyncio
import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from uuid import UUID

import pytest

from eventstore import connect
from runtime import Envelope
from runtime.versions.stream import summaries
from tests.support.campaigns import ROOT
from tests.support.consumer import Consumer, to_line
from tests.support.logs import GAME

GAMES = [str(UUID(int=number, version=4)) for number in range(12)]
ONCE = {"number_of_hits": 1, "number_of_misses": 0}
_numbers = itertools.count(1)
_azurite = pytest.param("azurite", marks=pytest.mark.thorough)


@pytest.fixture(params=["memory", "sqlite", _azurite])
def store_url(request, tmp_path):
    if request.param == "azurite":
        return request.getfixturevalue("azurite_url")
    return f"memory:{tmp_path.name}" if request.param == "memory" else f"sqlite:///{tmp_path}/store.db"


@pytest.fixture
def table():
    return f"reference{os.getpid()}x{next(_numbers)}"


def message(number, type_, game=GAME, **body):
    return Envelope.of(str(UUID(int=number)), type_, json.dumps({"game_id": game, **body}))


def start(number, position, game=GAME):
    return message(number, "StartNewRound", game, position=position)


def fire(number, position, game=GAME):
    return message(number, "FireAt", game, position=position)


def play(store_url, table, *messages):
    """Handle messages one after another; return the scores by game, and all outputs."""

    async def run():
        async with connect(store_url) as store:
            opened = await store.table(table)
            consumer = Consumer(opened)
            await consumer.handle(*messages)
            boards = summaries(opened, "LeaderBoard")
            return {
                each.business_id: json.loads(each.head.state or b"") async for each in boards
            }, consumer.published

    return asyncio.run(run())


def test_a_shot_that_is_delivered_twice_hits_once(store_url, table):
    scores, published = play(store_url, table, start(1, 1), fire(2, 1), fire(2, 1))
    assert scores == {GAME: ONCE}
    assert published[0] == published[1]


def test_a_late_copy_of_a_shot_still_hits_the_target_where_it_was(store_url, table):
    # The target has moved on: a copy handled on the latest state would miss
    scores, published = play(store_url, table, start(1, 1), fire(2, 1), start(3, 2), fire(2, 1))
    assert scores == {GAME: ONCE}
    assert [output.type for output in published] == ["Hit", "Hit"]
    assert published[0] == published[1]


def test_a_copy_delivered_after_many_versions_is_handled_on_its_own(store_url, table):
    # Each shot is followed by a move of the target; then all copies come, the last first
    rounds = [(start(2 * n, n), fire(2 * n + 1, n)) for n in range(1, 12)]
    messages = [each for pair in rounds for each in pair]
    scores, published = play(store_url, table, *messages, *(shot for _, shot in reversed(rounds)))
    assert scores == {GAME: {"number_of_hits": 11, "number_of_misses": 0}}
    assert published[11:] == published[:11][::-1]


def test_a_hit_that_is_delivered_twice_counts_once(store_url, table):
    hit = message(9, "Hit", id=GAME)
    scores, _ = play(store_url, table, hit, hit)
    assert scores == {GAME: ONCE}


def handle_at_once(store_url, table, *of_each):
    """Run a process for each list of messages, all of which begin at the same moment; return the outputs of each."""
    command = [sys.executable, "-m", "tests.support.consumer", store_url, table]
    consumers = [
        subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        for _ in of_each
    ]
    for consumer, messages in zip(consumers, of_each, strict=True):
        say(consumer, f"{len(messages)}\n" + "".join(f"{to_line(each)}\n" for each in messages))
    for consumer in consumers:
        assert consumer.stdout
        assert consumer.stdout.readline() == "ready\n"
    for consumer in consumers:
        say(consumer, "go\n")
    lines = [consumer.communicate(timeout=120)[0] for consumer in consumers]
    assert [consumer.returncode for consumer in consumers] == [0] * len(of_each)
    return [[json.loads(line) for line in each.splitlines()] for each in lines]


def say(consumer, text):
    consumer.stdin.write(text)
    consumer.stdin.flush()


@pytest.mark.parametrize("store", ["sqlite", _azurite])
def test_a_shot_its_copy_and_a_new_round_at_once_give_one_result(store, table, tmp_path, request):
    url = request.getfixturevalue("azurite_url") if store == "azurite" else f"sqlite:///{tmp_path}/store.db"
    play(url, table, *(start(1000 + number, 1, game) for number, game in enumerate(GAMES)))

    # When the shots, their copies and moves of the targets come at once
    shots = [fire(2000 + number, 1, game) for number, game in enumerate(GAMES)]
    moves = [start(3000 + number, 2, game) for number, game in enumerate(GAMES)]
    published = handle_at_once(url, table, shots, shots[::-1], moves)

    # Then each game has one hit or one miss, whichever came first, and all copies of it are the same
    scores, _ = play(url, table)
    assert set(scores) == set(GAMES)
    assert all(score["number_of_hits"] + score["number_of_misses"] == 1 for score in scores.values())
    outputs = Counter(json.dumps(output) for each in published for output in each)
    assert len(outputs) == len(GAMES)
    assert set(outputs.values()) == {2}

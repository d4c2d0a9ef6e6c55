"""Two consumers in two processes get the same messages at the same time."""

import asyncio
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from uuid import UUID

from eventstore import connect
from runtime import Envelope
from runtime.versions.stream import summaries
from tests.support.consumer import Consumer, to_line

ROOT = Path(__file__).parents[3]
GAMES = [str(UUID(int=number, version=4)) for number in range(12)]


def message(number, type_, game, position):
    body = json.dumps({"game_id": game, "position": position})
    return Envelope.of(str(UUID(int=1000 * number + GAMES.index(game))), type_, body)


def handle(store_url, table, *messages):
    async def run():
        async with connect(store_url) as store:
            await Consumer(await store.table(table)).handle(*messages)

    asyncio.run(run())


def handle_at_once(store_url, table, *of_each):
    """Let a process for each list of messages begin at the same moment; return what each published."""
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


def scores(store_url, table):
    async def read():
        async with connect(store_url) as store:
            found = summaries(await store.table(table), "LeaderBoard")
            return {each.business_id: json.loads(each.head.state or b"") async for each in found}

    return asyncio.run(read())


def test_a_shot_its_copy_and_a_new_round_at_once_give_one_result(shared_url, table):
    handle(shared_url, table, *(message(1, "StartNewRound", game, 1) for game in GAMES))

    # When the shots, their copies and moves of the targets come at once
    shots = [message(2, "FireAt", game, 1) for game in GAMES]
    moves = [message(3, "StartNewRound", game, 2) for game in GAMES]
    published = handle_at_once(shared_url, table, shots, shots[::-1], moves)

    # Then each game has one hit or one miss, whichever came first, and all copies of it are the same
    found = scores(shared_url, table)
    assert set(found) == set(GAMES)
    assert all(score["number_of_hits"] + score["number_of_misses"] == 1 for score in found.values())
    outputs = Counter(json.dumps(output) for each in published for output in each)
    assert len(outputs) == len(GAMES)
    assert set(outputs.values()) == {2}

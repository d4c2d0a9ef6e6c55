"""The JVM finds the business id and the handler's type has the last word: both must name one stream."""

from __future__ import annotations

import itertools
import json

import pytest
from pydantic import StrictInt
from pyspark.sql import DataFrame

from handlers import App, Context, Handler, Message, State, handles
from runtime.messages import envelope as message_ids
from runtime.spark.logs.normalise import canonical
from tests.integration.spark.conftest import Place
from tests.support.logs import GAME, message_id, row, start, write_lines
from tests.support.outcomes import heads, statuses


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


def test_every_spelling_of_a_uuid_is_the_same_game(place):
    # Given one game, spelled as no two systems spell it
    plain = GAME.replace("-", "")
    spellings = [GAME, GAME.upper(), "{" + GAME + "}", plain, plain.upper(), f"urn:uuid:{GAME}"]
    log = write_lines(place.folder / "log.jsonl", [start(n, n, game) for n, game in enumerate(spellings)])

    # When a batch runs
    place.run(log)

    # Then there is one stream with all versions
    assert {key: versions for key, (versions, _) in heads(place.store, place.table).items()} == {
        f"ShootingRange-{GAME}": len(spellings)
    }


def test_every_spelling_of_a_message_id_is_the_same_message(place):
    # Given one message whose copies spell its id in different ways
    ids = [GAME, GAME.upper(), GAME.replace("-", ""), "{" + GAME + "}"]
    log = write_lines(place.folder / "log.jsonl", [{**start(1, 5), "message_id": each} for each in ids])

    # When a batch runs, then it was processed once
    assert statuses(place.run(log)) == {GAME: ["duplicate", "duplicate", "duplicate", "processed"]}


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
TWICE = '{"player": {"name": "first", "name": "last"}, "level": 1, "level": 2}'
TOO_LONG, EMPTY, GIVEN = 21, 22, 23


@pytest.fixture(scope="module")
def scored(lasting_place) -> tuple[Place, DataFrame]:
    """Give the outcomes of a batch over bodies with all sorts of names."""
    lasting_place.app = app
    rows = [
        *(row(number, "Scored", {"player": {"name": name}, "level": 7}) for number, name in enumerate(NAMES)),
        row(20, "Scored", TWICE),
        row(TOO_LONG, "Scored", {"player": {"name": "x" * 600}, "level": 3}),
        row(EMPTY, "Scored", {"player": {"name": ""}, "level": 3}),
        {**row(GIVEN, "Scored", {"player": {"name": "Ada"}, "level": 3}), "business_id": ""},
    ]
    return lasting_place, lasting_place.run(write_lines(lasting_place.folder / "log.jsonl", rows))


def test_names_with_any_character_have_streams_of_their_own_and_of_duplicate_keys_the_last_counts(scored):
    place, _ = scored
    found = heads(place.store, place.table)

    assert {key: versions for key, (versions, _) in found.items()} == {
        **{f"ByName-{name}": 1 for name in [*NAMES, "last", "Ada"]},
        "ByLevel-7": len(NAMES),
        "ByLevel-2": 1,
        "ByLevel-3": 3,
    }


def test_a_name_that_is_too_long_or_empty_is_a_dead_letter_and_an_empty_one_that_the_log_gives_is_none(
    scored,
):
    _, outcomes = scored
    found = statuses(outcomes.where("handler = 'ByName'"))

    assert [found[message_id(number)] for number in (TOO_LONG, EMPTY, GIVEN)] == [
        ["key_too_long"],
        ["no_business_id"],
        ["processed"],
    ]


def test_bodies_may_be_msgpack_when_the_log_names_the_business_id(place):
    import msgpack

    # Given a log whose bodies are msgpack
    rows = [
        (f"m{n}", "StartNewRound", bytearray(msgpack.packb({"game_id": GAME, "position": n})), GAME)
        for n in range(3)
    ]
    log = place.spark.createDataFrame(rows, "message_id string, type string, body binary, business_id string")

    # When a batch runs, then they are handled
    assert statuses(place.run(log)) == {f"m{n}": ["processed"] for n in range(3)}
    ((versions, state),) = heads(place.store, place.table).values()
    assert (versions, json.loads(state)["target_position"]) == (3, 2)
